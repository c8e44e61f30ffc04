"""Held-out documents cut to a few words: they show what scores mean for texts of which little is known."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.data import Texts
from xmc_tf.label_names import Mentions

MOST = 2000  # documents of a fold that are cut
_MOST_WORDS, _MOST_CHARACTERS = 4, 6
_TYPICAL = 10  # percentile of the held-out documents' information, from which on a text is known well enough


class ShortTexts(NamedTuple):
    """Cut documents, as the rankers that were not trained on them see them."""

    documents: np.ndarray  # int64: the place of each among the held-out documents, ascending
    scores: csr_matrix  # the rankers' scores
    information: np.ndarray  # float64: how much of each text is known
    mentions: Mentions | None = None
    vectors: np.ndarray | None = None  # embeddings of unit norm


class HeldOutScores(NamedTuple):
    """The scores of a fold's held-out documents, by rankers that were trained without them."""

    scores: csr_matrix
    information: np.ndarray | None = None  # float64: how much of each text is known; None: unknown
    short: csr_matrix | None = None  # scores of the documents of `cut_rows`, cut to a few words; None: not cut
    short_information: np.ndarray | None = None
    short_vectors: np.ndarray | None = None


def cut_rows(count: int) -> np.ndarray:
    """Return which of a fold's held-out documents are cut."""
    return np.arange(0, count, max(1, -(-count // MOST)))


def cut_texts(texts: Texts, rows: np.ndarray, seed: int) -> list[str]:
    """Return one to four successive words of each text, or as few characters where no blanks separate words."""
    draw = np.random.default_rng([seed, 0x63757473])
    return [_some_of(texts[int(row)], draw) for row in rows]


def _some_of(text: str | bytes, draw: np.random.Generator) -> str:
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    words: Sequence[str] = text.split()
    wanted, space = int(draw.integers(1, _MOST_WORDS + 1)), " "
    if len(words) < _MOST_WORDS:
        words, wanted, space = text, int(draw.integers(1, _MOST_CHARACTERS + 1)), ""
    first = int(draw.integers(0, max(len(words) - wanted, 0) + 1))
    return space.join(words[first : first + wanted])


def typical_information(information: np.ndarray) -> float:
    """Return how much is known of a text from which on its scores mean what they mean for whole documents."""
    return float(np.percentile(information, _TYPICAL)) if len(information) else 0.0


def scarcity(information: np.ndarray, typical: float) -> np.ndarray:
    """Return how little of each text is known: 1: no word; 0: as much as of whole documents."""
    return np.clip(1.0 - information / typical, 0.0, 1.0) if typical > 0 else np.zeros(len(information))
