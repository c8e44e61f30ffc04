"""The table of the checks, with failed cells in red, and the list of problems with their fixes."""

import os
from typing import TextIO

from xmc_tf.common.process.terminal import printable
from xmc_tf.launch.preflight.checks import COLUMNS, Report

_RED, _PLAIN = "\033[31m", "\033[0m"


def format_report(report: Report, colour: bool) -> str:
    """Return the table and the problems.

    Args:
        report: the results.
        colour: show failed cells in red; they are marked with ``!`` in any case.
    """
    header = ["host", "ranks", *COLUMNS]
    rows: list[list[tuple[str, bool]]] = []
    for host, cells in report.rows.items():
        row = [(host.name, False), (str(host.slots), False)]
        for column in COLUMNS:
            cell = cells.get(column)
            failed = cell is not None and bool(cell.problem)
            row.append(("" if cell is None else f"{cell.text} !" if failed else cell.text, failed))
        rows.append(row)
    widths = [max(len(header[at]), *(len(row[at][0]) for row in rows)) for at in range(len(header))]
    lines = ["  ".join(name.ljust(width) for name, width in zip(header, widths, strict=True)).rstrip()]
    for row in rows:
        padded = [(text.ljust(width), failed) for (text, failed), width in zip(row, widths, strict=True)]
        lines.append(
            "  ".join(f"{_RED}{text}{_PLAIN}" if failed and colour else text for text, failed in padded).rstrip()
        )
    for name, column, cell in report.problems:
        lines += ["", f"{name}: {'not reached: ' if column == 'reached' else ''}{printable(cell.problem)}"]
        lines.append(f"  fix: {cell.fix}")
    return "\n".join(lines)


def wants_colour(stream: TextIO) -> bool:
    """Return whether a stream is a terminal whose user has not switched colours off (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
