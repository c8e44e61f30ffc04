import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from annif.util import boolean
from scipy.sparse import csr_matrix

from xmc_tf.data import TextFile, load_matrix, save_matrix
from xmc_tf.label_names import have_letters
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.models.xtransformer import TrainingRun, XTransformer
from xmc_tf.params import (
    MatcherParams,
    MatcherPredParams,
    TfidfParams,
    XRLinearParams,
    XTransformerParams,
    XTransformerPredParams,
)
from xmc_tf.params.tfidf import AS_WRITTEN

# Annif ignores files with "-train" in their names when it looks for a model.
_TEXTS, _LABELS, _WORK = "xmc_tf-train.txt", "xmc_tf-train.npz", "xmc_tf-train-work"


class _Document(Protocol):
    """The attributes of Annif's documents that are used here."""

    text: str
    subject_set: Iterable[int]


def write_training_files(
    documents: Iterable[_Document], folder: Path, nr_subjects: int, analyzed: Callable[[str], str]
) -> int:
    """Write the texts and subjects of all documents that have both, one document at a time. Return their number."""
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
    """Return the texts and subjects, or None if the training files do not exist."""
    if not ((folder / _TEXTS).exists() and (folder / _LABELS).exists()):
        return None
    return TextFile(folder / _TEXTS), csr_matrix(load_matrix(folder / _LABELS, name="labels"))


def train_model(
    documents: tuple[TextFile, csr_matrix], names: Sequence[str], project: Any, params: dict[str, Any], jobs: int
) -> Callable[[Path], None]:
    """Train a model, with or without an encoder, and return a function that saves the model to a folder."""
    texts, labels = documents
    threads, seed, effort = jobs or -1, int(params["seed"]), str(params["effort"])
    probabilities = None if boolean(params["probabilities"]) else False  # None: if there are enough documents
    # Names are evidence for probabilities only.
    label_names = probabilities is None and boolean(params["label_names"]) and have_letters(names)
    tfidf = tfidf_params(project, params)
    if not params["encoder"]:
        return XRLinear.train(
            texts, labels, names=names, params=XRLinearParams(tfidf=tfidf), probabilities=probabilities,
            label_names=label_names, threads=threads, seed=seed, effort=effort,
            keep_training_data=boolean(params["keep_training_data"]),
        ).save  # fmt: skip
    work = Path(project.datadir) / _WORK  # an interrupted training resumes
    matcher = MatcherParams(model_shortcut=str(params["encoder"]), num_train_epochs=int(params["epochs"]))
    reading = MatcherPredParams(truncate_length=int(params["truncate_length"]))
    model = XTransformer.train(
        texts, labels, names=names, tfidf=tfidf, pred_params=XTransformerPredParams(matcher_params_chain=reading),
        params=XTransformerParams(matcher_params_chain=matcher, probabilities=probabilities, label_names=label_names),
        run=TrainingRun(work_dir=work, threads=threads, seed=seed, effort=effort),
    )  # fmt: skip

    def save(folder: Path) -> None:
        model.save(folder)
        shutil.rmtree(work)

    return save


def tfidf_params(project: Any, params: dict[str, Any]) -> TfidfParams:
    language = AS_WRITTEN if project.analyzer_spec else str(project.language)
    ngram_max, min_df, pieces = (int(params[name]) for name in ("ngram", "min_df", "pieces"))
    return TfidfParams(ngram_max=ngram_max, min_df=min_df, pieces=pieces, language=language)
