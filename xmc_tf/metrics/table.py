"""Tables for a terminal: columns are aligned, and tables that are too wide are split."""

from collections.abc import Sequence


def percent(value: float) -> str:
    """Format a share as a percentage with two decimals; NaN becomes a dash."""
    return "–" if value != value else f"{100 * value:.2f}"


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, width: int = 100, indent: str = ""
) -> str:
    """Align the columns. Those beyond ``width`` go to further tables, which repeat the first ``left`` columns."""
    wide = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    fixed = sum(wide[:left]) + 2 * left + len(indent)
    blocks: list[list[int]] = [[]]
    used = fixed
    for column in range(left, len(header)):
        if blocks[-1] and used + wide[column] > width:
            blocks.append([])
            used = fixed
        blocks[-1].append(column)
        used += wide[column] + 2

    def line(cells: Sequence[str], columns: list[int]) -> str:
        named = [cells[i].ljust(wide[i]) for i in range(left)]
        return (indent + "  ".join(named + [cells[i].rjust(wide[i]) for i in columns])).rstrip()

    lines = header, ["-" * w for w in wide], *rows
    return "\n\n".join("\n".join(line(cells, block) for cells in lines) for block in blocks)
