"""The one pass over all documents and ranks that every measure is made from."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as smat

from xmc_tf.common.compiled import njit

_HITS, _RECALL, _NDCG, _GAIN, _BEST_GAIN, _PSNDCG, _BEST_PSNDCG, _PREDICTED = range(8)


@dataclass(frozen=True)
class Sums:
    """Sums over the documents for one group of labels; every array holds one number a cut-off, k = 1, 2, ….

    Args:
        documents: documents with at least one true label of the group.
        hits: true labels among the top k.
        predicted: labels of the group among the top k.
        recall: found / true of a document.
        ndcg: discounted hits / the best they could be.
        gain: gains of the labels found.
        best_gain: the most they could be.
        gain_ndcg: discounted gains / what 0/1 gains could be at best.
        best_gain_ndcg: the most they could be.
    """

    documents: int
    hits: np.ndarray
    predicted: np.ndarray
    recall: np.ndarray
    ndcg: np.ndarray
    gain: np.ndarray
    best_gain: np.ndarray
    gain_ndcg: np.ndarray
    best_gain_ndcg: np.ndarray


def sum_over_documents(
    truth: smat.csr_matrix,
    top: np.ndarray,
    hits: np.ndarray,
    group: np.ndarray,
    groups: int,
    gains: np.ndarray | None,
) -> list[Sums]:
    """Sum for each group of labels and, last, for all labels together.

    Args:
        truth: what ``as_truth`` gave.
        top: what ``top_labels`` gave.
        hits: what ``mark_hits`` gave.
        group: the group of each label.
        groups: how many groups there are.
        gains: what finding each label is worth; 1 without.
    """
    sums = np.zeros((groups + 1, 8, top.shape[1]))
    documents = np.zeros(groups + 1, np.int64)
    _accumulate(
        np.require(truth.indptr, np.int64, ["C", "W"]),
        np.require(truth.indices, np.int32, ["C", "W"]),
        top,
        hits,
        np.require(group, np.int32, ["C", "W"]),
        np.ones(truth.shape[1]) if gains is None else np.require(gains, np.float64, ["C", "W"]),
        1.0 / np.log2(np.arange(2, top.shape[1] + 2)),
        sums,
        documents,
    )
    return [
        Sums(
            documents=int(count),
            hits=s[_HITS],
            predicted=s[_PREDICTED],
            recall=s[_RECALL],
            ndcg=s[_NDCG],
            gain=s[_GAIN],
            best_gain=s[_BEST_GAIN],
            gain_ndcg=s[_PSNDCG],
            best_gain_ndcg=s[_BEST_PSNDCG],
        )
        for s, count in zip(sums, documents, strict=True)
    ]


@njit(cache=True, nogil=True)
def _accumulate(
    indptr: np.ndarray,
    indices: np.ndarray,
    top: np.ndarray,
    hits: np.ndarray,
    group: np.ndarray,
    gains: np.ndarray,
    discount: np.ndarray,
    sums: np.ndarray,
    documents: np.ndarray,
) -> None:
    everything, ranks = sums.shape[0] - 1, top.shape[1]
    true = np.zeros(everything + 1, np.int64)
    best = np.zeros((everything + 1, ranks), np.float64)
    for row in range(top.shape[0]):
        true[:] = 0
        begin, end = indptr[row], indptr[row + 1]
        # Best gains first: the r-th label of a group in this order is what an ideal system has at rank r.
        for position in np.argsort(-gains[indices[begin:end]]):
            label = indices[begin + position]
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
