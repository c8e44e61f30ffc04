"""The training of a linear model in one process: in memory, or with weights that are written to disk when solved."""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.files.atomic import hidden_prefix
from xmc_tf.data import Features, JoinedTexts, TextFile, Texts, as_features
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.params import RankerParams, RankerPredParams, TfidfParams
from xmc_tf.rankers.fit import train_streamed, train_trees
from xmc_tf.rankers.levels import RankerData
from xmc_tf.rankers.xlinear import XLinear
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.solo import Solo
from xmc_tf.tree import LabelTree
from xmc_tf.tree.label_embeddings import are_many, label_embedding

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf

Result = TypeVar("Result")
LAYOUTS = ("auto", "pecos", "search")


class InMemory:
    """The steps of a training whose results stay in the memory of this process."""

    def __init__(self, threads: int = -1) -> None:
        self.threads = threads
        self.communicator: Communicator = Solo()
        self.seconds_of_evidence = 0.0
        """Time that probabilities and label names took."""

    def agreed(self, work: Callable[[], Result]) -> Result:
        """Return the result of work that may fail on some ranks only."""
        return work()

    def features(self, texts: Texts, params: TfidfParams) -> "tuple[Tfidf, Features, TfidfParams]":
        """Return a vectorizer that is fitted to texts, their features, and the fitted parameters."""
        tfidf, X = fit_tfidf(texts, params, self.threads)
        return tfidf, X, tfidf.params

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
        """Return the fusion into probabilities."""
        began = time.monotonic()
        evidence = learn()
        self.seconds_of_evidence = time.monotonic() - began
        return evidence


class OnDisk(InMemory):
    """The steps of a training in one process that writes the rankers of large data to the disk when they are solved.

    The layout "pecos" keeps rankers in memory, and saves them in PECOS's format; "search" writes their layout for
    search; "auto" is "search" for large data.
    """

    def __init__(self, folder: Path, threads: int = -1, layout: str = "auto") -> None:
        super().__init__(threads)
        self._layout = layout
        self._place = folder.with_name(f"{hidden_prefix(folder.name)}rankers")
        self.remove()  # what an interrupted run has left

    def rankers(
        self, data: RankerData, params: RankerParams, pred_params: Sequence[RankerPredParams], seed: int
    ) -> list[XLinear]:
        if self._layout == "pecos" or (self._layout == "auto" and not are_many(data.X, csr_matrix(data.Y))):
            return super().rankers(data, params, pred_params, seed)
        folders = [self._place / str(number) for number in range(len(data.trees))]
        return train_streamed(data, folders, params=params, pred_params=pred_params, threads=self.threads, seed=seed)

    def remove(self) -> None:
        """Remove the rankers beside the model's folder, which are part of the saved model now."""
        if self._place.is_dir():
            shutil.rmtree(self._place)


def fit_tfidf(texts: Texts, params: TfidfParams, threads: int = -1) -> "tuple[Tfidf, Features]":
    from xmc_tf.features import Tfidf  # it loads TensorFlow, which a model of features does not need

    check_texts(texts)
    tfidf = Tfidf.fit(texts, params, threads=threads)
    return tfidf, as_features(tfidf.transform(texts, threads=threads))


def check_texts(texts: Texts) -> None:
    """Refuse a file that is not UTF-8, and log the problems of its lines."""
    for part in texts.sources if isinstance(texts, JoinedTexts) else [texts]:
        if isinstance(part, TextFile):
            part.check()
