"""Forms of tables: one row per pair of document and label, and one column of 0 and 1 per label."""

from collections.abc import Sequence

_YES, _NO = ("1", "1.0", "true"), ("0", "0.0", "false", "")
_LEAST_COLUMNS = 3  # of 0 and 1 that are labels where there are other columns too, such as prices
_PAIRS, _PAIRS_WITH_ID = 0.1, 0.01  # shares of rows that repeat a document with another label


def is_yes(cell: str) -> bool:
    """Return whether a cell of a column of 0 and 1 says that the label applies."""
    return cell.strip().lower() in _YES


def is_of_zeros_and_ones(cells: Sequence[str]) -> bool:
    """Return whether the cells of a column say whether a label applies."""
    seen = {cell.strip().lower() for cell in cells}
    return seen <= {*_YES, *_NO} and bool(seen - {""})


def columns_of_zeros_and_ones(cells: Sequence[Sequence[str]], candidates: Sequence[int]) -> list[int]:
    """Return the places of the columns that each stand for a label; none if only a few of the columns are such.

    Args:
        cells: some rows.
        candidates: places of the columns that may be labels.
    """
    found = [at for at in candidates if is_of_zeros_and_ones([row[at] for row in cells])]
    return found if len(found) >= (_LEAST_COLUMNS if len(found) < len(candidates) else 2) else []


def rows_are_pairs(rows: Sequence[tuple[str, str, str]]) -> str:
    """Return by what a table with one row per pair of document and label names its documents.

    A document whose text occurs again with another label is probably a pair. Where the identifier occurs again too, few
    such rows suffice; without one, a few may be copies that somebody has labelled in another way.

    Args:
        rows: identifier ("" if there is none), text and cell of labels of some rows.

    Returns:
        "id" or "text"; "" if each row is a document.
    """
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
