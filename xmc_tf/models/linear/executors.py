"""Executors of linear training: in memory, with rankers streamed to disk, or on all ranks with a work folder."""

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.data import Features, JoinedTexts, TextFile, Texts, as_features
from xmc_tf.features.over_ranks import vectorize_over_ranks
from xmc_tf.features.store import fitted_params
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.models.linear.parts import LinearParts, write_model
from xmc_tf.params import RankerParams, RankerPredParams, TfidfParams
from xmc_tf.pipeline.waiting import on_first_rank
from xmc_tf.rankers.distributed.training import threads_of_rank, train_trees_over_ranks
from xmc_tf.rankers.distributed.work_folder import open_work_folder
from xmc_tf.rankers.ensemble import trees_of
from xmc_tf.rankers.fit import train_streamed, train_trees
from xmc_tf.rankers.problems import RankerData
from xmc_tf.rankers.xlinear import XLinear
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.ranks.solo import Solo
from xmc_tf.store.arrays import open_sparse, save_sparse
from xmc_tf.store.files import hidden_prefix
from xmc_tf.tree import LabelTree, load_chain, save_chain
from xmc_tf.tree.label_embeddings import are_many, forget_label_embeddings, label_embedding, label_embeddings_over_ranks

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf

_LOG = logging.getLogger(__name__)
_EVIDENCE = "evidence"
Result = TypeVar("Result")


class InMemory:
    """Training steps that keep their results in the memory of this process."""

    def __init__(self, threads: int = -1) -> None:
        self.threads = threads
        self.communicator: Communicator = Solo()
        self.seconds_of_evidence = 0.0
        """Time spent on learning probabilities."""

    def agreed(self, work: Callable[[], Result]) -> Result:
        """Run ``work`` and return its result."""
        return work()

    def features(self, texts: Texts, params: TfidfParams) -> "tuple[Tfidf, Features, TfidfParams]":
        """Fit a vectorizer to the texts; return it, the features of the texts, and its fitted parameters."""
        tfidf, X = fit_tfidf(texts, params, self.threads)
        return tfidf, X, tfidf.params

    def vectorizer(self, tfidf: "Tfidf | None") -> "Tfidf | None":
        """Return the vectorizer that `features` has returned."""
        return tfidf

    def shared(self, compute: "Callable[[], tuple[Tfidf | None, csr_matrix]]") -> "tuple[Tfidf | None, csr_matrix]":
        """Return the vectorizer and the features that ``compute`` returns."""
        return compute()

    def label_embedding(self, method: str, X: Features, Y: spmatrix) -> Features:
        return as_features(label_embedding(method, X, Y, threads=self.threads))

    def trees(self, build: Callable[[], list[LabelTree]], count: int) -> list[LabelTree]:
        return build()

    def rankers(
        self, data: RankerData, params: RankerParams, pred_params: Sequence[RankerPredParams], seed: int
    ) -> list[XLinear]:
        return train_trees(
            data.X, data.Y, [tree.to_chain() for tree in data.trees], R=data.R, params=params, pred_params=pred_params,
            user_negatives=data.user_negatives, threads=self.threads, seed=seed,
        )  # fmt: skip

    def evidence(self, learn: Callable[[], ProbabilityModel]) -> ProbabilityModel | None:
        """Learn and return the fusion of scores into probabilities, and record the time."""
        began = time.monotonic()
        evidence = learn()
        self.seconds_of_evidence = time.monotonic() - began
        return evidence


class OnDisk(InMemory):
    """Training steps of a single process that writes the rankers of large data to disk as they are solved.

    With the layout "search", they are written in the layout that search uses; "auto" is "search" for large data.
    """

    def __init__(self, folder: Path, threads: int = -1, layout: str = "auto") -> None:
        super().__init__(threads)
        self._layout = layout
        self._place = folder.with_name(f"{hidden_prefix(folder.name)}rankers")
        self.remove()  # files of an interrupted run

    def rankers(
        self, data: RankerData, params: RankerParams, pred_params: Sequence[RankerPredParams], seed: int
    ) -> list[XLinear]:
        if self._layout == "pecos" or (self._layout == "auto" and not are_many(data.X, csr_matrix(data.Y))):
            return super().rankers(data, params, pred_params, seed)
        folders = [self._place / str(number) for number in range(len(data.trees))]
        return train_streamed(data, folders, params=params, pred_params=pred_params, threads=self.threads, seed=seed)

    def remove(self) -> None:
        """Remove the temporary rankers next to the model folder; call it after the model has been saved."""
        if self._place.is_dir():
            shutil.rmtree(self._place)


def fit_tfidf(texts: Texts, params: TfidfParams, threads: int = -1) -> "tuple[Tfidf, Features]":
    from xmc_tf.features import Tfidf  # it loads TensorFlow, which a model of features does not need

    check_texts(texts)
    tfidf = Tfidf.fit(texts, params, threads=threads)
    return tfidf, as_features(tfidf.transform(texts, threads=threads))


def check_texts(texts: Texts) -> None:
    """Check that text files are UTF-8, and log problems with individual lines."""
    for part in texts.sources if isinstance(texts, JoinedTexts) else [texts]:
        if isinstance(part, TextFile):
            part.check()


class OverRanks:
    """Training steps that run on all ranks. Completed steps are kept in the work folder and are not repeated."""

    def __init__(self, communicator: Communicator, folder: Path, key: str, threads: int = -1) -> None:
        self.folder, self.communicator = folder, communicator
        self._work = open_work_folder(communicator, folder, key)
        self.threads = threads_of_rank(communicator, threads)
        self.seconds_of_evidence = 0.0

    def agreed(self, work: Callable[[], Result]) -> Result:
        """Return the result of ``work``, which all ranks run; an error on one rank is raised on all."""
        return run_on_all_ranks(self.communicator, work)

    def features(self, texts: Texts, params: TfidfParams) -> tuple[None, Features, TfidfParams]:
        """Return None (the vectorizer is only saved, in the work folder), the features, and the fitted parameters."""
        work, communicator, target = self._work, self.communicator, self._work.file("X")

        if not communicator.broadcast(target.exists()):
            self._on_first(lambda: check_texts(texts))
            vectorize_over_ranks(communicator, texts, params, work.features, target, threads=self.threads)
        fitted = run_on_all_ranks(communicator, lambda: fitted_params(work.features))
        return None, as_features(open_sparse(target)), fitted

    def vectorizer(self, tfidf: "Tfidf | None") -> "Tfidf | None":
        """Return the vectorizer that `features` has fitted, from the work folder; None if there is none."""
        from xmc_tf.features import Tfidf

        return Tfidf.load(self._work.features) if tfidf is None and self._work.features.is_dir() else tfidf

    def shared(self, compute: "Callable[[], tuple[Tfidf | None, csr_matrix]]") -> "tuple[Tfidf | None, csr_matrix]":
        """Return the vectorizer and the features that ``compute`` returns on rank 0; they are in the work folder."""
        work, target = self._work, self._work.file("X")

        def keep() -> None:
            tfidf, X = compute()
            if tfidf is not None:
                tfidf.save(work.features)
            save_sparse(target, X)

        def load() -> "tuple[Tfidf | None, csr_matrix]":
            from xmc_tf.features import Tfidf

            return Tfidf.load(work.features) if work.features.is_dir() else None, open_sparse(target)

        on_first_rank(self.communicator, keep)
        return run_on_all_ranks(self.communicator, load)

    def label_embedding(self, method: str, X: Features, Y: spmatrix) -> Features:
        return label_embeddings_over_ranks(self.communicator, method, X, Y, self._work.path, self.threads)

    def trees(self, build: Callable[[], list[LabelTree]], count: int) -> list[LabelTree]:
        """Return the label trees; they are saved in the work folder so that a resumed run can reuse them."""
        folders = [self._work.tree, *(self._work.file(f"tree-{number}") for number in range(1, count))]
        if self.communicator.broadcast(folders[-1].exists()):
            return run_on_all_ranks(self.communicator, lambda: [load_chain(folder) for folder in folders])
        trees = build()
        self.communicator.barrier()  # a slower rank may still open the embeddings, which rank 0 removes

        def keep() -> None:
            for folder, tree in zip(folders, trees, strict=True):  # the last one marks all as complete
                save_chain(folder, tree)
            forget_label_embeddings(self._work.path)  # the weights will need the disk space

        self._on_first(keep)
        return trees

    def rankers(
        self, data: RankerData, params: RankerParams, pred_params: Sequence[RankerPredParams], seed: int
    ) -> list[XLinear]:
        return train_trees_over_ranks(
            self.communicator, self._work, data, params, pred_params=pred_params, threads=self.threads, seed=seed
        )

    def evidence(self, learn: Callable[[], ProbabilityModel]) -> ProbabilityModel | None:
        """Return the fusion into probabilities on rank 0, None on other ranks. A resumed run reuses the saved one."""
        folder = self._work.path / _EVIDENCE

        def keep() -> None:
            part = folder.with_name(f"{_EVIDENCE}.part")
            shutil.rmtree(part, ignore_errors=True)
            learn().save(part)
            part.rename(folder)

        began = time.monotonic()
        if not self.communicator.broadcast(folder.exists()):
            self._on_first(keep)
        self.seconds_of_evidence = time.monotonic() - began
        return ProbabilityModel.load(folder) if self.communicator.rank == 0 else None

    def save(self, parts: LinearParts) -> None:
        """Write the model folder atomically, then remove the work folder."""
        work = self._work

        def write() -> None:
            write_rankers = [model.save for model in trees_of(parts.ranker)]
            write_tfidf = partial(shutil.copytree, work.features) if work.features.is_dir() else None
            write_model(self.folder, parts, write_rankers, write_tfidf)
            work.remove()

        self._on_first(write)
        self.communicator.barrier()

    def _on_first(self, work: Callable[[], object]) -> None:
        """Run a function on rank 0; its error is raised on all ranks."""
        run_on_all_ranks(self.communicator, lambda: work() if self.communicator.rank == 0 else None)
