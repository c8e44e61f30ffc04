"""Find the text columns of a table: long, filled and varied ones, or those that predict the labels of rows best."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, diags_array

from xmc_tf.tables.column_names import NAMES, TEXTS, TITLES, is_named, plain, record_of

_WORD = re.compile(r"[^\W\d_]+")
_LETTERS = 1500  # of a cell, from its beginning
_LEAST_WORDS, _LEAST_VARIED = 2.5, 0.5  # mean words of a filled cell; share of cells that differ
_FAR = 3.0  # times as many words
_EMPTY = 0.05  # share of rows without a text, of which another column has most
_TELLING = 0.95  # share of rows whose labels a column contains
_NEARLY_ALL = 0.95  # P@1, above which other columns cannot be much better
_COLUMNS, _FOLDS = 7, 3
TRIED = 1000
"""Number of rows on which columns are compared."""
_LEAST_TRIED, _LEAST_OFTEN = 50, 2  # rows with labels; documents of a label
_SURE, _LEAST_GAIN = 2.0, 0.005  # standard errors, and P@1, by which columns of any name must help


@dataclass(frozen=True)
class TextChoice:
    """The positions of the text columns, and what a user should know about the choice."""

    texts: tuple[int, ...]
    measured: str = ""  # what was measured, as the end of a sentence
    warning: str = ""
    better: tuple[int, ...] = ()  # the columns that a warning recommends


class TextColumns:
    """The columns of a table that may hold its texts.

    Args:
        names: names of all columns.
        rows: a sample of the rows.
        free: positions of the columns that hold neither labels nor identifiers.
        text_of: function that returns the text of a cell.
        labels: the labels of each row; empty if they are not known.
    """

    def __init__(
        self, names: Sequence[str], rows: Sequence[Sequence[Any]], free: Sequence[int],
        text_of: Callable[[Any], str], labels: Sequence[Sequence[str]],
    ) -> None:  # fmt: skip
        self.names, self.labels = names, labels
        self.cells = {at: [text_of(row[at])[:_LETTERS].strip() for row in rows] for at in free}
        self.words = {at: [*map(words_of, cells)] for at, cells in self.cells.items()}
        self.size = {at: sum(map(len, found)) / max(len(rows), 1) for at, found in self.words.items()}
        order = {name: number for number, name in enumerate(TITLES)}
        titles = [at for at in free if self.size[at] and (is_named(names[at], TITLES) or self._is_title(at))]
        self.titles = sorted(titles, key=lambda at: order.get(plain(names[at].rpartition(".")[2]), len(order)))
        self.named = [at for at in free if is_named(names[at], TEXTS) and self.size[at] and at not in titles]
        found = [at for at in free if self._is_text(at) or at in (*self.titles, *self.named)]
        self.found = sorted(found, key=lambda at: -self.size[at])[:_COLUMNS]

    def _is_text(self, at: int) -> bool:
        """Return whether a column holds texts, judged by their words, rather than names, codes or boilerplate."""
        cells, words = [one for one in self.cells[at] if one], sum(map(len, self.words[at]))
        if words < _LEAST_WORDS * len(cells) or len(set(cells)) < max(2, _LEAST_VARIED * len(cells)):
            return False
        return 2 * sum(len(one.split()) > 1 or one[0] >= "\u2e80" for one in cells) > len(cells)

    def _is_title(self, at: int) -> bool:
        """Return whether a column holds names of things, rather than of people, which have two words."""
        return plain(self.names[at].rpartition(".")[2]) in NAMES and self._is_text(at)

    def choose(self, first: int | None) -> TextChoice:
        """Return the text columns.

        Args:
            first: position of the column whose name says that it holds the texts; None if there is none.
        """
        found = self._without_labels(first)
        longest = max(found, key=self.size.__getitem__, default=None)
        if longest is None:
            return TextChoice(() if first is None else self._with_title(first))
        usual = self._with_title(longest if first not in found else first)
        others = [at for at in found if at not in usual]
        is_text = self.names[usual[-1]].strip().lower() == "text"
        if others and not is_text and self.trial is not None:
            return self._tried(self.trial, found, usual)
        lack, at = self._lacking(usual, others)
        if at is not None and not is_text:
            return TextChoice((*sorted((*usual, at)),))
        if at is None and others and usual[-1] not in (*self.titles, *self.named):
            at = others[0]
            lack = f"too few rows with labels to compare {self._listed(usual)} with {self._listed((at,))}"
        return TextChoice(usual, "", lack, () if at is None else (*usual, at))

    def _with_title(self, text: int) -> tuple[int, ...]:
        """Return a column after the title of its record: a title is part of the text, and may be all of it."""
        same = [at for at in self.titles if record_of(self.names[at]) == record_of(self.names[text])]
        return (text,) if text in same or not same else (same[0], text)

    def _without_labels(self, first: int | None) -> list[int]:
        """Return the columns of texts, but not those whose cells nearly all contain the row's labels."""
        rows = [(row, [words_of(one) for one in own]) for row, own in enumerate(self.labels) if own]

        def tells(at: int) -> bool:
            texts = ((f" {' '.join(self.words[at][row])} ", own) for row, own in rows)
            found = sum(all(one and f" {' '.join(one)} " in text for one in own) for text, own in texts)
            return found > _TELLING * len(rows)

        telling = {at for at in self.found if at != first and len(rows) >= _LEAST_TRIED and tells(at)}
        return [at for at in self.found if at not in telling] or self.found

    def _lacking(self, texts: Sequence[int], others: Sequence[int]) -> tuple[str, int | None]:
        """Return a column that seems to be needed too, and why."""
        rows = len(self.cells[texts[0]])
        empty = [row for row in range(rows) if not any(self.cells[at][row] for at in texts)]
        for at in others:
            name = repr(self.names[at])
            size = sum(self.size[one] for one in texts)
            if self.size[at] > _FAR * size:
                times = f"{self.size[at] / size:,.0f} times as long"
                return f"column {name} is not used, although its texts are {times}", at
            filled = sum(bool(self.cells[at][row]) for row in empty)
            if len(empty) > _EMPTY * rows and 2 * filled > len(empty):
                share = f"{len(empty):,} of {rows:,} rows have no text in {self._listed(texts)}"
                return f"{share}; {name}, which is not used, has one in {filled:,} of them", at
        return "", None

    def _listed(self, texts: Sequence[int]) -> str:
        return " and ".join(repr(self.names[at]) for at in texts)

    @cached_property
    def trial(self) -> "_Trial | None":
        """Predicts labels from some columns; None if there are too few rows with labels."""
        rows = [row for row, own in enumerate(self.labels) if own]
        words = {at: [self.words[at][row] for row in rows] for at in self.found}
        trial = _Trial(words, [self.labels[row] for row in rows])
        return trial if len(rows) >= _LEAST_TRIED and trial.often >= 2 else None

    def _tried(self, trial: "_Trial", found: Sequence[int], usual: Sequence[int]) -> TextChoice:
        """Return the columns that predict the labels best: the best one, and all others that help it."""
        alone = {at: trial.hits((at,)) for at in found}
        chosen = [max(found, key=lambda at: float(alone[at].mean()))]
        hits = alone[chosen[0]]
        while rest := [at for at in found if at not in chosen]:
            joined = {at: trial.hits((*chosen, at)) for at in rest}
            gains = {at: float((joined[at] - hits).mean()) for at in rest}
            helps = [at for at in rest if self._helps(at, chosen, joined[at] - hits)]
            if not helps:
                break
            best = max(helps, key=gains.__getitem__)
            chosen.append(best)
            hits = joined[best]
        texts = (*sorted(chosen),)
        others = {(at,): one for at, one in alone.items() if at not in chosen} | {(*usual,): trial.hits(usual)}
        others = {places: one for places, one in others.items() if set(places) != set(texts)}
        shown = sorted(others, key=lambda places: -float(others[places].mean()))[:2]
        measured = f"P@1 {100 * hits.mean():.1f} in a trial on {len(hits):,} rows" + "".join(
            f", {100 * others[places].mean():.1f} with {self._listed(places)}" for places in shown
        )
        unclear = [at for at in found if at not in chosen and self.size[at] and not _is_surely_better(hits, alone[at])]
        if unclear and hits.mean() < _NEARLY_ALL:
            at = max(unclear, key=lambda at: float(alone[at].mean()))
            about = f"{self._listed(texts)} and {self.names[at]!r} predict the labels about equally well"
            return TextChoice(texts, measured, f"{about} ({measured})", (at,))
        return TextChoice(texts, measured)

    def _helps(self, at: int, chosen: Sequence[int], gains: np.ndarray) -> bool:
        """Return whether a column helps others to predict; one with a name of texts need not help, but may not harm."""
        gain, error = float(gains.mean()), float(gains.std()) / len(gains) ** 0.5
        records = {record_of(self.names[one]) for one in chosen}
        if at in self.named or (at in self.titles and record_of(self.names[at]) in records):
            return gain >= -error
        return gain > max(_SURE * error, _LEAST_GAIN)


def _is_surely_better(ours: np.ndarray, theirs: np.ndarray) -> bool:
    gains = ours - theirs
    return float(gains.mean()) > _SURE * float(gains.std()) / len(gains) ** 0.5


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case; of Chinese and Japanese texts, all pairs of characters."""
    found: list[str] = []
    for word in _WORD.findall(text.lower()):
        if word[0] >= "\u2e80" and len(word) > 2:
            found += [word[at : at + 2] for at in range(len(word) - 1)]
        else:
            found.append(word)
    return found


class _Trial:
    """Predicts the labels of rows by the labels whose other rows have similar words (Rocchio's classifier)."""

    def __init__(self, words: Mapping[int, Sequence[Sequence[str]]], labels: Sequence[Sequence[str]]) -> None:
        self._vocabulary: dict[str, int] = {}
        counts = {at: self._matrix(rows) for at, rows in words.items()}
        shape = (len(labels), len(self._vocabulary))
        for one in counts.values():
            one.resize(shape)
        self._counts = counts
        self._vocabulary = {}
        self._labels = self._matrix(labels)
        frequency = self._labels.getnnz(axis=0)
        self.often = int((frequency >= _LEAST_OFTEN).sum())
        """The number of labels that some rows can be learned from while another one is held out."""

    def _matrix(self, rows: Sequence[Sequence[str]]) -> csr_matrix:
        numbers = self._vocabulary
        found = [[numbers.setdefault(word, len(numbers)) for word in row] for row in rows]
        ends = np.cumsum([0, *map(len, found)])
        cells = np.fromiter((one for row in found for one in row), np.int32, int(ends[-1]))
        matrix = csr_matrix((np.ones(len(cells)), cells, ends), shape=(len(rows), max(len(numbers), 1)))
        matrix.sum_duplicates()
        return matrix

    def hits(self, columns: Sequence[int]) -> np.ndarray:
        """Return 1 for each row whose best label is right, else 0; rows are predicted from the others' folds."""
        X = sum((self._counts[at] for at in columns[1:]), self._counts[columns[0]]).tocsr()
        X.data = 1 + np.log(X.data)
        X = _normalized(X @ diags_array(np.log(1 + X.shape[0] / (1 + X.getnnz(axis=0)))))
        right = np.zeros(X.shape[0])
        for fold in range(_FOLDS):
            held = np.arange(X.shape[0]) % _FOLDS == fold
            centers = _normalized(self._labels[~held].T @ X[~held])
            scores = (X[held] @ centers.T).toarray()
            best = scores.argmax(axis=1)
            known = scores.max(axis=1) > 0
            right[held] = known * (np.asarray(self._labels[held][np.arange(len(best)), best]).ravel() > 0)
        return right


def _normalized(matrix: Any) -> csr_matrix:
    norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    return csr_matrix(diags_array(1 / np.maximum(norms, 1e-9)) @ matrix)
