"""Predictions for a level by its label head: each rank scores its own documents against the rows of all ranks.

A document's candidates are the children of its parents. A rank scores all its documents that have the same parent
against the parent's children by one small matrix product. The ranks broadcast the head's rows in blocks, each block
once, so that no rank ever holds the whole head.
"""

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.array_views import kernel_view
from xmc_tf.common.compiled import kernel
from xmc_tf.data.windows import max_over_windows
from xmc_tf.matcher.heads import LevelHead
from xmc_tf.rankers.kernels.postprocess import chain, neutral, post_processor_code, squash
from xmc_tf.ranks.partition import equal_rounds

ROWS_AT_ONCE = 16384  # rows of the head per block
SCORES_AT_ONCE = 1 << 25  # scores of candidates in memory: 128 MiB


def predict_level(
    head: LevelHead, vectors: np.ndarray, parents: csr_matrix | None, splits: np.ndarray, *, only_topk: int,
    post_processor: str = "noop", kept: np.ndarray | None = None, windows: np.ndarray | None = None,
) -> csr_matrix:  # fmt: skip
    """Return the best nodes of a level for each document, with scores combined along the path. All ranks must call it.
    The result is a float32 matrix of documents × nodes: columns in tree order, each row sorted by score. ``vectors``
    are the embeddings of this rank's documents. With ``windows`` (the first window of each document, then the number of
    windows), they are those of windows, and a node's score is the maximum over a document's windows, made comparable by
    `_equalize_windows`. Only nodes in the mask ``kept`` are predicted.
    """
    code = post_processor_code(post_processor)
    splits = np.asarray(splits, np.int64)
    if parents is None:  # the root, with a score that does not change the children's
        count = len(vectors)
        root = np.full(count, neutral(code), np.float32), np.zeros(count, np.int32), np.arange(count + 1)
        parents = csr_matrix(root, shape=(count, 1))
    elif windows is not None:
        parents = csr_matrix(parents)[np.repeat(np.arange(len(windows) - 1), np.diff(windows))]
    parents = csr_matrix(parents)
    parents.sort_indices()
    starts, indices = parents.indptr.astype(np.int64), kernel_view(parents.indices, np.int32)
    begins = counted = _count_children(starts, indices, splits)
    if kept is None:
        kept = np.ones(head.nr_nodes, bool)
    else:
        counted = _count_children(starts, indices, np.concatenate([[0], np.cumsum(kept)])[splits])
    counts = np.minimum(np.diff(counted), only_topk)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    nodes, scores = np.empty(indptr[-1], np.int64), np.empty(indptr[-1], np.float32)
    of_documents = begins if windows is None else begins[windows]
    for low, high in equal_rounds(of_documents, SCORES_AT_ONCE, head.communicator):
        own = np.arange(low, high + 1) if windows is None else windows[low : high + 1]
        low, high = int(own[0]), int(own[-1])
        part = parents[low:high]
        raw = _score_children(head, vectors[low:high], part, splits)
        _equalize_windows(raw, begins[low : high + 1] - begins[low], own - low)
        _best_children(
            part.indptr.astype(np.int64), kernel_view(part.indices, np.int32), part.data.astype(np.float64), splits,
            kept, begins[low : high + 1] - begins[low], raw, code, only_topk, indptr[low : high + 1], nodes, scores,
        )  # fmt: skip
    found = csr_matrix((scores, nodes, indptr), shape=(len(vectors), head.nr_nodes))
    return found if windows is None else max_over_windows(found, windows, only_topk)


def _score_children(head: LevelHead, vectors: np.ndarray, parents: csr_matrix, splits: np.ndarray) -> np.ndarray:
    """Return a flat array of raw scores: for each document, its parents' children. All ranks must call it."""
    inputs = head.scaling.apply(vectors)
    sizes = np.diff(splits)[parents.indices]
    where = np.concatenate([[0], np.cumsum(sizes)])[:-1]  # of the first child of each (document, parent)
    document = np.repeat(np.arange(parents.shape[0]), np.diff(parents.indptr))
    by_parent = np.argsort(parents.indices, kind="stable")
    first = np.searchsorted(parents.indices[by_parent], np.arange(len(splits)))
    raw = np.empty(int(sizes.sum()), np.float32)
    for low, rows in _head_blocks(head, splits):
        begin, end = np.searchsorted(splits, [low, low + len(rows)])
        for parent in range(begin, end):
            pairs = by_parent[first[parent] : first[parent + 1]]
            if not len(pairs) or splits[parent] == splits[parent + 1]:
                continue
            children = rows[splits[parent] - low : splits[parent + 1] - low]
            scores = inputs[document[pairs]] @ children[:, :-1].T + children[:, -1]
            raw[where[pairs][:, None] + np.arange(len(children))] = scores
    return raw


def _equalize_windows(raw: np.ndarray, begins: np.ndarray, windows: np.ndarray) -> None:
    """Shift raw scores so that all windows of a document have the same log-sum-exp, the mean of their original values.
    A node's maximum over the windows then comes from the window that most prefers this node to the others, as in a
    softmax. Otherwise, a window without a topic could give many nodes higher scores than another window gives its
    topic. The scores of a document with one window stay the same.
    """
    counts, sizes = np.diff(windows), np.diff(begins)
    if not len(raw) or counts.max() == 1:
        return
    some = sizes > 0
    largest = np.maximum.reduceat(raw, begins[:-1][some])
    sums = np.add.reduceat(np.exp(raw - np.repeat(largest, sizes[some])), begins[:-1][some])
    totals = np.zeros(len(sizes), np.float32)
    totals[some] = largest + np.log(sums)
    means = np.add.reduceat(totals, windows[:-1]) / counts.astype(np.float32)
    raw += np.repeat(np.repeat(means, counts) - totals, sizes)


def _head_blocks(head: LevelHead, splits: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the head in blocks of whole clusters: the first row's number, and the rows. All ranks must call it."""
    first = 0
    while first < len(splits) - 1:
        low = int(splits[first])
        last = max(first + 1, int(np.searchsorted(splits, low + ROWS_AT_ONCE, side="right")) - 1)
        first, high = last, int(splits[last])
        if low < high:
            yield low, head.rows_between(low, high)


@kernel
def _count_children(starts: np.ndarray, parents: np.ndarray, splits: np.ndarray) -> np.ndarray:
    """Return the position of each document's first candidate (child of its parents), then the number of candidates."""
    begins = np.zeros(len(starts), np.int64)
    for i in range(len(starts) - 1):
        total = 0
        for p in range(starts[i], starts[i + 1]):
            total += splits[parents[p] + 1] - splits[parents[p]]
        begins[i + 1] = begins[i] + total
    return begins


@kernel
def _best_children(
    starts: np.ndarray, parents: np.ndarray, parent_scores: np.ndarray, splits: np.ndarray, kept: np.ndarray,
    begins: np.ndarray, raw: np.ndarray, code: int, most: int, indptr: np.ndarray, nodes: np.ndarray,
    scores: np.ndarray,
) -> None:  # fmt: skip
    """Write each document's best nodes and their scores along the path; the best come first, ties in tree order."""
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
