"""The trained rankers of all levels of a tree, and their predictions."""

import logging
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.threads import thread_count
from xmc_tf.data.features import Features
from xmc_tf.rankers.disk import load_levels, save_levels
from xmc_tf.rankers.kernels.layout import Chunks
from xmc_tf.rankers.kernels.postprocess import post_processor_code
from xmc_tf.rankers.kernels.search import score_paths, search
from xmc_tf.rankers.layout.chunks import build_chunks, with_children
from xmc_tf.rankers.layout.stored import StoredSearch, damaged, warn_of_damage
from xmc_tf.rankers.level import Level
from xmc_tf.rankers.paths import checked_labels, restricted, selected_paths
from xmc_tf.rankers.query_arrays import code_arrays, kernel_form, ranked_csr

_LOG = logging.getLogger(__name__)
BLOCK = 8192  # queries searched level by level at the same time
_BLOCK_NODES = 1 << 20  # maximum number of nodes in their beams
_NO_CODES = (np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))


@dataclass(eq=False)
class XLinear:
    """Linear rankers over a label tree, the top level first; dense features come after the sparse ones."""

    levels: list[Level]
    nr_sparse: int
    nr_dense: int = 0
    _chunks: Chunks | None = field(default=None, repr=False)
    _chunks_of: tuple[int, int, int] = field(default=(0, 0, 0), repr=False)
    _stored: StoredSearch | None = field(default=None, repr=False)  # of the levels before any restriction
    _all_levels: list[Level] | None = field(default=None, repr=False)  # while predictions are restricted

    def __repr__(self) -> str:
        return f"XLinear({self.nr_labels:,} labels, {self.depth} levels, {self.nr_features:,} features)"

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, without the arrangement for search, which is made again."""
        return {**vars(self), "_chunks": None, "_chunks_of": (0, 0, 0), "_stored": None}

    @property
    def depth(self) -> int:
        return len(self.levels)

    @property
    def nr_labels(self) -> int:
        """Number of labels that can be predicted."""
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

    def warn_if_out_of_reach(self, only_topk: int | None, beam_size: int | None) -> None:
        """Warn if a search with this beam cannot return ``only_topk`` labels."""
        most = self.most_labels(beam_size)
        if only_topk is None or only_topk <= most:
            return
        if most == self.nr_labels or self.depth == 1:
            _LOG.warning("-k %s: the model has only %s labels", f"{only_topk:,}", f"{most:,}")
            return
        beam = str(beam_size or self.levels[-2].pred_params.only_topk)
        _LOG.warning(
            "-k %s: with a beam of %s nodes, at most %s labels can be predicted per document; fix: raise -b",
            f"{only_topk:,}", beam, f"{most:,}",
        )  # fmt: skip

    def chunks(self, nr_dense: int, threads: int = 1) -> Chunks:
        """Return the weights arranged for search, with the last ``nr_dense`` features dense."""
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

    @property
    def stored_alone(self) -> bool:
        """Whether the weights exist on disk in their layout for search only, and the model is as it was loaded."""
        return self._stored is not None and self._stored.alone and self._all_levels is None

    def _with_chunks(self, nr_dense: int, threads: int, run: Callable[[Chunks], object]) -> None:
        """Call a function of the weights arranged for search; once more if their stored layout is damaged."""
        chunks = self.chunks(nr_dense, threads)
        run(chunks)
        if chunks.damaged[0]:
            if (stored := self._stored) is not None:
                error = damaged(stored.folder)
                if stored.alone:
                    raise error
                warn_of_damage(stored.folder, error.problem)
            self._stored = self._chunks = None
            run(self.chunks(nr_dense, threads))

    def set_output_constraint(self, labels: Iterable[int] | None) -> None:
        """Restrict predictions to some labels (None: all); the search then visits only nodes above them."""
        levels = self._all_levels or self.levels
        some = None if labels is None else restricted(levels, checked_labels(labels, self.nr_labels))
        self.levels, self._all_levels = (levels, None) if some is None else (some, levels)
        if self._chunks is not None:
            self._chunks = with_children(self._chunks, levels, self.levels)

    def only(self, labels: np.ndarray) -> "XLinear":
        """Return rankers, sharing the weights, that predict only those of these labels (ascending) that are allowed."""
        levels, some = self._all_levels or self.levels, restricted(self.levels, labels)
        chunks = with_children(self.chunks(self.nr_dense), levels, some)
        return replace(self, levels=some, _all_levels=levels, _chunks=chunks)

    @property
    def allowed(self) -> np.ndarray | None:
        """Labels that may be predicted, ascending; None: all."""
        return None if self._all_levels is None else np.unique(self.levels[-1].clusters.indices)

    def predict(
        self, X: Features, *, beam_size: int | None = None, only_topk: int | None = None,
        post_processor: str | None = None, codes: csr_matrix | None = None, threads: int = -1,
    ) -> csr_matrix:  # fmt: skip
        """Return the best labels of each document, by beam search: documents × labels, descending within a row.
        ``codes`` are the parents to start from, with scores (documents × parents of the first level).
        """
        found = self.search(
            X, beam_size=beam_size, only_topk=only_topk, post_processor=post_processor, codes=codes, threads=threads
        )
        return ranked_csr(*found, self.nr_labels)

    def search(
        self, X: Features, *, beam_size: int | None = None, only_topk: int | None = None,
        post_processor: str | None = None, codes: csr_matrix | None = None, threads: int = -1,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
        """Return labels [documents, k] and scores, best first, and the number of labels of each document."""
        self._check(X)
        count, n = thread_count(threads), X.nr_rows
        most = [level.pred_params.only_topk for level in self.levels]
        if beam_size is not None:
            most[:-1] = [beam_size] * (self.depth - 1)
        if only_topk is not None:
            most[-1] = only_topk
        if min(most) < 1:
            raise InputError("beam size and top k must be at least 1", received=f"{most}")
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

        self._with_chunks(X.nr_dense, count, run)
        return nodes, scores, found

    def predict_selected(self, X: Features, selected: csr_matrix, *, post_processor: str | None = None) -> csr_matrix:
        """Return the scores of selected labels (the entries): those of a beam search that keeps all their ancestors."""
        self._check(X)
        if selected.shape != (X.nr_rows, self.nr_labels):
            raise InputError(
                "the selected outputs do not fit", expected=f"{X.nr_rows:,} documents × {self.nr_labels:,} labels",
                received=f"{selected.shape[0]:,} × {selected.shape[1]:,}",
            )  # fmt: skip
        paths = selected_paths(self.levels, csr_matrix(selected), self._all_levels or self.levels)
        out = np.empty(len(paths.chunk), np.float32)
        nodes = paths.indptr, paths.chunk, paths.child, paths.parent
        arguments = (*kernel_form(X), *nodes, self._posts(post_processor), out)
        self._with_chunks(X.nr_dense, 1, lambda chunks: score_paths(chunks, *arguments))
        last = paths.indptr[-1]
        own = slice(last[0], last[-1])
        result = csr_matrix((out[own], paths.node[own], last - last[0]), shape=selected.shape)
        result.sort_indices()
        return result

    def save(self, folder: str | Path, *, pecos: bool = False) -> None:
        """Save the model as it was stored, or with ``pecos`` as a PECOS folder, which needs its weights in memory."""
        save_levels(self.levels, folder, self.nr_dense, self._stored if self.stored_alone and not pecos else None)

    @classmethod
    def load(cls, folder: str | Path, nr_dense: int = 0) -> "XLinear":
        """Load an XLinear folder of this package or of PECOS; the last ``nr_dense`` features are dense."""
        levels, stored = load_levels(folder)
        return cls(levels, levels[0].nr_features - nr_dense, nr_dense, _stored=stored)

    @property
    def only_topk(self) -> int:
        """Default number of labels per document."""
        return self.levels[-1].pred_params.only_topk

    def scores_may_be_negative(self, post_processor: str | None = None) -> bool:
        """Return whether 0 is not the lowest score: without a post-processor, or if scores are logarithms."""
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
