"""The training of a linear model in the memory of one process."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from scipy.sparse import spmatrix

from xmc_tf.data import Features, TextFile, Texts, as_features
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.params import RankerParams, RankerPredParams, TfidfParams
from xmc_tf.rankers.fit import train_trees
from xmc_tf.rankers.levels import RankerData
from xmc_tf.rankers.xlinear import XLinear
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.solo import Solo
from xmc_tf.tree import LabelTree
from xmc_tf.tree.label_embeddings import label_embedding

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf

Result = TypeVar("Result")


class InMemory:
    """The steps of a training whose results stay in the memory of this process.

    Args:
        threads: number of threads; -1: one per core.
    """

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
        """Return the embeddings of the labels."""
        return as_features(label_embedding(method, X, Y, threads=self.threads))

    def trees(self, build: Callable[[], list[LabelTree]], count: int) -> list[LabelTree]:
        """Return the label trees."""
        return build()

    def rankers(
        self, data: RankerData, params: RankerParams, pred_params: Sequence[RankerPredParams], seed: int
    ) -> list[XLinear]:
        """Return the trained rankers of each tree."""
        return train_trees(
            data.X, data.Y, [tree.to_chain() for tree in data.trees], R=data.R, params=params, pred_params=pred_params,
            user_negatives=data.user_negatives, threads=self.threads, seed=seed,
        )  # fmt: skip

    def evidence(self, learn: Callable[[], ProbabilityModel]) -> ProbabilityModel | None:
        """Return what turns scores into probabilities."""
        began = time.monotonic()
        evidence = learn()
        self.seconds_of_evidence = time.monotonic() - began
        return evidence


def fit_tfidf(texts: Texts, params: TfidfParams, threads: int = -1) -> "tuple[Tfidf, Features]":
    """Return a vectorizer that is fitted to texts, and their features."""
    from xmc_tf.features import Tfidf  # it loads TensorFlow, which a model of features does not need

    if isinstance(texts, TextFile):
        texts.check()
    tfidf = Tfidf.fit(texts, params, threads=threads)
    return tfidf, as_features(tfidf.transform(texts, threads=threads))
