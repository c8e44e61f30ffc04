"""The candidate labels of held-out documents, and the weights by which their probabilities are right."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import expit

from xmc_tf.fusion.candidates import LabelCandidates
from xmc_tf.fusion.logistic import FIXED, fit_logistic
from xmc_tf.fusion.rank_calibration import (
    SAME,
    best_first,
    calibrated,
    learn_rank_weights,
    learn_short_rank_weights,
    rank_in_document,
)
from xmc_tf.fusion.weighted_numbers import NAMES, OF_SHORT_TEXTS, first_weights
from xmc_tf.label_names import Mentions

_PARTS = 5  # of the held-out documents, in cross-fitting
_MOST_OF = 0.8  # of the right candidates
_FEWEST_RIGHT = 10  # right labels without documents that are enough to learn how often such labels are right
_PENALTY = 1.0
_PENALTY_OF_FEW, _WITHOUT_NAMES = 2000.0, 500.0  # divided by the right candidates; other vocabularies had names
_FEW_RIGHT = 20.0  # right candidates that show half of a shift
_PENALTY_OF_NEW = 100.0  # keeps the weights of labels without documents close to those learned on other vocabularies
_SHIFTS, _LARGEST_SHIFT = 12, 4.0
_MOST_SHIFTED = 3000  # documents from which the shift is computed
_SHOWN = 10  # labels of a document that are calibrated


class Weights(NamedTuple):
    """The weights of the numbers of a candidate, and of its rank."""

    known: np.ndarray  # float64, one for each of weighted_numbers.NAMES
    new: np.ndarray  # the same, for labels without training documents
    ranks: np.ndarray  # float64, one for each of rank_calibration.RANK_NAMES
    short_ranks: np.ndarray = SAME  # the same, for texts of which nearly nothing is known


@dataclass(frozen=True, eq=False)
class HeldOutCandidates:
    """Candidate labels of held-out documents, of which it is known whether they are right."""

    rows: np.ndarray  # int64: the document of each candidate, ascending
    numbers: np.ndarray  # float64 [candidates, weighted numbers]
    right: np.ndarray  # bool, as all of the following
    known: np.ndarray  # the fold's rankers were trained on documents of the label
    frequent: np.ndarray  # on at least as many as the rarest label of all has
    hidden: np.ndarray  # the fold's rankers were trained without the label's documents
    scarcity: np.ndarray  # float64: how little of the document's text is known

    def only(self, some: np.ndarray) -> Self:
        """Return the candidates of some documents (bool [candidates])."""
        return type(self)(*(getattr(self, one.name)[some] for one in fields(self)))

    def fit(
        self, guess: Weights | None = None, short: "HeldOutCandidates | None" = None, *, encoded: bool = False
    ) -> Weights:
        """Return the weights by which the probabilities are right; from a good guess on, this takes less time.

        The weights of short texts are learned from ``short``, the candidates of cut documents, after all others, so
        that the probabilities of whole documents do not depend on them. Without ``short``, they are those of the guess.
        With ``encoded``, the starting weights are those of models with an encoder.
        """
        whole = np.where(OF_SHORT_TEXTS, 0.0, self.numbers)
        numbers, right, known = whole, self.right, self.known
        # If rare labels were dropped from the data, a label with even fewer documents elsewhere is right in its fold,
        # and teaches that rare labels are right. If labels are equally frequent, few others are left.
        typical = known & self.frequent
        if right[typical].sum() < _MOST_OF * right[known].sum():
            typical = known
        first = first_weights(encoded)
        of_known = _fitted(
            numbers[typical], right[typical], first, _PENALTY + self._of_few(right[typical]), guess and guess.known
        )
        # Labels whose documents are all held out show how often labels without documents are right, as in a vocabulary,
        # most labels of which are never used. If few of them are right, only hidden labels stand for such labels.
        unused = ~known & ~self.hidden
        vocabulary = right[unused].sum() >= _FEWEST_RIGHT
        new = self.hidden | unused if vocabulary else self.hidden
        start = _shifted(first, numbers[new], right[new])
        of_new = _fitted(
            numbers[new], right[new], start, _PENALTY_OF_NEW + self._of_few(right[new]), guess and guess.new
        )
        raw = np.where(known, numbers @ of_known, numbers @ of_new)
        taught, probability = typical | new, sigmoid(raw)
        ranks = rank_in_document(self.rows, best_first(self.rows, probability), known)
        of_ranks = learn_rank_weights(probability[taught], ranks[taught], right[taught], guess and guess.ranks)
        of_new[0] += self._shift(raw, unused if vocabulary else self.hidden, of_ranks)
        of_short_ranks = SAME if guess is None else guess.short_ranks
        if short is not None:
            of_known[OF_SHORT_TEXTS] = short.fit_of_short_texts(of_known)
        elif guess is not None:
            of_known[OF_SHORT_TEXTS] = guess.known[OF_SHORT_TEXTS]
        of_new[OF_SHORT_TEXTS] = of_known[OF_SHORT_TEXTS]
        weights = Weights(of_known, of_new, of_ranks, of_short_ranks)
        if short is None:
            return weights
        probability, ranks = short._before_calibration(weights)
        some = short.known
        return weights._replace(short_ranks=learn_short_rank_weights(
            probability[some], ranks[some], short.right[some], short.scarcity[some], of_ranks
        ))  # fmt: skip

    def _of_few(self, right: np.ndarray) -> float:
        """Return the penalty that keeps weights of few right candidates close to those of other vocabularies."""
        named = self.numbers[:, NAMES.index("name present")].any()
        return (_PENALTY_OF_FEW if named else _WITHOUT_NAMES) / max(right.sum(), 1)

    def fit_of_short_texts(self, weights: np.ndarray) -> np.ndarray:
        """Return the weights of the numbers of short texts, given all others; these candidates are of cut documents."""
        some = self.known & (self.numbers[:, OF_SHORT_TEXTS] != 0).any(axis=1)
        columns = np.column_stack([self.numbers[some] @ weights, self.numbers[some][:, OF_SHORT_TEXTS]])
        start, penalty = np.zeros(columns.shape[1]), np.ones(columns.shape[1])
        start[0], penalty[0] = 1.0, FIXED
        return _fitted(columns, self.right[some], start, penalty)[1:]

    def probabilities(self, weights: Weights) -> tuple[np.ndarray, np.ndarray]:
        """Return the calibrated probability of each candidate, and its rank in its document."""
        probability, ranks = self._before_calibration(weights)
        return calibrated(probability, ranks, weights.ranks, weights.short_ranks, self.scarcity), ranks

    def _before_calibration(self, weights: Weights) -> tuple[np.ndarray, np.ndarray]:
        raw = np.where(self.known, self.numbers @ weights.known, self.numbers @ weights.new)
        probability = sigmoid(raw)
        return probability, rank_in_document(self.rows, best_first(self.rows, probability), self.known)

    def cross_fitted(self, weights: Weights, *, encoded: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return the same by weights that were fitted to other documents only; ``weights`` were fitted to all.

        On the documents to which they are fitted, the weights of few documents look several points better than on new
        ones.
        """
        best, ranks = np.empty(len(self.right), np.float32), np.empty(len(self.right), np.int64)
        for part in range(_PARTS):
            some = self.rows % _PARTS == part
            if some.any():
                best[some], ranks[some] = self.only(some).probabilities(self.only(~some).fit(weights, encoded=encoded))
        return best, ranks

    def _shift(self, raw: np.ndarray, wanted: np.ndarray, rank_weights: np.ndarray) -> float:
        """Return what to add to the log-odds of labels without documents so that their best ones are calibrated."""
        documents = np.unique(self.rows)
        some = np.isin(self.rows, documents[:: -(-len(documents) // _MOST_SHIFTED)]) if len(documents) else wanted
        rows, raw, right, known, wanted = (one[some] for one in (self.rows, raw, self.right, self.known, wanted))
        low, high = -_LARGEST_SHIFT, _LARGEST_SHIFT
        if not right[wanted].any():
            return 0.0
        for _ in range(_SHIFTS):
            shift = (low + high) / 2
            probability = sigmoid(raw + shift * ~known)
            order = best_first(rows, probability)
            best = calibrated(probability, rank_in_document(rows, order, known), rank_weights)
            top = wanted & (rank_in_document(rows, order, np.ones_like(known)) < _SHOWN)
            if best[top].sum() > right[top].sum():
                high = shift
            else:
                low = shift
        return round(_trusted(right[wanted]) * (low + high) / 2, 3)


def _fitted(
    numbers: np.ndarray, right: np.ndarray, start: np.ndarray, penalty: float | np.ndarray = 1.0,
    guess: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Fit the weights, and round them so that they do not depend on the version of the math libraries."""
    return np.round(fit_logistic(numbers, right, start, penalty, guess), 6)


def _shifted(weights: np.ndarray, numbers: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Change the constant so that the mean probability equals the share of correct candidates; return the weights."""
    shifted = weights.copy()
    if not right.any() or right.all():
        return shifted
    for _ in range(_SHIFTS):
        shifted[0] += math.log(right.mean() / sigmoid(numbers @ shifted).mean())
    return weights + _trusted(right) * (shifted - weights)


def _trusted(right: np.ndarray) -> float:
    """Return how much of a shift that few right candidates show is trusted."""
    return right.sum() / (right.sum() + _FEW_RIGHT)


def is_right(found: LabelCandidates, truth: csr_matrix) -> np.ndarray:
    """Return, for each candidate, whether its document has the label."""
    truth = truth.sorted_indices()
    keys = found.rows * truth.shape[1] + found.labels
    positives = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr)) * truth.shape[1] + truth.indices
    place = np.minimum(np.searchsorted(positives, keys), max(len(positives) - 1, 0))
    return positives[place] == keys if len(positives) else np.zeros(len(keys), bool)


def sigmoid(raw: np.ndarray) -> np.ndarray:
    """Return probabilities of log-odds; it does not overflow for a label far from all documents."""
    return expit(raw).astype(np.float32)


class Folds:
    """The held-out documents and hidden labels of each fold, on which the fold's rankers were not trained."""

    def __init__(
        self, truth: csr_matrix, documents: np.ndarray, hidden: Sequence[np.ndarray], sizes: Sequence[int]
    ) -> None:
        self._truth, self._documents, self._hidden = truth, documents, hidden
        self._ranges = list(pairwise(np.cumsum([0, *sizes]).tolist()))

    def documents_elsewhere(self, found: "LabelCandidates | Mentions") -> np.ndarray:
        """Return, for each candidate, the number of documents with its label that its fold's rankers trained on."""
        counts = self._documents[found.labels]
        for first, last in self._ranges:
            own = np.bincount(self._truth[first:last].indices, minlength=len(self._documents))
            some = slice(*np.searchsorted(found.rows, [first, last]))
            counts[some] -= own[found.labels[some]]
        counts[self.hidden_of(found)] = 0
        return counts

    def hidden_of(self, found: "LabelCandidates | Mentions") -> np.ndarray:
        """Return, for each candidate, whether its label was hidden from the rankers of its fold."""
        out = np.zeros(len(found.rows), bool)
        for one, (first, last) in zip(self._hidden, self._ranges, strict=False):
            some = slice(*np.searchsorted(found.rows, [first, last]))
            out[some] = one[found.labels[some]]
        return out

    @property
    def open_vocabulary(self) -> bool:
        """Whether there are labels without documents, at least as many as each fold alone has documents of.

        A vocabulary that comes from the documents has none. New documents then have no labels that were never used.
        """
        alone = [
            np.bincount(self._truth[first:last].indices, minlength=len(self._documents)) == self._documents
            for first, last in self._ranges
        ]
        unused = self._documents == 0
        return bool(unused.sum() >= max((np.sum(one & ~unused) for one in alone), default=0))

    @property
    def nr_hidden(self) -> int:
        """The number of hidden labels, summed over the held-out documents."""
        return sum(
            int(one[self._truth[first:last].indices].sum())
            for one, (first, last) in zip(self._hidden, self._ranges, strict=False)
        )
