"""Find label names in texts, and learn from training documents how reliable each match is."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from zipfile import BadZipFile

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import JoinedTexts, Texts
from xmc_tf.label_names.characters import runs_of_table, table_of_runs
from xmc_tf.label_names.find_mentions import count_documents, find_matches
from xmc_tf.label_names.index import (
    NameIndex,
    NameWords,
    build_index,
    extend_index,
    reordered_index,
    words_of_names,
)
from xmc_tf.label_names.kernels import NR_GRADES
from xmc_tf.label_names.match_precision import (
    count_matches,
    is_right,
    kinds_of_names,
    precision_elsewhere,
    shown,
)
from xmc_tf.label_names.mentions import Mentions
from xmc_tf.label_names.reading import WordOptions, as_written, reading_of
from xmc_tf.label_names.vocabulary import label_vocabulary
from xmc_tf.params.tfidf import AS_WRITTEN
from xmc_tf.words.abbreviations import abbreviations
from xmc_tf.words.languages import chosen_languages

_FILE = "names.npz"
_RUNS = ("character_starts", "character_values")  # in the file


@dataclass(frozen=True, eq=False)
class LabelNames:
    """Label names as evidence for predictions."""

    index: NameIndex
    precision: np.ndarray  # float32 [names, grades]: the precision of a match; 0: ignored
    reading: WordOptions
    nr_labels: int
    priors: np.ndarray  # float64 [kinds, grades]: the precision of a match of a name whose label has no documents

    def __repr__(self) -> str:
        return f"LabelNames({len(self.index.labels):,} names of {self.nr_labels:,} labels)"

    @classmethod
    def learn(
        cls,
        names: Sequence[str],
        texts: Texts,
        Y: spmatrix,
        threads: int = -1,
        *,
        folds: Sequence[np.ndarray] = (),
        hidden: Sequence[np.ndarray] = (),  # for each fold, bool [labels]: treated as if no document had them
        language: str = AS_WRITTEN,
        unlabelled: Texts = (),
    ) -> tuple[Self, Mentions]:
        """Learn the precision of label names. Also return the mentions in the documents of ``folds``, fold by fold.

        The precision of these mentions is learned without the documents of their fold. Unlabelled texts, too, show how
        rare the words of names are.
        """
        every = JoinedTexts([texts, unlabelled]) if len(unlabelled) else texts
        words, reading, counts = _read(names, every, language, threads)
        index = build_index(words, counts, len(every))
        # A training document sees a name that is as rare as in the other documents, as a new document does. Else names
        # that only the document of their label mentions, a rarity of their own, would seem to be always right.
        elsewhere = build_index(words, np.maximum(counts - 1, 0), max(len(every) - 1, 0))
        found = find_matches(elsewhere, texts, reading, threads)
        Y = csr_matrix(Y)
        right = is_right(elsewhere, found, Y)
        counted = count_matches(elsewhere, found, right, np.bincount(Y.indices, minlength=len(names)))
        of_new = counted._replace(kinds=kinds_of_names(index))
        learned = cls(index, of_new.precision(), reading, len(names), counted.priors())
        held_out = np.concatenate([np.zeros(0, np.int64), *folds])
        mentions = Mentions.of(elsewhere, found, precision_elsewhere(elsewhere, found, Y, folds, hidden))
        number_of = np.full(len(texts), -1)
        number_of[held_out] = np.arange(len(held_out))
        mentions = mentions._replace(rows=number_of[mentions.rows])
        mentions = mentions.only(mentions.rows >= 0)
        return learned, mentions.only(np.argsort(mentions.rows, kind="stable"))

    def with_added(self, lines: Sequence[str]) -> Self:
        """Return a copy that includes the names of labels added after training."""
        added = label_vocabulary(lines)
        words = words_of_names(added.names, added.labels + self.nr_labels, self.reading)
        index = extend_index(self.index, words)
        prior = shown(self.priors[kinds_of_names(index)[len(self.precision) :]])
        precision = np.concatenate([self.precision, prior]).astype(np.float32)
        return dataclasses.replace(self, index=index, precision=precision, nr_labels=self.nr_labels + len(lines))

    def renumbered(self, number_of: np.ndarray) -> Self:
        """Return a copy with new label numbers. -1 removes a label; labels with the same number share their names."""
        numbers = number_of[self.index.labels]
        order = np.argsort(numbers, kind="stable")
        order = order[numbers[order] >= 0]
        index = reordered_index(self.index, order, numbers[order])
        return dataclasses.replace(
            self, index=index, precision=self.precision[order], nr_labels=int(number_of.max()) + 1
        )

    def mentions(self, texts: Texts, threads: int = -1) -> Mentions:
        found = find_matches(self.index, texts, self.reading, threads)
        return Mentions.of(self.index, found, self.precision[found.names, found.grades])

    def _is_consistent(self) -> bool:
        """Return whether sizes and numbers of all arrays match, because compiled code relies on them."""
        index, reading = self.index, self.reading
        if any(one.ndim != 1 or one.dtype.kind not in "iu" for one in (*index, *reading[:-1])):
            return False
        sizes = [
            (index.name_words, index.name_exact, index.weights), (index.listed, index.places),
            (index.labels, self.precision), (reading.forms, reading.lemma_of),
            (reading.lemma_keys, reading.lemma_exact),
        ]  # fmt: skip
        starts = [(index.splits, index.labels, index.name_words), (index.lists, index.words, index.listed)]
        numbers = [
            (index.labels, self.nr_labels), (index.name_words, len(index.words)), (index.name_exact, len(index.exact)),
            (index.listed, len(index.labels)), (reading.lemma_of, len(reading.lemma_keys)),
        ]  # fmt: skip
        return (
            self.precision.shape[1:] == self.priors.shape[1:] == (NR_GRADES,)
            and self.precision.dtype.kind == self.priors.dtype.kind == "f"
            and all(len({len(one) for one in same}) == 1 for same in sizes)
            and all(len(ends) == len(of) + 1 and ends[0] == 0 and ends[-1] == len(parts) for ends, of, parts in starts)
            and all((np.diff(ends) >= 0).all() for ends, *_ in starts)
            and all(((one >= 0) & (one < most)).all() for one, most in numbers)
            and bool(((index.places >= 0) & (index.places < np.diff(index.splits)[index.listed])).all())
        )

    def save(self, folder: str | Path) -> None:
        """Write a folder, which must not exist yet."""
        folder = Path(folder)
        folder.mkdir(parents=True)
        reading = self.reading._asdict()
        runs = zip(_RUNS, runs_of_table(reading.pop("characters")), strict=True)
        if not len(self.reading.forms):  # without lemmas
            reading = {"piece": self.reading.piece} if self.reading.piece else {}
        arrays = self.index._asdict() | dict(runs) | reading | {"worth": self.precision, "priors": self.priors}
        with (folder / _FILE).open("wb") as file:
            # Without allow_pickle, which numpy before 2.1 stores as another array.
            np.savez(file, nr_labels=np.int64(self.nr_labels), **arrays)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load a folder written by `save`."""
        path = Path(folder) / _FILE
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
                index = NameIndex(*(held[name] for name in NameIndex._fields))
                reading = as_written()._replace(**{name: held[name] for name in WordOptions._fields if name in held})
                reading = reading._replace(piece=int(reading.piece))
                reading = reading._replace(characters=table_of_runs(*(held[name] for name in _RUNS)))
                names = cls(index, held["worth"], reading, int(held["nr_labels"]), held["priors"])
        except (EOFError, OSError, KeyError, TypeError, ValueError, BadZipFile) as error:
            raise InputError(f"{path} cannot be read: {error}", fix="copy the model again") from None
        if not names._is_consistent():
            raise InputError(f"{path} is inconsistent", expected="arrays of matching size", fix="copy the model again")
        return names


def _read(
    names: Sequence[str], texts: Texts, language: str, threads: int
) -> tuple[NameWords, WordOptions, np.ndarray]:  # fmt: skip
    """Return the words of names, how words are read, and the number of texts with each word."""
    vocabulary = label_vocabulary(names)
    reading = reading_of(chosen_languages(language, texts))
    if len(reading.forms):
        reading = reading.without(abbreviations(texts, vocabulary.names))
    words = words_of_names(vocabulary.names, vocabulary.labels, reading)
    reading = reading.reduced(words.words, words.exact)
    return words, reading, count_documents(words.words, texts, reading, threads)
