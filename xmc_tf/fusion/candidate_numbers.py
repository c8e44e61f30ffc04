"""Numbers about candidate labels, for NumPy and for TensorFlow."""

from functools import cached_property
from typing import Any, Protocol

import numpy as np

from xmc_tf.fusion.candidates import NOT_MENTIONED, LabelCandidates
from xmc_tf.label_names.kernels import EXACT, PARTIAL

RARITY = 1 / 160  # unit of the rarity of a name
LEAST_SHARE = 1e-3
LARGEST = 9.0  # bound of log-odds
NAMELESS = np.float32(0.1)
"""The share of a probability that models of names alone keep in a text without names: few are right elsewhere."""

Numbers = Any  # an array or a tensor: one number per candidate


class CandidateOperations(Protocol):
    """Operations on numbers of candidates, which are sorted by text."""

    def number(self, condition: Any) -> Numbers: ...  # float64
    def only(self, condition: Any, x: Numbers) -> Numbers: ...  # 0 where the condition is false
    def maximum(self, x: Numbers, y: Any) -> Numbers: ...
    def clip(self, x: Numbers, least: float, most: float) -> Numbers: ...
    def log(self, x: Numbers) -> Numbers: ...
    def best_of_text(self, x: Numbers) -> Numbers: ...  # the maximum over the candidates of the same text
    def sum_of_text(self, x: Numbers) -> Numbers: ...


class CandidateNumbers:
    """Float64 numbers, one per candidate; conditions are 1 or 0."""

    def __init__(
        self,
        ops: CandidateOperations,
        *,
        probability: Numbers,  # the rankers' score, from 0 to 1; 0: they do not suggest the label
        match_precision: Numbers,  # of the label's name in the text; 0: too small to count
        mention: Any,  # each candidate's entry of Mentions or GraphMentions; zeros if its name is not in the text
        is_mentioned: Any,
        name_similarity: Numbers,  # of text and name; 0 if they are not compared
        center_cosine: Numbers,  # of the text and the mean of the label's documents
        log_documents: Numbers,  # log(1 + documents of the label)
        scarcity: Numbers,  # how little of the text is known, from 0 to 1
    ) -> None:
        self.ops, self.probability = ops, probability
        self._match_precision, self._mention, self._is_mentioned = match_precision, mention, is_mentioned
        self.name_similarity, self.center_cosine, self.log_documents = name_similarity, center_cosine, log_documents
        self.scarcity = scarcity

    @cached_property
    def one(self) -> Numbers:
        return self.ops.number(self.probability >= 0)

    @cached_property
    def ranked(self) -> Numbers:
        return self.ops.number(self.probability > 0)

    @cached_property
    def score(self) -> Numbers:
        return self.ops.only(self.probability > 0, self.log_odds(self.probability))

    @cached_property
    def named(self) -> Numbers:
        return self.ops.number(self._match_precision > 0)

    @cached_property
    def name(self) -> Numbers:
        return self.ops.only(self._match_precision > 0, self.log_odds(self._match_precision))

    @cached_property
    def mentioned(self) -> Numbers:
        return self.ops.number(self._is_mentioned)

    @cached_property
    def whole(self) -> Numbers:
        return self.mentioned * self.ops.number(self._mention.grade != PARTIAL)

    @cached_property
    def guessed(self) -> Numbers:
        """The scarcity of the text; 0 for labels whose whole name is in it, which says enough."""
        return self.scarcity * (1.0 - self.whole)

    @cached_property
    def unknown(self) -> Any:
        """Whether the text has no known word and does not mention the label."""
        return (self.mentioned == 0.0) & (self.scarcity == 1.0)

    @cached_property
    def nameless(self) -> Any:
        """Whether only the label's name is known, and the text mentions no name at all, not even in part."""
        return (self.log_documents == 0.0) & (self.ops.best_of_text(self.mentioned) == 0.0)

    @cached_property
    def part(self) -> Numbers:
        return self.mentioned - self.whole

    @cached_property
    def exact(self) -> Numbers:
        return self.whole * self.ops.number(self._mention.grade == EXACT)

    @cached_property
    def coverage(self) -> Numbers:
        return self.ops.number(self._mention.coverage)

    @cached_property
    def rarity(self) -> Numbers:
        return RARITY * self.ops.number(self._mention.rarity)

    @cached_property
    def several_words(self) -> Numbers:
        return self.ops.number(self._mention.words > 1)

    @cached_property
    def often(self) -> Numbers:
        return self.ops.log(self.ops.maximum(self.ops.number(self._mention.counts), 1.0))

    @cached_property
    def position(self) -> Numbers:
        return self.ops.number(self._mention.position)

    @cached_property
    def inside(self) -> Numbers:
        return self.ops.number(self._mention.inside)

    @cached_property
    def share(self) -> Numbers:
        """The logarithm of the name's share of all that the text mentions; 0 if it is not mentioned."""
        strength = self.rarity * self.coverage * (1.0 + self.often)
        of_text = self.ops.sum_of_text(strength) + LEAST_SHARE
        return self.mentioned * self.ops.log(strength / of_text + LEAST_SHARE)

    def log_odds(self, probability: Numbers) -> Numbers:
        return log_odds(probability, self.ops)


class ArrayOperations:
    """The operations in NumPy, for candidates sorted by text."""

    maximum, clip, log = staticmethod(np.maximum), staticmethod(np.clip), staticmethod(np.log)

    def __init__(self, rows: np.ndarray) -> None:
        self._count = len(rows)
        self._first = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]])[: len(rows)])

    def number(self, condition: np.ndarray) -> np.ndarray:
        return condition.astype(np.float64)

    def only(self, condition: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.where(condition, x, 0.0)

    def best_of_text(self, x: np.ndarray) -> np.ndarray:
        return self._over_rows(x, np.maximum)

    def sum_of_text(self, x: np.ndarray) -> np.ndarray:
        return self._over_rows(x, np.add)

    def _over_rows(self, x: np.ndarray, over: np.ufunc) -> np.ndarray:
        if not self._count:
            return np.zeros(0)
        return np.repeat(over.reduceat(x, self._first), np.diff(np.append(self._first, self._count)))


def candidate_numbers(found: LabelCandidates, log_documents: np.ndarray) -> CandidateNumbers:
    """Return the numbers of candidates in NumPy."""
    return CandidateNumbers(
        ArrayOperations(found.rows), probability=found.score, match_precision=found.precision,
        mention=found.mentions.only(found.mention), is_mentioned=found.mention != NOT_MENTIONED,
        name_similarity=found.similarity, center_cosine=found.closeness, log_documents=log_documents,
        scarcity=found.scarcity,
    )  # fmt: skip


def log_odds(probability: Numbers, ops: Any = np) -> Numbers:
    """Return log(p / (1 - p)), limited to the range from -``LARGEST`` to ``LARGEST``."""
    least = float(1.0 / (1.0 + np.exp(LARGEST)))
    probability = ops.clip(probability, least, 1.0 - least)
    return ops.log(probability / (1.0 - probability))
