"""Cells of CSV files that a spreadsheet program cannot execute."""

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NOT_IN_CELLS = dict.fromkeys([*range(0x20), 0x7F], " ") | {ord("\n"): "\n", ord("\t"): "\t"}


def safe_cell(value: object) -> object:
    """Return the value of a cell; a text that a spreadsheet program would execute as a formula gets an apostrophe.

    Example:
        >>> safe_cell('=HYPERLINK("http://evil")')
        '\\'=HYPERLINK("http://evil")'
        >>> safe_cell(-0.5)
        -0.5

    Args:
        value: a number, or a text from others, such as the name of a label.
    """
    if not isinstance(value, str):
        return "" if value is None else value
    text = value.translate(_NOT_IN_CELLS)
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA_STARTS) else text
