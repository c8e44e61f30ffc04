"""Compiled beam search: combined scores of the candidates, and the best of each document."""

import numpy as np

from xmc_tf.common.compiled import kernel
from xmc_tf.rankers.kernels.postprocess import chain, squash


@kernel
def count_children(starts: np.ndarray, parents: np.ndarray, splits: np.ndarray) -> np.ndarray:
    """Return the position of each document's first candidate; its candidates are the children of its parents."""
    begins = np.zeros(len(starts), np.int64)
    for i in range(len(starts) - 1):
        total = 0
        for p in range(starts[i], starts[i + 1]):
            total += splits[parents[p] + 1] - splits[parents[p]]
        begins[i + 1] = begins[i] + total
    return begins


@kernel
def best_children(
    starts: np.ndarray,
    parents: np.ndarray,
    parent_scores: np.ndarray,
    splits: np.ndarray,
    kept: np.ndarray,  # mask of the children that may be returned
    begins: np.ndarray,  # result of ``count_children``
    raw: np.ndarray,  # score of each candidate
    code: int,  # of the post-processor
    most: int,  # nodes per document
    indptr: np.ndarray,  # int64, position of each document's first result
    nodes: np.ndarray,  # result, as is ``scores``
    scores: np.ndarray,
) -> None:
    """Apply the post-processor, combine scores with the parents', and write each document's best nodes, best first.

    Equal scores are in the order of the tree.
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
