import re
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_NOT_IN_CELLS = dict.fromkeys([*(set(range(0x20)) - {9, 10}), 0x7F], " ")


_SEPARATORS = ",;\t"
_ESCAPED = re.compile(rf"(^|[{_SEPARATORS}\n])'(?=[ \"]*[{re.escape(''.join(_FORMULA))}])")


def safe_cell(value: Any, separator: str = ",") -> str:
    """Escape a cell that a spreadsheet would run as a formula: ``=1+1`` becomes ``'=1+1``; ``-1.5`` is unchanged.

    A spreadsheet may split a file at another character than its ``separator``: ``a;=1+1`` becomes ``a;'=1+1``.
    """
    text = "" if value is None else str(value).translate(_NOT_IN_CELLS)
    first, *pieces = re.split(f"([{_SEPARATORS.replace(separator, '')}\n])", text)
    rest = "".join(f"'{one}" if _is_formula(one, ' "') and at % 2 else one for at, one in enumerate(pieces))
    return f"'{first}{rest}" if _is_formula(text, " ") else first + rest


def raw_cell(cell: str) -> str:
    """Return the text of which `safe_cell` has made a cell."""
    text = _ESCAPED.sub(r"\1", cell)
    return text if safe_cell(text) == cell else cell


def _is_formula(text: str, before: str) -> bool:
    return text.lstrip(before).startswith(_FORMULA) and not _NUMBER.fullmatch(text)
