"""The tables of the launcher: the hosts of a plan, and the checks of the hosts with a list of problems and fixes."""

from collections.abc import Sequence

from xmc_tf.common.process.terminal import printable
from xmc_tf.launch.checks import COLUMNS, HostCheck, HostChecks


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def format_report(report: HostChecks) -> str:
    """Return the table of the checks, in which failed cells are marked with ``!``, and the problems."""
    rows = [["host", "ranks", *COLUMNS]]
    for host, cells in report.rows.items():
        shown = [cells.get(column, HostCheck("")) for column in COLUMNS]
        rows.append([host.name, str(host.slots), *(f"{cell.text} !" if cell.problem else cell.text for cell in shown)])
    lines = align(rows)
    for name, column, cell in report.problems:
        lines += ["", f"{name}: {'not reached: ' if column == 'reached' else ''}{printable(cell.problem)}"]
        lines.append(f"  fix: {cell.fix}")
    return "\n".join(lines)
