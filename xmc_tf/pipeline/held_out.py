"""Train rankers without some documents, and score these documents with them."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.data import Features, as_features
from xmc_tf.fusion import (
    EvidenceChoice,
    HeldOutScores,
    ScoreHeldOut,
    SkipReasons,
    bounded_post_processor,
    choose_evidence,
    held_out_folds,
)
from xmc_tf.params import RankerParams, RankerPredParams, XTransformerParams
from xmc_tf.params.pools import FUSED_LABELS
from xmc_tf.rankers.ensemble import Rankers, rankers_of
from xmc_tf.rankers.fit import train_trees

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf

AUXILIARY_TREES = 2
"""Number of label trees that score held-out documents; more do not improve the fusion."""
_ENOUGH_OF_FINE_TUNED = 200
"""Number of held-out documents from which the probabilities of a fine-tuned model are learned well enough."""


class HeldOutRankers(NamedTuple):
    """Rankers that were trained without some documents, and the features of these documents."""

    rankers: Rankers
    X: Features  # features of the held-out documents, without those that exist only because of these documents
    post_processor: str | None  # gives scores from 0 to 1; None: the rankers' own
    unwanted: np.ndarray | None = None  # the sparse features that exist only because of the held-out documents


class TrainWithout(Protocol):
    """A function that trains rankers on some documents (ascending rows) in order to score others."""

    def __call__(
        self, trained_on: np.ndarray, held_out: np.ndarray, hidden: np.ndarray | None = None
    ) -> HeldOutRankers:
        """Train the rankers. The labels marked in ``hidden`` (bool [labels]) are removed from the documents."""


TreesAndParams = tuple[Sequence[Sequence[spmatrix]], Sequence[RankerPredParams]]
"""The cluster matrices of each tree, and the prediction parameters of its rankers."""
BuildTrees = Callable[[Features, csr_matrix], TreesAndParams]
"""Build the trees over the labels of some documents."""


def held_out_trainer(
    X: Features,
    Y: spmatrix,
    plant: BuildTrees,  # must not use the held-out documents: trees built from them would find them too easily
    *,
    nr_names: int = 0,
    R: spmatrix | None = None,
    params: RankerParams,
    user_negatives: Mapping[int, spmatrix] | None = None,
    threads: int = -1,
    seed: int = 0,
) -> TrainWithout:
    """Return a function that trains rankers without held-out documents, but with all label names (the last rows)."""
    Y = csr_matrix(Y)
    counts = None if X.sparse is None else np.bincount(X.sparse.indices, minlength=X.nr_sparse)
    names = np.arange(X.nr_rows - nr_names, X.nr_rows)

    def train(trained_on: np.ndarray, held_out: np.ndarray, hidden: np.ndarray | None = None) -> HeldOutRankers:
        scored = X.rows(held_out)
        rare = rare_features(counts, scored)
        rows = np.concatenate([trained_on, names])
        some, labels = without_features(X.rows(rows), rare), without_labels(Y[rows], len(trained_on), hidden)
        chains, pred_params = plant(some, labels)
        models = train_trees(
            some, labels, chains, R=None if R is None else csr_matrix(R)[rows].multiply(labels), params=params,
            pred_params=pred_params, threads=threads, seed=seed,
            user_negatives={level: csr_matrix(one)[rows] for level, one in (user_negatives or {}).items()},
        )  # fmt: skip
        post = bounded_post_processor(models[0].levels[-1].pred_params.post_processor)
        return HeldOutRankers(rankers_of(models), without_features(scored, rare), post, rare)

    return train


def without_labels(Y: csr_matrix, nr_documents: int, hidden: np.ndarray | None) -> csr_matrix:
    """Return Y without the hidden labels (bool [labels]) in its first ``nr_documents`` rows."""
    if hidden is None or not hidden.any():
        return Y
    out = Y.copy()
    documents = slice(0, out.indptr[nr_documents])
    out.data[documents][hidden[out.indices[documents]]] = 0
    out.eliminate_zeros()
    return out


def held_out_scorer(
    X: Features, Y: spmatrix, plant: BuildTrees, *, tfidf: "Tfidf | None" = None, threads: int = -1, **more: Any
) -> ScoreHeldOut:
    """Return a function that trains rankers on some documents and scores others.

    ``tfidf`` has made the features, and makes those of cut documents; ``more`` are further arguments of
    `held_out_trainer`.
    """
    train = held_out_trainer(X, Y, plant, threads=threads, **more)

    def score(
        trained_on: np.ndarray, held_out: np.ndarray, hidden: np.ndarray, short: Sequence[str] | None
    ) -> HeldOutScores:
        rankers, scored, post, unwanted = train(trained_on, held_out, hidden)

        def predicted(documents: Features) -> csr_matrix:
            return rankers.predict(documents, only_topk=FUSED_LABELS, post_processor=post, threads=threads)

        if tfidf is None or short is None:
            return HeldOutScores(predicted(scored))
        cut = without_features(as_features(tfidf.transform(short, threads=threads, quiet=True)), unwanted)
        return HeldOutScores(
            predicted(scored), tfidf.information(scored.sparse), predicted(cut), tfidf.information(cut.sparse)
        )

    return score


def evidence_choice(params: XTransformerParams, names: Sequence[str] | None, nr_documents: int) -> EvidenceChoice:
    """Return whether a model with an encoder learns probabilities, and whether it uses label names as evidence."""
    # If head and rankers are averaged, held-out documents also show whether the head makes predictions worse.
    averaged = params.do_fine_tune and params.head_gives_probabilities
    by_default = (
        "" if averaged
        else "without label names, an encoder is trained on all documents (--probabilities true holds some out)"
    )  # fmt: skip
    skip_reasons = SkipReasons(
        "" if names else "no label names", "--only-encoder, without rankers" if params.only_encoder else "", by_default
    )
    return choose_evidence(params.probabilities, params.label_names, nr_documents, skip_reasons)


def held_out_documents(nr_documents: int, seed: int, *, fine_tuned: bool) -> np.ndarray:
    """Return the documents to hold out from encoder and auxiliary rankers, ascending; empty if there are too few.

    An encoder that is not fine-tuned loses nothing by them, so that more documents are held out.
    """
    more = {"enough": _ENOUGH_OF_FINE_TUNED} if fine_tuned else {}
    folds = held_out_folds(nr_documents, seed, most=1, **more)
    return folds[0] if folds else np.zeros(0, np.int64)


def rare_features(counts: np.ndarray | None, held_out: Features) -> np.ndarray | None:
    """Return a mask of the sparse features that exist only due to held-out documents; None without sparse features.

    A vectorizer drops the rarest features. Some features reach the minimum number of documents only with the held-out
    documents. New documents never have such features, so keeping them would make held-out scores too low.
    """
    if counts is None or held_out.sparse is None or not counts.any():
        return None
    others = counts - np.bincount(held_out.sparse.indices, minlength=len(counts))
    return (others < counts[counts > 0].min()) & (counts > 0)


def without_features(X: Features, unwanted: np.ndarray | None) -> Features:
    """Return the documents without the sparse features in a mask; each document keeps its norm."""
    if unwanted is None or X.sparse is None:
        return X
    before, kept = _norms(X.sparse), X.sparse.copy()
    kept.data[unwanted[kept.indices]] = 0
    kept.eliminate_zeros()
    after = _norms(kept)
    scale = np.divide(before, after, out=np.ones_like(after), where=after > 0)
    kept.data *= np.repeat(scale, np.diff(kept.indptr)).astype(np.float32)
    return Features(kept, X.dense)


def _norms(matrix: csr_matrix) -> np.ndarray:
    return np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1), np.float64)).ravel()
