"""One pass over all documents and ranks, from which every metric is computed."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as smat

from xmc_tf.common.compiled import kernel

_HITS, _RECALL, _NDCG, _GAIN, _BEST_GAIN, _PSNDCG, _BEST_PSNDCG, _PREDICTED = range(8)


@dataclass(frozen=True)
class MeasureSums:
    """Sums over the documents for one bucket of labels; each array has one number per cut-off k = 1, 2, …."""

    documents: int  # with at least one true label of the bucket
    hits: np.ndarray  # true labels among the top k
    predicted: np.ndarray  # labels of the bucket among the top k
    recall: np.ndarray  # sum of found / true labels
    ndcg: np.ndarray  # sum of discounted hits / their maximum
    gain: np.ndarray  # sum of the gains of the labels found
    best_gain: np.ndarray  # the maximum of gain
    gain_ndcg: np.ndarray  # sum of discounted gains / the maximum for 0/1 gains
    best_gain_ndcg: np.ndarray  # the maximum of gain_ndcg


def sum_over_documents(
    truth: smat.csr_matrix,
    top: np.ndarray,
    hits: np.ndarray,
    group: np.ndarray,
    groups: int,
    gains: np.ndarray | None,
) -> list[MeasureSums]:
    """Return the sums for each bucket (``group``) of labels and, last, for all labels. Default gains are 1."""
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
        MeasureSums(
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


@kernel
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
        # Best gains first: in this order, an ideal system has the r-th label of a bucket at rank r.
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
