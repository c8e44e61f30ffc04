"""Findings about labels: duplicates with different labels, indistinguishable labels, and names found in no text."""

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.audit.data import DUPLICATES, SAME_LABELS, SILENT_NAME, AuditData, Finding
from xmc_tf.audit.evidence import PairEvidence

_NEARLY_SAME = 0.9  # cosine of documents
_SHOWN = 4
_FEWEST = 5  # a label with fewer documents has no findings
_RIVALS = 10  # labels of a document that are compared
_OFTEN = 0.5  # share of a label's documents in which the other one is a rival
_ALIKE = 0.6  # if the right label is ahead in at most this share, the two are indistinguishable; 0.5: chance


def indistinguishable(data: AuditData, found: PairEvidence) -> list[Finding]:
    """Find pairs of labels that compete for the same documents, where neither label is reliably ahead."""
    count = data.Y.shape[1]
    margin, rank = found.column("margin"), np.exp(-found.column("rank"))
    rivals = ~found.has & ~found.random & (rank <= _RIVALS)
    own, other = (_matrix(found, which, data.Y.shape) for which in (found.has, rivals))
    met, won = _contests(own, other, margin)
    documents = np.bincount(data.Y.indices, minlength=count)
    both = csr_matrix(met.minimum(met.T))
    out = []
    for a, b in zip(*both.nonzero(), strict=True):
        if a >= b:
            continue
        contests, wins = (np.array([m[a, b], m[b, a]]) for m in (met, won))
        if (contests < _FEWEST).any() or (contests < _OFTEN * documents[[a, b]]).any():
            continue
        right = float((wins / contests).mean())
        if right > _ALIKE:
            continue
        one, two = (data.label_name(int(label)) for label in (a, b))
        why = (
            f"in {contests[0]:.0f} of {documents[a]} documents with {one!r} and {contests[1]:.0f} of {documents[b]} "
            f"with {two!r}, the other label seems to fit too, and the right one is ahead in {right:.0%}: merge "
            "them, or describe when to use each"
        )
        strength = float(np.clip(2.0 * (1.0 - right), 0.0, 1.0))
        out.append(Finding(SAME_LABELS, None, int(a), int(b), strength, strength * float((contests - wins).sum()), why))
    return out


def _matrix(found: PairEvidence, which: np.ndarray, shape: tuple[int, int]) -> csr_matrix:
    """Return a matrix of documents × labels in which the entry of a selected pair is its index plus 1."""
    place = np.flatnonzero(which)
    return csr_matrix((place + 1.0, (found.pairs.rows[place], found.pairs.labels[place])), shape=shape)


def _contests(own: csr_matrix, other: csr_matrix, margin: np.ndarray) -> tuple[csr_matrix, csr_matrix]:
    """Return two matrices of labels × rivals: in how many documents they compete, and in how many the label leads."""
    counts = np.diff(other.indptr)
    rows = np.repeat(np.arange(own.shape[0]), np.diff(own.indptr))
    sizes = counts[rows]
    first = np.repeat(np.arange(own.nnz), sizes)
    begin = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    second = np.arange(len(first)) - np.repeat(begin, sizes) + np.repeat(other.indptr[rows], sizes)
    mine, theirs = own.data[first].astype(np.int64) - 1, other.data[second].astype(np.int64) - 1
    ahead = (margin[mine] > margin[theirs]).astype(np.float64)
    place = (own.indices[first], other.indices[second])
    shape = (own.shape[1], own.shape[1])
    return csr_matrix((np.ones(len(first)), place), shape=shape), csr_matrix((ahead, place), shape=shape)


def silent_names(data: AuditData, found: PairEvidence) -> list[Finding]:
    """Find labels whose name occurs in none of their documents."""
    if data.names is None or not found.named.nnz:
        return []
    documents = np.bincount(data.Y.indices, minlength=data.Y.shape[1])
    with_name = np.bincount(
        found.pairs.labels[found.has & (found.column("name present") > 0)], minlength=data.Y.shape[1]
    )
    silent = np.flatnonzero((with_name == 0) & (documents >= _FEWEST))
    unranked = found.has & (np.exp(-found.column("rank")) > _RIVALS)
    missed = np.bincount(found.pairs.labels[unranked], minlength=data.Y.shape[1])
    out = []
    for label in silent.tolist():
        why = (
            f"none of its {documents[label]} documents contains the name, and rankers miss {missed[label]} of them: "
            "add alternative names"
        )
        strength = 1.0 - 0.5 ** (documents[label] / _FEWEST)
        out.append(Finding(SILENT_NAME, None, label, None, float(strength), float(strength * missed[label]), why))
    return out


def different_duplicates(data: AuditData, near: csr_matrix) -> list[Finding]:
    """Find pairs of documents with nearly the same text but different labels."""
    near = csr_matrix(near)
    rows = np.repeat(np.arange(near.shape[0]), np.diff(near.indptr))
    alike = near.data >= _NEARLY_SAME
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
        strength = min(float(similarity), 1.0)
        # Of two opinions on a label, one is wrong.
        found.append(Finding(DUPLICATES, one, None, other, strength, strength * len(here ^ there), why))
    return found


def _listed(data: AuditData, labels: set[int]) -> str:
    names = [repr(data.label_name(label)) for label in sorted(labels)]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
