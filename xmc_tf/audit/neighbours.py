"""The documents that are most alike: by the cosine of their sparse features, and by that of their labels."""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, diags

from xmc_tf.audit.kernels import SHARPNESS, compare_documents
from xmc_tf.audit.pairs import LabelPairs
from xmc_tf.common.progress import Progress
from xmc_tf.common.threads import thread_count

_BLOCK = 256  # documents at a time
_COMMON = 0.05  # features and labels of more than this share of the documents say little, and cost most
_COMMON_LEAST = 200
ALIKE = (
    "most alike", "second most alike", "labels alike", "words alike", "ahead of the others",
    *(f"share of alike, {sharpness:g}" for sharpness in SHARPNESS),
)  # fmt: skip
"""What documents with a label say about another document: how alike the most alike and the second of them are, by words
and by their other labels; how alike they are by each alone; how much more alike the most alike of them is than that of
the documents without the label; their share of all documents, weighted by how alike these are."""


class Alike(NamedTuple):
    """The documents that are most alike, and what they say.

    Attributes:
        near: the similarities of the words of the most similar documents, which come first in a row: documents ×
            documents.
        evidence: float32 [pairs, ``ALIKE``].
    """

    near: csr_matrix
    evidence: np.ndarray


def unit_rows(X: csr_matrix) -> csr_matrix:
    """Return rows of length 1."""
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1), np.float64)).ravel()
    return csr_matrix(diags(1.0 / np.maximum(norms, 1e-12)) @ X).astype(np.float32)


def alike_documents(
    X: csr_matrix, Y: csr_matrix, pairs: LabelPairs, has: np.ndarray, most: int, threads: int = -1
) -> Alike:
    """Return the most similar documents of each, and what those say that are alike in words and labels.

    Args:
        X: features of the documents, rows of length 1.
        Y: their labels, with ones.
        pairs: pairs of documents and labels.
        has: whether the document has the label of each pair, which does not count.
        most: number of similar documents of each.
        threads: number of threads; -1: one per core.
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
    inputs = [_parts(one) for one in (X, words, own, labels)]

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
    return Alike(csr_matrix((values[kept].astype(np.float32), ids[kept], indptr), shape=(count, count)), evidence)


def _most_common(count: int) -> float:
    return max(_COMMON * count, _COMMON_LEAST)


def _without_common(turned: csr_matrix, count: int) -> csr_matrix:
    """Return features × documents without the entries of common features."""
    sizes = np.diff(turned.indptr)
    kept = np.repeat(sizes <= _most_common(count), sizes)
    indptr = np.concatenate([[0], np.cumsum(np.where(sizes <= _most_common(count), sizes, 0))])
    return csr_matrix((turned.data[kept], turned.indices[kept], indptr), shape=turned.shape)


def _parts(matrix: csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data.astype(np.float32)
