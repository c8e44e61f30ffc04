"""The reasons for a finding about one label of one document, in words."""

import numpy as np

from xmc_tf.audit.data import AuditData
from xmc_tf.audit.evidence import PairEvidence
from xmc_tf.fusion import POOL

_CLOSE = 10  # similar documents that are counted


def reasons(data: AuditData, found: PairEvidence, pair: int) -> str:
    """Return what speaks for a label of a document, or against it.

    Args:
        data: the documents.
        found: the evidence.
        pair: number of the pair.
    """
    row, label = int(found.pairs.rows[pair]), int(found.pairs.labels[pair])
    parts = [_by_text(found, pair), _by_name(data, found, pair), _by_neighbours(data, found, row, label)]
    parts.append(_by_company(data, found, row, label))
    return "; ".join(filter(None, parts))


def _by_text(found: PairEvidence, pair: int) -> str:
    rank = round(float(np.exp(-found.column("rank")[pair])))
    return f"prediction {rank} from the text" if rank <= POOL else f"not among the {POOL} predictions from the text"


def _by_name(data: AuditData, found: PairEvidence, pair: int) -> str:
    if data.names is None or not found.named.nnz:
        return ""
    worth = float(found.column("name")[pair])
    return f"its name is in the text, of which {worth:.0%} have it" if worth > 0 else "its name is not in the text"


def _by_neighbours(data: AuditData, found: PairEvidence, row: int, label: int) -> str:
    near, Y = found.near, data.Y
    similar = near.indices[near.indptr[row] : near.indptr[row + 1]][:_CLOSE]
    if not len(similar):
        return ""
    count = sum(label in Y.indices[Y.indptr[one] : Y.indptr[one + 1]] for one in similar)
    return f"{count} of the {len(similar)} most similar documents have it"


def _by_company(data: AuditData, found: PairEvidence, row: int, label: int) -> str:
    closest = found.companions.closest(row, label)
    if closest is None:
        return ""
    other, both, every = closest
    if not both:
        return "no other document has it together with one of the other labels"
    return f"{both} of {every} other documents with {data.label_name(other)!r} have it"
