"""Forms of tables: one row per pair of document and label, or one column of 0 and 1 per label."""

from collections.abc import Sequence

_YES, _NO = ("1", "1.0", "true"), ("0", "0.0", "false", "")
_LEAST_COLUMNS = 3  # of 0 and 1 that are labels where there are other columns too, such as prices
_PAIRS, _PAIRS_WITH_ID = 0.1, 0.01  # shares of rows that repeat a document with another label


def is_yes(cell: str) -> bool:
    return cell.strip().lower() in _YES


def is_of_zeros_and_ones(cells: Sequence[str]) -> bool:
    """Return whether the cells of a column say whether a label applies."""
    seen = {cell.strip().lower() for cell in cells}
    return seen <= {*_YES, *_NO} and bool(seen - {""})


def columns_of_zeros_and_ones(cells: Sequence[Sequence[str]], candidates: Sequence[int]) -> list[int]:
    """Return the positions of the columns that each stand for a label; none if too few candidates are such columns."""
    found = [at for at in candidates if is_of_zeros_and_ones([row[at] for row in cells])]
    return found if len(found) >= (_LEAST_COLUMNS if len(found) < len(candidates) else 2) else []


def rows_are_pairs(rows: Sequence[tuple[str, str, str]]) -> str:
    """Return what identifies the documents of a table with one row per label, "id" or "text"; "" for other tables."""
    labels: dict[str, set[str]] = {}
    ids: dict[str, str] = {}
    same_id = same_text = 0
    for identifier, text, label in rows:
        known = labels.setdefault(text, set())
        if known and label not in known:
            same_text += 1
            same_id += bool(identifier) and ids[text] == identifier
        known.add(label)
        ids.setdefault(text, identifier)
    if same_id >= max(2, _PAIRS_WITH_ID * len(rows)) and same_id >= 0.9 * same_text:
        return "id"
    return "text" if same_text >= max(2, _PAIRS * len(rows)) else ""
