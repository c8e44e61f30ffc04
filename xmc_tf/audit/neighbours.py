"""Find the most similar documents, by the cosine of their sparse features and of their labels."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.sparse import csr_matrix, diags

from xmc_tf.audit.kernels import SHARPNESS, compare_documents
from xmc_tf.audit.pairs import LabelPairs
from xmc_tf.common.progress import Progress
from xmc_tf.common.threads import thread_count

_BLOCK = 256  # documents at a time
_COMMON = 0.05  # features and labels of more than this share of the documents say little, but cost most time
_COMMON_LEAST = 200
ALIKE = (
    "most alike", "second most alike", "labels alike", "words alike", "ahead of the others",
    *(f"share of alike, {sharpness:g}" for sharpness in SHARPNESS),
)  # fmt: skip
"""What the documents that have a label say about another document: the similarity (by words plus other labels) of the
two most similar ones; the largest similarity by labels alone, and by words alone; the lead of the most similar one over
the best document without the label; and their shares of all similar documents, weighted by similarity."""


def unit_rows(X: csr_matrix) -> csr_matrix:
    """Scale all rows to length 1."""
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1), np.float64)).ravel()
    return csr_matrix(diags(1.0 / np.maximum(norms, 1e-12)) @ X).astype(np.float32)


def alike_documents(
    X: csr_matrix, Y: csr_matrix, pairs: LabelPairs, has: np.ndarray, most: int, threads: int = -1
) -> tuple[csr_matrix, np.ndarray]:
    """Return the documents with the most similar words, and the evidence from documents with similar words and labels.

    The first result is a matrix of documents × documents, the most similar first. The second is float32
    ``[pairs, ALIKE]``. The rows of ``X`` must have length 1. ``has`` marks the pairs whose document has the label. This
    does not affect their evidence.
    """
    count = X.shape[0]
    words = _without_common(csr_matrix(X.T), count)
    documents = np.bincount(Y.indices, minlength=Y.shape[1])
    weight = np.log(count / np.maximum(documents, 1))
    weight[documents > _most_common(count)] = 0.0
    own = csr_matrix(Y @ diags(weight))
    labels = _without_common(csr_matrix(own.T), count)
    sizes = np.asarray(own.multiply(own).sum(axis=1), np.float64).ravel()
    begins = np.searchsorted(pairs.rows, np.arange(count + 1))
    of_pairs = (begins, pairs.labels.astype(np.int64), has, weight[pairs.labels] ** 2)
    near = (np.empty((count, most), np.int64), np.empty((count, most)), np.zeros(count, np.int64))
    evidence = np.zeros((len(has), len(ALIKE)), np.float32)
    inputs = [
        (one.indptr.astype(np.int64), one.indices.astype(np.int32), one.data.astype(np.float32))
        for one in (X, words, own, labels)
    ]

    def compare(first: int) -> int:
        last = min(first + _BLOCK, count)
        compare_documents(first, last, *inputs, sizes, of_pairs, near, evidence)
        return last - first

    title = "comparing documents"
    with Progress(title, count, "documents") as progress, ThreadPoolExecutor(thread_count(threads)) as pool:
        for done in pool.map(compare, range(0, count, _BLOCK)):
            progress.add(done)
    ids, values, counts = near
    kept = np.arange(most) < counts[:, None]
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return csr_matrix((values[kept].astype(np.float32), ids[kept], indptr), shape=(count, count)), evidence


def _most_common(count: int) -> float:
    return max(_COMMON * count, _COMMON_LEAST)


def _without_common(turned: csr_matrix, count: int) -> csr_matrix:
    """Return a matrix of features (or labels) × documents in which the rows of common features are empty."""
    sizes = np.diff(turned.indptr)
    rare = sizes <= _most_common(count)
    kept, indptr = np.repeat(rare, sizes), np.concatenate([[0], np.cumsum(np.where(rare, sizes, 0))])
    return csr_matrix((turned.data[kept], turned.indices[kept], indptr), shape=turned.shape)
