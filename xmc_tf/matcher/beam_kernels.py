"""Compiled: where candidates' scores lie, what becomes of them along the path, and which of a document's are best."""

import numpy as np

from xmc_tf.common.compiled import njit
from xmc_tf.linear.kernels.postprocess import chain, squash


@njit(cache=True, nogil=True)
def count_children(starts: np.ndarray, parents: np.ndarray, splits: np.ndarray) -> np.ndarray:
    """Where each document's candidates begin: the children of its parents, one parent's after the other's."""
    begins = np.zeros(len(starts), np.int64)
    for i in range(len(starts) - 1):
        total = 0
        for p in range(starts[i], starts[i + 1]):
            total += splits[parents[p] + 1] - splits[parents[p]]
        begins[i + 1] = begins[i] + total
    return begins


@njit(cache=True, nogil=True)
def best_children(
    starts: np.ndarray,
    parents: np.ndarray,
    parent_scores: np.ndarray,
    splits: np.ndarray,
    kept: np.ndarray,
    begins: np.ndarray,
    raw: np.ndarray,
    code: int,
    most: int,
    indptr: np.ndarray,
    nodes: np.ndarray,
    scores: np.ndarray,
) -> None:
    """Squashes raw scores, chains them with the parents', and keeps each document's best, best first.

    Args:
        starts, parents, parent_scores: the parents of each document with their scores, as CSR.
        splits: the children of each parent.
        kept: of each child, whether it may be among the best.
        begins: what ``count_children`` gave.
        raw: one score a candidate.
        code: of the post-processor.
        most: how many a document keeps.
        indptr: int64, where each document's answers begin.
        nodes, scores: to write the answers to; equal scores in the order of the tree.
    """
    best = np.empty(most, np.float64)
    who = np.empty(most, np.int64)
    for i in range(len(starts) - 1):
        held = 0
        at = begins[i]
        for p in range(starts[i], starts[i + 1]):
            for node in range(splits[parents[p]], splits[parents[p] + 1]):
                at += 1
                if not kept[node]:
                    continue
                score = chain(code, squash(code, raw[at - 1]), parent_scores[p])
                if held == most and score <= best[held - 1]:
                    continue
                place = held if held < most else most - 1
                while place > 0 and best[place - 1] < score:
                    best[place], who[place] = best[place - 1], who[place - 1]
                    place -= 1
                best[place], who[place] = score, node
                held = min(held + 1, most)
        for k in range(held):
            nodes[indptr[i] + k] = who[k]
            scores[indptr[i] + k] = best[k]
