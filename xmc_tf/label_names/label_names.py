"""Names of labels in texts, and the worth of their matches, learned from training documents."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from zipfile import BadZipFile

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import Texts
from xmc_tf.label_names.characters import SEPARATOR, character_table
from xmc_tf.label_names.index import NameIndex, build_index, words_of_names
from xmc_tf.label_names.kernels import NR_GRADES
from xmc_tf.label_names.matcher import count_documents, find_matches
from xmc_tf.label_names.vocabulary import label_vocabulary
from xmc_tf.label_names.worth import count_matches, evidence_matrix, is_right

NAMES_FILES = r"names\.npz"
_FILE = "names.npz"


@dataclass(frozen=True, eq=False)
class LabelNames:
    """Names of labels as evidence.

    Example:
        >>> names, evidence = LabelNames.learn(["cats", "dogs"], ["a cat", "two dogs"], Y)
        >>> names.evidence(["cats and dogs"]).toarray()

    Args:
        index: the names and their words.
        worth: float32 [names, grades]: what a match is worth; 0: nothing.
        characters: int32: the character table, without the separators at its end.
        nr_labels: number of labels.
    """

    index: NameIndex
    worth: np.ndarray
    characters: np.ndarray
    nr_labels: int

    def __repr__(self) -> str:
        return f"LabelNames({len(self.index.labels):,} names of {self.nr_labels:,} labels)"

    @classmethod
    def learn(cls, names: Sequence[str], texts: Texts, Y: spmatrix, threads: int = -1) -> tuple[Self, csr_matrix]:
        """Learn what the names of labels are worth.

        Args:
            names: the name of each label; alternative names follow after tabs.
            texts: the training documents.
            Y: their labels, documents × labels.
            threads: number of threads; -1: one per core. The result does not depend on it.

        Returns:
            The names, and the evidence in each training document, learned from the others.
        """
        vocabulary = label_vocabulary(names)
        table = character_table()
        words = words_of_names(vocabulary.names, vocabulary.labels, table)
        counts = count_documents(words.words, texts, table, threads)
        index = build_index(words, counts, len(texts))
        found = find_matches(index, texts, table, threads)
        right = is_right(index, found, csr_matrix(Y))
        counted = count_matches(index, found, right)
        worth = counted.worth_elsewhere(found, right)
        evidence = evidence_matrix(index, found, worth, len(names))
        return cls(index, counted.worth(), table, len(names)), evidence

    def evidence(self, texts: Texts, threads: int = -1) -> csr_matrix:
        """Return what the names in texts are worth: documents × labels, the share of right ones among such matches.

        Args:
            texts: the texts.
            threads: number of threads; -1: one per core.
        """
        found = find_matches(self.index, texts, self.characters, threads)
        return evidence_matrix(self.index, found, self.worth[found.names, found.grades], self.nr_labels)

    def save(self, folder: str | Path) -> None:
        """Write a folder.

        Args:
            folder: folder of the names, which must not exist.
        """
        folder = Path(folder)
        folder.mkdir(parents=True)
        last = int(np.flatnonzero(self.characters != SEPARATOR)[-1]) + 1
        arrays = self.index._asdict() | {"worth": self.worth, "characters": self.characters[:last]}
        with (folder / _FILE).open("wb") as file:
            np.savez(file, nr_labels=np.int64(self.nr_labels), allow_pickle=False, **arrays)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load a folder that `save` wrote.

        Args:
            folder: folder of the names.

        Raises:
            InputError: the file is missing or damaged.
        """
        path = Path(folder) / _FILE
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
                index = NameIndex(*(held[name] for name in NameIndex._fields))
                names = cls(index, held["worth"], held["characters"], int(held["nr_labels"]))
        except (OSError, KeyError, ValueError, BadZipFile) as error:
            raise InputError(f"{path} cannot be read: {error}", fix="copy the model again") from None
        if names.worth.shape != (len(index.labels), NR_GRADES) or len(index.splits) != len(index.labels) + 1:
            raise InputError(f"{path} is inconsistent", expected="arrays of one index", fix="copy the model again")
        return names
