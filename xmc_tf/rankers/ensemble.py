"""Rankers over several trees with the same labels. Each tree is searched, and the scores are averaged."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.threads import thread_count
from xmc_tf.data.features import Features
from xmc_tf.params.pools import LABELS_OF_TREE
from xmc_tf.rankers.kernels.union import best_by_mean, place_scores, unite
from xmc_tf.rankers.query_arrays import ranked_csr
from xmc_tf.rankers.xlinear import XLinear

GROWTH = 32  # a deeper search looks for this many times as many labels


def search_deeper(search: Callable[[int], csr_matrix], only_topk: int, first: int) -> csr_matrix:
    """Return the ``only_topk`` best labels of each document. ``search(n)`` finds n labels; the first search finds
    ``first``, and deeper searches only append labels. With a larger ``only_topk``, the list therefore begins with the
    same labels, although deeper searches may rank labels differently.
    """
    found = search(first)
    while first < only_topk:
        first *= GROWTH
        found = append_new(found, search(first))
    return first_k(found, only_topk)


def append_new(found: csr_matrix, more: csr_matrix, shares: bool = False) -> csr_matrix:
    """Append the labels that only ``more`` has. Their scores are capped at the last score (``shares``: times it)."""
    nr_labels, sizes = np.int64(found.shape[1]), np.diff(found.indptr)
    rows = np.repeat(np.arange(more.shape[0]), np.diff(more.indptr))
    owners = np.repeat(np.arange(found.shape[0]), sizes)
    new = ~np.isin(rows * nr_labels + more.indices, owners * nr_labels + found.indices)
    lowest = np.ones(found.shape[0], np.float32) if shares else np.full(found.shape[0], np.inf, np.float32)
    lowest[sizes > 0] = found.data[found.indptr[1:][sizes > 0] - 1]
    scores, rows = more.data[new], rows[new]
    scores = scores * lowest[rows] if shares else np.minimum(scores, lowest[rows])
    of = np.concatenate([owners, rows])
    order = np.argsort(of, kind="stable")
    out = csr_matrix(found.shape, dtype=np.float32)
    out.data = np.concatenate([found.data, scores.astype(np.float32)])[order]
    out.indices = np.concatenate([found.indices, more.indices[new]])[order].astype(found.indices.dtype)
    out.indptr = np.searchsorted(of[order], np.arange(found.shape[0] + 1)).astype(found.indptr.dtype)
    return out


def after_first(found: csr_matrix, count: int) -> csr_matrix:
    """Return each document's labels after the first ``count``, with scores divided by the ``count``-th score."""
    place = np.arange(found.nnz) - np.repeat(found.indptr[:-1], np.diff(found.indptr))
    rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    kept = place >= count
    last = np.minimum(found.indptr[:-1] + count - 1, max(found.nnz - 1, 0))[rows[kept]]
    out = csr_matrix(found.shape, dtype=np.float32)
    scores = found.data[last]
    out.data = np.divide(found.data[kept], scores, out=np.zeros(int(kept.sum()), np.float32), where=scores > 0)
    out.indices = found.indices[kept]
    out.indptr = np.searchsorted(rows[kept], np.arange(found.shape[0] + 1)).astype(found.indptr.dtype)
    return out


def first_k(found: csr_matrix, count: int) -> csr_matrix:
    """Return the first ``count`` labels of each document."""
    place = np.arange(found.nnz) - np.repeat(found.indptr[:-1], np.diff(found.indptr))
    kept = place < count
    indptr = np.concatenate([[0], np.cumsum(np.minimum(np.diff(found.indptr), count))]).astype(found.indptr.dtype)
    out = csr_matrix(found.shape, dtype=np.float32)
    out.data, out.indices, out.indptr = found.data[kept].astype(np.float32), found.indices[kept], indptr
    return out


@dataclass(eq=False)
class TreeEnsemble:
    """Linear rankers over several label trees, whose scores are averaged. A label that a tree does not find scores 0
    there. If scores can be negative, every tree instead scores all labels that any tree has found.
    """

    models: list[XLinear]

    def __post_init__(self) -> None:
        first = self.models[0]
        self.nr_labels, self.nr_features = first.nr_labels, first.nr_features
        self.nr_sparse, self.nr_dense = first.nr_sparse, first.nr_dense
        for number, one in enumerate(self.models[1:], 2):
            if (one.nr_features, one.nr_labels) != (first.nr_features, first.nr_labels):
                raise InputError(
                    f"the rankers of tree {number} do not fit those of tree 1",
                    expected=f"{first.nr_features:,} features and {first.nr_labels:,} labels",
                    received=f"{one.nr_features:,} features and {one.nr_labels:,} labels",
                )

    def __repr__(self) -> str:
        return f"TreeEnsemble({self.nr_labels:,} labels, {len(self.models)} trees, {self.nr_features:,} features)"

    @property
    def nr_weights(self) -> int:
        return sum(model.nr_weights for model in self.models)

    @property
    def depth(self) -> int:
        """Number of levels of the deepest tree."""
        return max(model.depth for model in self.models)

    @property
    def only_topk(self) -> int:
        """Default number of labels per document."""
        return self.models[0].only_topk

    def most_labels(self, beam_size: int | None = None) -> int:
        """Return the maximum number of labels that a search of a single tree with this beam can return."""
        return max(model.most_labels(beam_size) for model in self.models)

    def warn_if_out_of_reach(self, only_topk: int | None, beam_size: int | None, added: int = 0) -> None:
        """Warn if a search with this beam cannot return ``only_topk`` labels; ``added`` more have only names."""
        widest = max(self.models, key=lambda model: model.most_labels(beam_size))
        widest.warn_if_out_of_reach(only_topk, beam_size, added)

    def set_output_constraint(self, labels: Iterable[int] | None) -> None:
        """Restrict predictions to some labels (None: to all); see :meth:`XLinear.set_output_constraint`."""
        labels = None if labels is None else list(labels)
        for model in self.models:
            model.set_output_constraint(labels)

    def only(self, labels: np.ndarray) -> "TreeEnsemble":
        """Return rankers that predict only these labels (ascending); see :meth:`XLinear.only`."""
        return TreeEnsemble([model.only(labels) for model in self.models])

    @property
    def allowed(self) -> np.ndarray | None:
        """Labels that may be predicted, in ascending order, or None for all."""
        return self.models[0].allowed

    def predict(
        self, X: Features, *, beam_size: int | None = None, only_topk: int | None = None,
        post_processor: str | None = None, threads: int = -1, first: int = LABELS_OF_TREE,
    ) -> csr_matrix:  # fmt: skip
        """Return the labels with the best mean scores over the trees. Each tree first finds ``first`` labels."""
        most = self.only_topk if only_topk is None else only_topk
        if most < 1:
            raise InputError("only_topk must be at least 1", received=str(most))
        options: dict[str, Any] = {"beam_size": beam_size, "post_processor": post_processor, "threads": threads}
        return search_deeper(lambda size: self._best(X, size, options), most, first)

    def _best(self, X: Features, size: int, options: dict[str, Any]) -> csr_matrix:
        """Return the labels with the best mean scores among the ``size`` best labels of each tree."""
        count, threads, post_processor = X.nr_rows, options["threads"], options["post_processor"]
        found = zip(*(model.search(X, only_topk=size, **options) for model in self.models), strict=True)
        nodes, values, counts = map(np.stack, found)
        # The candidates of each document, ascending, with their scores in each tree; 0 if it has not found them.
        labels, sizes = np.empty((count, nodes.shape[0] * nodes.shape[2]), np.int32), np.empty(count, np.int64)
        _by_rows(partial(unite, nodes, counts), (labels, sizes), count, threads)
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        indices = labels[np.arange(labels.shape[1]) < sizes[:, None]]
        scores = np.zeros((len(indices), len(self.models)), np.float32)
        if any(model.scores_may_be_negative(post_processor) for model in self.models):
            union = csr_matrix((np.ones(len(indices), np.float32), indices, indptr), shape=(count, self.nr_labels))
            for tree, model in enumerate(self.models):
                scores[:, tree] = model.predict_selected(X, union, post_processor=post_processor).data
        else:
            _by_rows(partial(place_scores, nodes, values, counts, indptr, indices), (scores,), count, threads)
        most = min(size, self.nr_labels)
        best, means = np.empty((count, most), np.int32), np.empty((count, most), np.float32)
        sizes = np.zeros(count, np.int64)
        _by_rows(partial(best_by_mean, indptr, indices, scores), (best, means, sizes), count, threads)
        return ranked_csr(best, means, sizes, self.nr_labels)

    def predict_selected(self, X: Features, selected: csr_matrix, *, post_processor: str | None = None) -> csr_matrix:
        """Return the mean scores of the entries of ``selected`` (documents × labels) over all trees."""
        first, *others = (model.predict_selected(X, selected, post_processor=post_processor) for model in self.models)
        for other in others:
            first.data += other.data
        first.data /= np.float32(len(self.models))
        return first


Rankers: TypeAlias = XLinear | TreeEnsemble  # the rankers of a model: over one tree, or over several


def rankers_of(models: Sequence[XLinear]) -> Rankers:
    """Return the rankers unchanged if there is one tree, or else an ensemble of them."""
    return models[0] if len(models) == 1 else TreeEnsemble(list(models))


def trees_of(rankers: Rankers) -> list[XLinear]:
    """Return the rankers of each tree."""
    return [rankers] if isinstance(rankers, XLinear) else rankers.models


def _by_rows(work: Callable[..., Any], out: tuple[np.ndarray, ...], count: int, threads: int) -> None:
    """Call ``work(first, last, *out)`` for ranges of the rows, in several threads if there are many rows."""
    threads = thread_count(threads)
    if threads == 1 or count < 1000:
        work(0, count, *out)
        return
    step = -(-count // (4 * threads))
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(work, at, min(at + step, count), *out) for at in range(0, count, step)]:
            future.result()
