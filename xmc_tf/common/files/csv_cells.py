import re
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_NOT_IN_CELLS = dict.fromkeys([*(set(range(0x20)) - {9, 10}), 0x7F], " ")


def safe_cell(value: Any) -> str:
    """Return a cell that no spreadsheet program runs as a formula: ``=1+1`` becomes ``'=1+1``, and ``-1.5`` stays."""
    text = "" if value is None else str(value).translate(_NOT_IN_CELLS)
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text
