"""Documents with nearly the same text and different labels."""

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.audit.data import AuditData
from xmc_tf.audit.finding import DUPLICATES, Finding

_LEAST = 0.9  # cosine of documents that are nearly the same
_SHOWN = 4


def different_duplicates(data: AuditData, near: csr_matrix, most: int) -> list[Finding]:
    """Return pairs of documents with nearly the same text and different labels.

    Args:
        data: the documents.
        near: the most similar documents of each: documents × documents.
        most: maximum number of findings.
    """
    near = csr_matrix(near)
    rows = np.repeat(np.arange(near.shape[0]), np.diff(near.indptr))
    alike = near.data >= _LEAST
    pairs, place = np.unique(
        np.sort(np.column_stack([rows[alike], near.indices[alike]]), axis=1), axis=0, return_index=True
    )
    cosine = near.data[alike][place]
    found = []
    for (one, other), similarity in zip(pairs.tolist(), cosine.tolist(), strict=True):
        here, there = (set(data.Y.indices[slice(*data.Y.indptr[row : row + 2])].tolist()) for row in (one, other))
        if here == there:
            continue
        only = [
            f"only {data.document_name(row)} has {_listed(data, labels)}"
            for row, labels in ((one, here - there), (other, there - here))
            if labels
        ]
        why = (
            f"{min(similarity, 1.0):.0%} of the words are the same as in {data.document_name(other)}; {', '.join(only)}"
        )
        sure = min(float(similarity), 1.0)
        # Of two opinions on a label, one is wrong.
        found.append(Finding(DUPLICATES, one, None, other, sure, sure * len(here ^ there), why))
    found.sort(key=lambda one: (-one.gain, one.row))
    return found[:most]


def _listed(data: AuditData, labels: set[int]) -> str:
    names = [repr(data.label_name(label)) for label in sorted(labels)]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
