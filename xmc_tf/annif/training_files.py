"""The training documents of a project as files, which Annif's ``train --cached`` reads again."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.data import TextFile, load_matrix, save_matrix

# Annif ignores files with "-train" in their names when it looks for a model.
_TEXTS, _LABELS = "xmc_tf-train.txt", "xmc_tf-train.npz"


class _Document(Protocol):
    """The part of Annif's documents that is used."""

    text: str
    subject_set: Iterable[int]


def write_training_files(
    documents: Iterable[_Document], folder: Path, nr_subjects: int, analyzed: Callable[[str], str]
) -> int:
    """Write texts and subjects of the documents that have both, without holding them in memory; return their number."""
    columns, indptr = [np.zeros(0, np.int32)], [0]
    with (folder / _TEXTS).open("w", encoding="utf-8") as file:
        for document in documents:
            text = analyzed(" ".join(document.text.split()))
            subjects = np.unique(np.fromiter(document.subject_set, np.int32))
            if not text or not len(subjects):
                continue
            file.write(text.encode(errors="replace").decode() + "\n")
            columns.append(subjects)
            indptr.append(indptr[-1] + len(subjects))
    indices = np.concatenate(columns)
    shape = (len(indptr) - 1, nr_subjects)
    save_matrix(folder / _LABELS, csr_matrix((np.ones(len(indices), np.float32), indices, indptr), shape=shape))
    return shape[0]


def read_training_files(folder: Path) -> tuple[TextFile, csr_matrix] | None:
    """Return texts and subjects, or None if there are no files."""
    if not ((folder / _TEXTS).exists() and (folder / _LABELS).exists()):
        return None
    return TextFile(folder / _TEXTS), csr_matrix(load_matrix(folder / _LABELS, name="labels"))
