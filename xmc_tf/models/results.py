"""Predict many documents, in pieces or over ranks, and process the resulting scores."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, diags, vstack

from xmc_tf.data import Features, TextFile, Texts
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.params.pools import FUSED_LABELS
from xmc_tf.rankers.ensemble import after_first, append_new, first_k
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

Names = Sequence[str] | Mapping[int, str] | None


class Scored(NamedTuple):
    """The rankers' best labels of some documents, and what a fusion needs to know about the documents."""

    labels: csr_matrix  # documents × labels, each row sorted by score
    vectors: np.ndarray | None = None  # embeddings of unit norm; None: no encoder
    information: np.ndarray | None = None  # float64: how much of each text is known; None: unknown


def named(predicted: csr_matrix, names: Names) -> Iterator[list[tuple[str, float]]]:
    """Yield the label names and scores of each document; a label without a name is given as its number."""
    for a, b in zip(predicted.indptr[:-1], predicted.indptr[1:], strict=True):
        labels, scores = predicted.indices[a:b], predicted.data[a:b]
        yield [
            (names[label] if names else str(label), float(score)) for label, score in zip(labels, scores, strict=True)
        ]


def drop_below(predicted: csr_matrix, threshold: float) -> csr_matrix:
    """Return a prediction without labels that score below a threshold."""
    return _only(predicted, predicted.data >= threshold)


def _only(predicted: csr_matrix, keep: np.ndarray) -> csr_matrix:
    """Return some entries of a prediction, in their order."""
    counts = np.add.reduceat(np.append(keep, False), predicted.indptr[:-1]) if predicted.shape[0] else np.zeros(0)
    counts = np.where(np.diff(predicted.indptr) > 0, counts, 0)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(predicted.indptr.dtype)
    return csr_matrix((predicted.data[keep], predicted.indices[keep], indptr), shape=predicted.shape)


def over_all_labels(found: csr_matrix, nr_labels: int, allowed: np.ndarray | None) -> csr_matrix:
    """Widen the scores to all labels of the model; drop them if the rankers know none of the ``allowed`` labels."""
    if allowed is not None and allowed.min() >= found.shape[1]:
        found = csr_matrix(found.shape, dtype=found.dtype)
    if found.shape[1] == nr_labels:
        return found
    out = csr_matrix((found.shape[0], nr_labels), dtype=found.dtype)
    out.data, out.indices, out.indptr = found.data, found.indices, found.indptr
    return out


def of_labels(values: csr_matrix, labels: np.ndarray) -> csr_matrix:
    """Return a copy of the matrix in which only the columns of the given labels have entries."""
    out = csr_matrix(values @ diags(np.isin(np.arange(values.shape[1]), labels).astype(np.float32)))
    out.eliminate_zeros()
    return out


def labels_of_rankers(chosen: np.ndarray, nr_labels: int) -> np.ndarray:
    """Return the chosen labels (ascending) that the rankers know; [0] if there are none, since rankers need a label."""
    known = chosen[chosen < nr_labels]
    return known if len(known) else np.zeros(1, chosen.dtype)


def rows_of(documents: Any, rows: slice) -> Any:
    """Return a contiguous range of documents, which may be texts, features or a matrix; None for None."""
    if documents is None or (rows.start, rows.stop) == (0, count_of(documents)):
        return documents
    if isinstance(documents, TextFile):
        return documents.lines(rows.start, rows.stop)
    return documents.rows(rows) if isinstance(documents, Features) else documents[rows]


def count_of(documents: Any) -> int:
    if isinstance(documents, Features):
        return documents.nr_rows
    return int(documents.shape[0]) if isinstance(documents, csr_matrix) else len(documents)


def pieces(documents: Any, X: Any, size: int) -> Iterator[tuple[Any, Any]]:
    """Yield ``size`` documents at a time, so that memory use is bounded, with their rows of ``X``."""
    count = count_of(documents)
    for first in range(0, count, size):
        piece = slice(first, min(first + size, count))
        yield rows_of(documents, piece), rows_of(X, piece)


def stacked(parts: Sequence[csr_matrix], nr_labels: int) -> csr_matrix:
    """Return the predictions of all pieces as one matrix."""
    if not parts:
        return csr_matrix((0, nr_labels), dtype=np.float32)
    return parts[0] if len(parts) == 1 else vstack(parts, format="csr")


def fused(
    evidence: ProbabilityModel, scored: Scored, texts: Texts | None, only_topk: int, threshold: float | None,
    threads: int,
) -> csr_matrix:  # fmt: skip
    """Return the probabilities of the best labels: a matrix of documents × labels, each row sorted by probability.

    The fusion combines the first ``FUSED_LABELS`` of ``scores``, whatever ``only_topk`` is; further labels follow in
    the rankers' order, with smaller probabilities. With a threshold, a text without any known word has no labels,
    unless an encoder reads it or it mentions their names.
    """
    scores, vectors, information = scored
    if threshold is not None and information is not None and vectors is None and evidence.fusion.typical > 0:
        scores = _only(scores, np.repeat(information > 0, np.diff(scores.indptr)))
    further = after_first(scores, FUSED_LABELS) if only_topk > FUSED_LABELS else None
    scores, mentions = first_k(scores, FUSED_LABELS), evidence.mentions(texts, threads)
    if evidence.allowed is not None:
        scores = of_labels(scores, evidence.allowed)
        mentions = None if mentions is None else mentions.only(np.isin(mentions.labels, evidence.allowed))
    lowest = threshold or 0.0 if further is None else 0.0
    found = evidence.fusion.combine(scores, mentions, only_topk, lowest, vectors, evidence.allowed, information)
    if further is None:
        return found
    further = over_all_labels(further, evidence.nr_labels, evidence.allowed)
    found = first_k(append_new(found, further, shares=True), only_topk)
    return found if threshold is None else drop_below(found, threshold)


def share_of(count: int, communicator: Communicator) -> slice:
    """Return the contiguous range of documents that this rank processes."""
    cuts = np.linspace(0, count, communicator.size + 1).astype(int)
    return slice(int(cuts[communicator.rank]), int(cuts[communicator.rank + 1]))


def predict_over_ranks(
    predict: Callable[[slice], csr_matrix], count: int, communicator: Communicator
) -> csr_matrix | None:
    """Predict each rank's range of the documents, and gather all predictions on rank 0; other ranks return None.

    All ranks must call this function.
    """
    own = run_on_all_ranks(communicator, lambda: predict(share_of(count, communicator)))
    parts = communicator.gather(own)
    return (vstack(parts, format="csr") if len(parts) > 1 else parts[0]) if parts else None
