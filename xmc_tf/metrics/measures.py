"""P, R, nDCG, PSP, PSnDCG and F1 at k, over all labels and over each bucket of label frequency.

With a label hierarchy, P-near also counts direct broader and narrower terms of true labels as hits, and P-sibling
also counts siblings of true labels.

For a bucket, only the bucket's labels count as true, while the system's top k stays the same. P divides the hits among
the bucket's labels by all documents, so the values of the buckets add up to the total. R, nDCG, PSP and PSnDCG are
means over the documents that have a label of the bucket. F1, P-near and P-sibling count only the bucket's labels.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as smat

from xmc_tf.common.compiled import kernel
from xmc_tf.common.errors import InputError
from xmc_tf.metrics.ranking import NO_LABEL, as_truth, count_labels, mark_hits, top_labels
from xmc_tf.metrics.table import format_table, percent

_DOCUMENTS = 4096  # at a time, to bound memory
# Sums over documents, for each cut-off: found labels, their share of the true ones, discounted hits / their maximum,
# gains of found labels, their maximum, discounted gains / the maximum for gains of 0 and 1, the maximum of these, and
# predicted labels.
_HITS, _RECALL, _NDCG, _GAIN, _BEST_GAIN, _PSNDCG, _BEST_PSNDCG, _PREDICTED = range(8)


class NearMisses(NamedTuple):
    """Marks of the predicted labels that are true or near a true label: bool [documents, ranks]."""

    near: np.ndarray  # true, or directly broader or narrower than a true label
    sibling: np.ndarray  # the same, or with a direct broader term in common with a true label


def mark_near(truth: smat.csr_matrix, top: np.ndarray, hits: np.ndarray, broader: smat.csr_matrix) -> NearMisses:
    """Mark the predicted labels that are true or near a true label.

    ``broader`` is a matrix of labels × broader terms, whose first columns are the labels.
    """
    broader = smat.csr_matrix(broader, dtype=np.float32)
    of_labels = smat.csr_matrix(broader[:, : broader.shape[0]])
    near, sibling = hits.astype(bool), hits.astype(bool)
    for begin in range(0, top.shape[0], _DOCUMENTS):
        block = slice(begin, begin + _DOCUMENTS)
        true, labels = truth[block], top[block]
        rows, ranks = np.nonzero(labels != NO_LABEL)
        predicted = labels[rows, ranks]
        terms = smat.csr_matrix(true @ broader)  # documents × terms: how many true labels have the broader term
        above_or_below = smat.csr_matrix(terms[:, : broader.shape[0]] + true @ of_labels.T)
        near[block][rows, ranks] |= np.asarray(above_or_below[rows, predicted]).ravel() > 0
        shared = broader[predicted].multiply(terms[rows]).sum(axis=1)
        sibling[block][rows, ranks] |= np.asarray(shared).ravel() > 0
    return NearMisses(near, near | sibling)


@dataclass(frozen=True)
class FrequencyBuckets:
    """Buckets of labels by frequency; the first bucket holds the labels that do not occur."""

    names: tuple[str, ...]  # "0", "1 to 10", "11 to 50", "over 50"
    of_label: np.ndarray  # the bucket of each label

    @classmethod
    def by_frequency(cls, frequency: np.ndarray, bounds: Sequence[int]) -> "FrequencyBuckets":
        """Put each label into the first bucket whose upper bound is at least its frequency (bounds are ascending)."""
        if not bounds or min(bounds) < 1 or any(b <= a for a, b in itertools.pairwise(bounds)):
            raise InputError(
                "the bounds of the buckets are invalid",
                expected="ascending whole numbers from 1, as in 10,50",
                received=",".join(map(str, bounds)) or "nothing",
            )
        edges = [0, *bounds]
        names = ["0"]
        names += [f"{a + 1} to {b}" if b > a + 1 else f"{b}" for a, b in itertools.pairwise(edges)]
        names.append(f"over {bounds[-1]}")
        return cls(tuple(names), np.searchsorted(np.array(edges), frequency, side="left").astype(np.int32))


MEASURES = ("P", "R", "nDCG", "PSP", "PSnDCG", "micro-F1", "macro-F1", "P-near", "P-sibling")


@dataclass(frozen=True)
class Measures:
    """All metrics of one prediction over one set of labels."""

    bucket: str  # "" for all labels
    documents: int  # with at least one of the labels
    labels: int  # that are true for at least one document
    ks: tuple[int, ...]
    values: dict[str, np.ndarray]  # metric → one number (0 to 1) per k; NaN if undefined

    def at(self, measure: str, k: int) -> float:
        return float(self.values[measure][self.ks.index(k)])

    def __str__(self) -> str:
        """Format all metrics as a table, in percent."""
        rows = [[name, *map(percent, values)] for name, values in self.values.items()]
        return format_table(["", *(f"@{k}" for k in self.ks)], rows)

    def _repr_html_(self) -> str:
        """Format all metrics as an HTML table for notebooks, in percent."""
        rows = [["%", *(f"@{k}" for k in self.ks)]]
        rows += [[name, *map(percent, values)] for name, values in self.values.items()]
        cells = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def measure(
    truth: smat.spmatrix | np.ndarray, prediction: smat.spmatrix | np.ndarray, ks: Sequence[int] = (1, 3, 5), *,
    buckets: FrequencyBuckets | None = None, gains: np.ndarray | None = None, broader: smat.csr_matrix | None = None,
    name: str = "the prediction",
) -> list[Measures]:  # fmt: skip
    """Return the metrics of a prediction: first those over all labels, then those over each bucket.

    A document without true labels counts as 0 in P, R and nDCG. Macro F1 is the mean over the labels that are true for
    at least one document, so its denominator is the same for every system. PSP and PSnDCG need ``gains`` (inverse
    propensities); P-near and P-sibling need ``broader``.
    """
    ks = check_ks(ks)
    check_shapes(truth, prediction, name)
    true = as_truth(truth)
    top = top_labels(prediction, ks[-1], name)
    hits = mark_hits(true, top)
    names = buckets.names if buckets else ()
    group = buckets.of_label if buckets else np.zeros(true.shape[1], np.int32)
    sums, documents_of = _sum_over_documents(true, top, hits, group, max(len(names), 1), gains)
    counts = [count_labels(true, top[:, :k], hits[:, :k]) for k in ks]
    near_misses = None if broader is None else mark_near(true, top, hits, broader)
    occurs = counts[0].true > 0
    label_f1 = np.stack([count.f1 for count in counts])

    def of(bucket: str, sums: np.ndarray, members: np.ndarray, documents: int) -> Measures:
        """Return a bucket's metrics. ``members`` marks its labels; ``documents`` counts the documents with one."""
        labels = occurs & members
        values = _values(sums, documents, true.shape[0], int(counts[0].true[labels].sum()), ks)
        values["macro-F1"] = label_f1[:, labels].mean(axis=1) if labels.any() else np.full(len(ks), np.nan)
        if gains is None:
            del values["PSP"], values["PSnDCG"]
        if near_misses is not None:
            counted = members[np.maximum(top, 0)]
            values["P-near"] = _precision(near_misses.near & counted, ks)
            values["P-sibling"] = _precision(near_misses.sibling & counted, ks)
        return Measures(bucket, documents, int(labels.sum()), ks, values)

    overall = of("", sums[-1], np.ones(true.shape[1], bool), true.shape[0])
    return [overall] + [
        of(bucket, sums[number], group == number, int(documents_of[number])) for number, bucket in enumerate(names)
    ]


def _precision(marked: np.ndarray, ks: Sequence[int]) -> np.ndarray:
    """Return, for each k, the share of marked labels among the first k labels of all documents."""
    return np.array([marked[:, :k].sum() / (len(marked) * k) for k in ks])


def check_ks(ks: Sequence[int]) -> tuple[int, ...]:
    """Check the cut-offs and return them in ascending order without duplicates."""
    ks = tuple(sorted({int(k) for k in ks}))
    if not ks or ks[0] < 1:
        raise InputError(
            "the cut-offs k are invalid",
            expected="whole numbers from 1",
            received=", ".join(map(str, ks)) or "none",
        )
    return ks


def check_shapes(truth: smat.spmatrix | np.ndarray, prediction: smat.spmatrix | np.ndarray, name: str) -> None:
    """Raise an error if prediction and truth differ in the number of documents or labels."""
    if truth.shape != prediction.shape:
        raise InputError(
            f"{name} does not fit the truth",
            expected=_shape_text(truth) + ", as in the truth",
            received=_shape_text(prediction),
            fix="check that both belong to the same test set and the same list of labels",
        )
    if truth.shape[0] == 0:
        raise InputError("there are no documents to measure", expected="at least one", received=_shape_text(truth))


def _shape_text(matrix: smat.spmatrix | np.ndarray) -> str:
    if len(matrix.shape) != 2:
        return f"an array of {len(matrix.shape)} dimensions"
    return f"{matrix.shape[0]:,} documents × {matrix.shape[1]:,} labels"


def _values(
    sums: np.ndarray, documents: int, all_documents: int, true: int, ks: Sequence[int]
) -> dict[str, np.ndarray]:
    """Return all metrics of one bucket of labels except macro F1."""
    at = np.array(ks) - 1
    nothing = np.zeros(len(at))
    hits, recall, ndcg, gain, best_gain, gain_ndcg, best_gain_ndcg, predicted = sums[:, at]
    return {
        "P": _ratio(hits, all_documents * (at + 1.0) if documents else nothing),
        "R": _ratio(recall, nothing + documents), "nDCG": _ratio(ndcg, nothing + documents),
        "PSP": _ratio(gain, best_gain), "PSnDCG": _ratio(gain_ndcg, best_gain_ndcg),
        "micro-F1": _ratio(2 * hits, predicted + true if true else nothing),
    }  # fmt: skip


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)


def _sum_over_documents(
    truth: smat.csr_matrix, top: np.ndarray, hits: np.ndarray, group: np.ndarray, groups: int, gains: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of the metrics, float64 [buckets + 1, sums, cut-offs], and each bucket's number of documents.

    The last bucket stands for all labels.
    """
    sums, documents = np.zeros((groups + 1, 8, top.shape[1])), np.zeros(groups + 1, np.int64)
    indices = truth.indices
    if gains is not None:  # best gains first: in this order, an ideal system has the r-th label of a bucket at rank r
        rows = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
        indices = indices[np.lexsort((-np.asarray(gains)[indices], rows))]
    _accumulate(
        np.require(truth.indptr, np.int64, ["C", "W"]), np.require(indices, np.int32, ["C", "W"]), top, hits,
        np.require(group, np.int32, ["C", "W"]),
        np.ones(truth.shape[1]) if gains is None else np.require(gains, np.float64, ["C", "W"]),
        1.0 / np.log2(np.arange(2, top.shape[1] + 2)), sums, documents,
    )  # fmt: skip
    return sums, documents


@kernel
def _accumulate(
    indptr: np.ndarray, indices: np.ndarray, top: np.ndarray, hits: np.ndarray, group: np.ndarray, gains: np.ndarray,
    discount: np.ndarray, sums: np.ndarray, documents: np.ndarray,
) -> None:  # fmt: skip
    everything, ranks = sums.shape[0] - 1, top.shape[1]
    true = np.zeros(everything + 1, np.int64)
    best = np.zeros((everything + 1, ranks), np.float64)
    for row in range(top.shape[0]):
        for of in range(everything + 1):
            true[of] = 0
        for place in range(indptr[row], indptr[row + 1]):
            label = indices[place]
            for both in range(2):
                of = everything if both else group[label]
                if true[of] < ranks:
                    best[of, true[of]] = gains[label]
                true[of] += 1
        for of in range(everything + 1):
            documents[of] += true[of] > 0
            found, predicted = 0, 0
            dcg, ideal, gain, best_gain, gain_dcg, best_dcg = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for rank in range(ranks):
                label = top[row, rank]
                if label >= 0 and (of == everything or group[label] == of):
                    predicted += 1
                    if hits[row, rank]:
                        found += 1
                        dcg += discount[rank]
                        gain += gains[label]
                        gain_dcg += gains[label] * discount[rank]
                sums[of, _PREDICTED, rank] += predicted
                if true[of] == 0:
                    continue
                if rank < true[of]:
                    ideal += discount[rank]
                    best_gain += best[of, rank]
                    best_dcg += best[of, rank] * discount[rank]
                sums[of, _HITS, rank] += found
                sums[of, _RECALL, rank] += found / true[of]
                sums[of, _NDCG, rank] += dcg / ideal
                sums[of, _GAIN, rank] += gain
                sums[of, _BEST_GAIN, rank] += best_gain
                sums[of, _PSNDCG, rank] += gain_dcg / ideal
                sums[of, _BEST_PSNDCG, rank] += best_dcg / ideal
