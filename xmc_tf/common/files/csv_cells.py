"""Cells of CSV files that a spreadsheet program cannot execute.

A cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line end can run as a formula in a spreadsheet, also in
the wide forms of East Asian keyboards. It gets an apostrophe in front, unless it is a plain number.
"""

import re
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_NOT_IN_CELLS = dict.fromkeys([*(set(range(0x20)) - {9, 10}), 0x7F], " ")


def safe_cell(value: Any) -> str:
    """Return a cell that no spreadsheet takes for a formula.

    Example:
        >>> safe_cell("=1+1"), safe_cell("-1.5"), safe_cell("plain")
        ("'=1+1", '-1.5', 'plain')

    Args:
        value: content of the cell; None becomes an empty cell.
    """
    text = "" if value is None else str(value).translate(_NOT_IN_CELLS)
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text
