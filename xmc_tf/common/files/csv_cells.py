import re
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_NOT_IN_CELLS = dict.fromkeys([*(set(range(0x20)) - {9, 10}), 0x7F], " ")


def safe_cell(value: Any) -> str:
    """Escape a cell that a spreadsheet would run as a formula: ``=1+1`` becomes ``'=1+1``; ``-1.5`` is unchanged."""
    text = "" if value is None else str(value).translate(_NOT_IN_CELLS)
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text
