"""Trained rankers of all levels of a tree, and their predictions."""

import dataclasses
import logging
import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.threads import thread_count
from xmc_tf.data.features import Features
from xmc_tf.rankers.disk import has_many_weights, load_levels, save_levels
from xmc_tf.rankers.kernels.layout import Chunks
from xmc_tf.rankers.kernels.postprocess import post_processor_code
from xmc_tf.rankers.kernels.search import score_paths, search
from xmc_tf.rankers.layout.stored import StoredSearch, build_chunks, with_children
from xmc_tf.rankers.level import Level
from xmc_tf.rankers.query_arrays import code_arrays, kernel_form, ranked_csr


def checked_labels(labels: Iterable[int], nr_labels: int) -> np.ndarray:
    """Return the distinct label numbers in ascending order. Raise InputError if there are none or one is invalid."""
    numbers = np.asarray(labels if isinstance(labels, np.ndarray) else list(labels))
    if numbers.size == 0:
        raise InputError("the list of labels to predict is empty", expected="at least one label number")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise InputError(
            "the labels to predict are not label numbers", expected="a list of whole numbers",
            received=f"an array of {numbers.dtype}, shape {numbers.shape}",
        )  # fmt: skip
    if numbers.min() < 0 or numbers.max() >= nr_labels:
        wrong = numbers[(numbers < 0) | (numbers >= nr_labels)][0]
        raise InputError(
            f"label {wrong} does not exist in this model", expected=f"label numbers from 0 to {nr_labels - 1:,}",
            received=str(wrong),
        )  # fmt: skip
    return np.unique(numbers).astype(np.int64)


def restricted(levels: Sequence[Level], labels: np.ndarray) -> list[Level]:
    """Return the levels with only the nodes that lead to ``labels``. Node numbers are kept, and weights are shared."""
    kept = np.zeros(levels[-1].clusters.shape[0], bool)
    kept[labels] = True
    out: list[Level] = []
    for level in reversed(levels):
        clusters = level.clusters
        entries = kept[clusters.indices]
        counted = np.concatenate([[0], np.cumsum(entries)])
        indptr = counted[clusters.indptr].astype(clusters.indptr.dtype)
        pruned = csc_matrix((clusters.data[entries], clusters.indices[entries], indptr), shape=clusters.shape)
        out.insert(0, dataclasses.replace(level, clusters=pruned))
        kept = np.diff(indptr) > 0
    return out


class Paths(NamedTuple):
    """The nodes on the paths to the selected labels, for all levels, the top level first."""

    indptr: np.ndarray  # (levels, queries + 1): position of each query's first node of a level in the arrays below
    node: np.ndarray  # number of the node within its level
    chunk: np.ndarray  # chunk that contains the node's weights; nodes of the same chunk follow each other
    child: np.ndarray  # position of the node in that chunk
    parent: np.ndarray  # position of the node's parent in these arrays; -1 for the root


def selected_paths(levels: Sequence[Level], selected: csr_matrix, arranged: Sequence[Level]) -> Paths:
    """Return the paths to the selected labels, with each ancestor once per query. ``arranged`` are the levels from
    which the chunks were made.
    """
    nr_queries = selected.shape[0]
    query = np.repeat(np.arange(nr_queries), np.diff(selected.indptr))
    keys = np.unique(query * np.int64(selected.shape[1]) + selected.indices)
    nodes_below = [(keys // selected.shape[1], keys % selected.shape[1])]
    parent_rank: list[np.ndarray] = []
    for level in reversed(levels):
        query, node = nodes_below[0]
        parent_of, _ = _places(level)
        if (outside := node[parent_of[node] < 0]).size:
            raise InputError(
                f"label {outside[0]:,} is not in the tree"
                if level is levels[-1]
                else "a label's cluster is not in the tree",
                expected="labels that the model can predict",
                fix="remove it from the selected labels; this model was pruned or restricted to other labels",
            )  # fmt: skip
        above = query * np.int64(level.clusters.shape[1]) + parent_of[node]
        keys, rank = np.unique(above, return_inverse=True)
        parent_rank.insert(0, rank)
        nodes_below.insert(0, (keys // level.clusters.shape[1], keys % level.clusters.shape[1]))
    parts: list[tuple[np.ndarray, ...]] = []
    indptr = np.zeros((len(levels), nr_queries + 1), np.int64)
    level_start = np.cumsum([0, *(level.clusters.shape[1] for level in levels)])
    offset, places_above = 0, np.full(len(nodes_below[0][0]), -1, np.int64)
    for t in range(len(levels)):
        query, node = nodes_below[t + 1]
        parent_of, child_of = _places(arranged[t])
        order = np.lexsort((child_of[node], parent_of[node], query))
        places = np.empty(len(order), np.int64)
        places[order] = offset + np.arange(len(order))
        indptr[t] = offset + np.searchsorted(query[order], np.arange(nr_queries + 1))
        chunk, parent = level_start[t] + parent_of[node][order], places_above[parent_rank[t]][order]
        parts.append((node[order], chunk, child_of[node][order], parent))
        places_above, offset = places, offset + len(order)
    return Paths(indptr, *(np.concatenate(column) for column in zip(*parts, strict=True)))


def _places(level: Level) -> tuple[np.ndarray, np.ndarray]:
    """Return each node's parent and position among its siblings. Both are -1 for nodes that are not in the tree."""
    clusters, counts = level.clusters, np.diff(level.clusters.indptr)
    parent, child = (np.full(clusters.shape[0], -1, np.int64) for _ in range(2))
    parent[clusters.indices] = np.repeat(np.arange(clusters.shape[1]), counts)
    child[clusters.indices] = np.arange(len(clusters.indices)) - np.repeat(clusters.indptr[:-1], counts)
    return parent, child


_LOG = logging.getLogger(__name__)
BLOCK = 8192  # queries searched level by level at the same time
_BLOCK_NODES = 1 << 20  # maximum number of nodes in their beams
_NO_CODES = (np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))


@dataclass(eq=False)
class XLinear:
    """Linear rankers over a label tree, the top level first. Dense features follow the sparse ones."""

    levels: list[Level]
    nr_sparse: int
    nr_dense: int = 0
    _chunks: Chunks | None = field(default=None, repr=False)
    _chunks_of: tuple[int, int, int] = field(default=(0, 0, 0), repr=False)
    _stored: StoredSearch | None = field(default=None, repr=False)  # of the levels before any restriction
    _all_levels: list[Level] | None = field(default=None, repr=False)  # while predictions are restricted
    pecos: bool = field(default=False, repr=False)  # whether to save PECOS's format also if there are many weights

    def __repr__(self) -> str:
        return f"XLinear({self.nr_labels:,} labels, {self.depth} levels, {self.nr_features:,} features)"

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle. It excludes the search layout, which is made again when it is needed."""
        return {**vars(self), "_chunks": None, "_chunks_of": (0, 0, 0), "_stored": None}

    @property
    def depth(self) -> int:
        return len(self.levels)

    @property
    def nr_labels(self) -> int:
        """Number of labels of the tree."""
        return int(self.levels[-1].clusters.shape[0])

    @property
    def nr_features(self) -> int:
        return self.nr_sparse + self.nr_dense

    @property
    def nr_weights(self) -> int:
        return sum(level.nr_weights for level in self.levels)

    def most_labels(self, beam_size: int | None = None) -> int:
        """Return the maximum number of labels that a search with this beam (default: the model's) can return."""
        reached, found = int(self.levels[0].clusters.shape[1]), 0
        for level in self.levels:
            children = np.sort(np.diff(level.clusters.indptr))[::-1]
            found = int(children[:reached].sum())
            reached = min(found, level.pred_params.only_topk if beam_size is None else beam_size)
        return found

    def warn_if_out_of_reach(self, only_topk: int | None, beam_size: int | None, added: int = 0) -> None:
        """Warn if a search with this beam cannot return ``only_topk`` labels; ``added`` more have only names."""
        most = self.most_labels(beam_size)
        if only_topk is None or only_topk <= most + added:
            return
        if most == self.nr_labels or self.depth == 1:
            _LOG.info("-k %s: the model has only %s labels", f"{only_topk:,}", f"{most + added:,}")
            return
        beam = str(beam_size or self.levels[-2].pred_params.only_topk)
        _LOG.warning(
            "-k %s: with a beam of %s nodes, at most %s labels can be predicted per document; fix: raise -b",
            f"{only_topk:,}", beam, f"{most + added:,}",
        )  # fmt: skip

    def chunks(self, nr_dense: int, threads: int = 1) -> Chunks:
        """Return the weights in the search layout, in which the last ``nr_dense`` features are dense."""
        key = (self.depth, self.nr_features - nr_dense, nr_dense)
        if self._chunks is None or self._chunks_of != key:
            levels, stored = self._all_levels or self.levels, self._stored
            if stored is not None and (stored.nr_sparse, stored.nr_dense) == key[1:]:
                chunks = stored.chunks(levels)
            else:
                _, chunks = build_chunks(levels, key[1], nr_dense, threads)
            self._chunks = chunks if self._all_levels is None else with_children(chunks, levels, self.levels)
            self._chunks_of = key
        return self._chunks

    def set_output_constraint(self, labels: Iterable[int] | None) -> None:
        """Restrict predictions to ``labels`` (None: no restriction). The search visits only the nodes above them."""
        levels = self._all_levels or self.levels
        some = None if labels is None else restricted(levels, checked_labels(labels, self.nr_labels))
        self.levels, self._all_levels = (levels, None) if some is None else (some, levels)
        if self._chunks is not None:
            self._chunks = with_children(self._chunks, levels, self.levels)

    def only(self, labels: np.ndarray) -> "XLinear":
        """Return rankers that predict only ``labels``, without those that are not allowed. They share these weights."""
        levels, some = self._all_levels or self.levels, restricted(self.levels, labels)
        chunks = with_children(self.chunks(self.nr_dense), levels, some)
        return replace(self, levels=some, _all_levels=levels, _chunks=chunks)

    @property
    def allowed(self) -> np.ndarray | None:
        """Labels that may be predicted, in ascending order, or None for all."""
        return None if self._all_levels is None else np.unique(self.levels[-1].clusters.indices)

    def predict(
        self, X: Features, *, beam_size: int | None = None, only_topk: int | None = None,
        post_processor: str | None = None, codes: csr_matrix | None = None, threads: int = -1,
    ) -> csr_matrix:  # fmt: skip
        """Find the best labels of each document by beam search. Return a matrix of documents × labels with descending
        scores in each row. ``codes``, a matrix of documents × parents of the first level, has the scores of the parents
        to start from.
        """
        found = self.search(
            X, beam_size=beam_size, only_topk=only_topk, post_processor=post_processor, codes=codes, threads=threads
        )
        return ranked_csr(*found, self.nr_labels)

    def search(
        self, X: Features, *, beam_size: int | None = None, only_topk: int | None = None,
        post_processor: str | None = None, codes: csr_matrix | None = None, threads: int = -1,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
        """Return labels [documents, k], best first, their scores, and the number of labels found per document."""
        self._check(X)
        count, n = thread_count(threads), X.nr_rows
        most = [level.pred_params.only_topk for level in self.levels]
        if beam_size is not None:
            most[:-1] = [beam_size] * (self.depth - 1)
        if only_topk is not None:
            most[-1] = only_topk
        if min(most) < 1:
            raise InputError("beam_size and only_topk must be at least 1", received=f"{most}, from the top level down")
        # No level can keep more nodes than it has.
        most = [min(one, int(level.clusters.shape[0])) for one, level in zip(most, self.levels, strict=True)]
        parents = self.levels[0].clusters.shape[1]
        start = _NO_CODES if codes is None else code_arrays(codes, (n, parents))
        nodes, scores = np.empty((n, most[-1]), np.int32), np.empty((n, most[-1]), np.float32)
        found = np.zeros(n, np.int64)
        arguments = (*kernel_form(X), *start, np.array(most, np.int64), self._posts(post_processor))
        block = max(1, min(BLOCK, _BLOCK_NODES // max(*most, parents)))

        def run(chunks: Chunks) -> None:
            def part(first: int, last: int) -> None:
                search(chunks, *arguments, first, last, block, nodes, scores, found)

            if count == 1 or n < 2 * count:
                part(0, n)
                return
            # More pieces than threads, since some texts are long; whole blocks if there are enough.
            step = min(block, max(1, math.ceil(n / (4 * count))))
            with ThreadPoolExecutor(count) as pool:
                for future in [pool.submit(part, at, min(at + step, n)) for at in range(0, n, step)]:
                    future.result()

        run(self.chunks(X.nr_dense, count))
        return nodes, scores, found

    def predict_selected(self, X: Features, selected: csr_matrix, *, post_processor: str | None = None) -> csr_matrix:
        """Return the scores of the (document, label) pairs in ``selected``, as if the beam kept all their ancestors."""
        self._check(X)
        if selected.shape != (X.nr_rows, self.nr_labels):
            raise InputError(
                "selected has the wrong shape", expected=f"{X.nr_rows:,} documents × {self.nr_labels:,} labels",
                received=f"{selected.shape[0]:,} × {selected.shape[1]:,}",
            )  # fmt: skip
        paths = selected_paths(self.levels, csr_matrix(selected), self._all_levels or self.levels)
        out = np.empty(len(paths.chunk), np.float32)
        nodes = paths.indptr, paths.chunk, paths.child, paths.parent
        arguments = (*kernel_form(X), *nodes, self._posts(post_processor), out)
        score_paths(self.chunks(X.nr_dense), *arguments)
        last = paths.indptr[-1]
        own = slice(last[0], last[-1])
        result = csr_matrix((out[own], paths.node[own], last - last[0]), shape=selected.shape)
        result.sort_indices()
        return result

    def save(self, folder: str | Path, *, pecos: bool = False) -> None:
        """Save the model. A search layout on disk is linked or copied; with ``pecos``, its weights are read into memory
        and written as a PECOS folder.
        """
        stored = self._stored if self._all_levels is None else None
        save_levels(self.levels, folder, self.nr_dense, stored, pecos=pecos or self.pecos)

    @classmethod
    def load(cls, folder: str | Path, nr_dense: int = 0) -> "XLinear":
        """Load an XLinear folder of this package or of PECOS. The last ``nr_dense`` features are dense."""
        levels, stored = load_levels(folder)
        pecos = stored is None and has_many_weights(levels)
        return cls(levels, levels[0].nr_features - nr_dense, nr_dense, _stored=stored, pecos=pecos)

    @property
    def only_topk(self) -> int:
        """Default number of labels per document."""
        return self.levels[-1].pred_params.only_topk

    def scores_may_be_negative(self, post_processor: str | None = None) -> bool:
        """Return True if scores can be below 0, that is, without a post-processor or with logarithmic scores."""
        name = post_processor or self.levels[-1].pred_params.post_processor
        return name == "noop" or name.startswith("log-")

    def _posts(self, override: str | None) -> np.ndarray:
        names = (override or level.pred_params.post_processor for level in self.levels)
        return np.array([*map(post_processor_code, names)], np.int64)

    def _check(self, X: Features) -> None:
        if X.nr_features != self.nr_features:
            raise InputError(
                "the features do not fit the model", expected=f"{self.nr_features:,} columns, as in training",
                received=f"{X.nr_features:,} columns", fix="compute them with the vectorizer of the training features",
            )  # fmt: skip
