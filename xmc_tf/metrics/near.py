"""Near misses: predicted labels that are not true, but broader or narrower terms of true labels, or their siblings."""

from typing import NamedTuple

import numpy as np
import scipy.sparse as smat

from xmc_tf.metrics.ranking import NO_LABEL

_DOCUMENTS = 4096  # at a time, to bound memory


class NearMisses(NamedTuple):
    """Predicted labels that are true or near a true label: bool [documents, ranks].

    Attributes:
        near: true, or directly broader or narrower than a true label of the document.
        sibling: the same, or with a direct broader term in common with a true label.
    """

    near: np.ndarray
    sibling: np.ndarray


def mark_near(truth: smat.csr_matrix, top: np.ndarray, hits: np.ndarray, broader: smat.csr_matrix) -> NearMisses:
    """Mark the predicted labels that are true or near a true label of their document.

    Args:
        truth: the result of ``as_truth``.
        top: the result of ``top_labels``.
        hits: the result of ``mark_hits``.
        broader: labels × terms, with an entry for each direct broader term of a label; the first terms are the labels.
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
