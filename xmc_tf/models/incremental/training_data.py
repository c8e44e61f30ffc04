"""The training data kept in a model folder: ``training/X.npz`` and ``training/Y.npz``."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, load_matrix, save_matrix
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.models.labels import binary
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.params import RankerParams
from xmc_tf.store.checksums import verify
from xmc_tf.store.models import TRAINING

_LOG = logging.getLogger(__name__)
UNSEEN, ALL = ROWS = ("unseen", "all")  # what an evaluation measures a model on
_IS_NAME = "is_name.npy"
KEYS = "keys.npy"


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Features and labels of a model's training documents, stored in ``training/X.npz`` and ``training/Y.npz``."""

    X: csr_matrix
    Y: csr_matrix
    is_name: np.ndarray

    @staticmethod
    def problem(X: Features, params: RankerParams) -> str | None:
        """Return the reason why a model with this training data cannot be updated, or None if it can."""
        schemes = params.hlm_args.neg_mining_chain
        others = sorted({scheme for scheme in ([schemes] if isinstance(schemes, str) else schemes) if "usn" in scheme})
        return (
            "dense features" if X.sparse is None or X.nr_dense
            else f"negative sampling {', '.join(others)}" if others
            else f"the mode {params.mode}" if params.mode != "full-model"
            else f"relevance ({params.rel_mode})" if params.rel_mode != "disable"
            else None
        )  # fmt: skip

    @classmethod
    def of(cls, X: Features, Y: spmatrix, params: RankerParams, nr_names: int = 0) -> Self:
        """Return the data of a training run, whose last ``nr_names`` documents are label names.

        Raises an error if a model with this training data could not be updated.
        """
        if problem := cls.problem(X, params):
            raise InputError(
                "the training data cannot be kept, because it could not be used to update this model",
                expected="sparse features, no usn negatives, mode full-model, no relevance", received=problem,
                fix="leave out --keep-training-data (in Python: keep_training_data)",
            )  # fmt: skip
        assert X.sparse is not None
        return cls(csr_matrix(X.sparse), binary(Y), np.arange(X.nr_rows) >= X.nr_rows - nr_names)

    @property
    def nr_rows(self) -> int:
        """Number of documents, including label names."""
        return int(self.X.shape[0])

    @property
    def nr_documents(self) -> int:
        """Number of documents, not including label names."""
        return self.nr_rows - int(self.is_name.sum())

    @property
    def counts(self) -> np.ndarray:
        """Number of documents with each label, not including label names."""
        return np.bincount(self.Y[~self.is_name].indices, minlength=self.Y.shape[1])

    def rows_that_differ(self, other: Self) -> int:
        """Return the number of documents whose labels differ in other training data of the same documents."""
        count = max(self.Y.shape[1], other.Y.shape[1])
        return int((abs(self.labels(count) - other.labels(count)).getnnz(axis=1) > 0).sum())

    def with_labels(self, Y: csr_matrix) -> Self:
        return replace(self, Y=Y)

    def labels(self, nr_labels: int) -> csr_matrix:
        """Return the label matrix, with empty columns for labels that were added later."""
        Y = self.Y
        return csr_matrix((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], nr_labels))

    def without_idle_names(self) -> Self:
        """Return the training data without the names of removed labels."""
        kept = ~self.is_name | (np.diff(self.Y.indptr) > 0)
        return replace(self, X=self.X[kept], Y=self.Y[kept], is_name=self.is_name[kept])

    def check_features(self, X: Features) -> None:
        if X.sparse is None or X.nr_dense or X.nr_features != self.X.shape[1]:
            raise InputError(
                "the features do not fit the model", expected=f"{self.X.shape[1]:,} sparse features, as in training",
                received=f"{X.nr_sparse:,} sparse and {X.nr_dense:,} dense features",
            )  # fmt: skip

    def rows_like(self, X: Features) -> list[list[int]]:
        """Return, for each document, the rows with the same features that are not label names."""
        mine, wanted = (csr_matrix(one).sorted_indices() for one in (self.X, X.sparse))
        keys = [_row_key(wanted, row) for row in range(wanted.shape[0])]
        places: dict[bytes, list[int]] = {key: [] for key in keys}
        for row in np.flatnonzero(~self.is_name).tolist():
            if (found := places.get(_row_key(mine, row))) is not None:
                found.append(row)
        return [places[key] for key in keys]

    def holds(self, X: Features, Y: csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Compare documents with the rows that have their features.

        Returns, for each document, whether a row has all its labels, whether it is there with other labels only, and
        whether all rows with its labels have further ones.
        """
        mine, labels = ([{*own} for own in np.split(one.indices, one.indptr[1:-1])] for one in (self.Y, Y))
        found = [[mine[row] for row in rows] for rows in self.rows_like(X)]
        pairs = zip(labels, found, strict=True)
        marks = [(bool(sets), any(own <= one for one in sets), own in sets) for own, sets in pairs]
        there, known, same = np.array(marks, bool).reshape(-1, 3).T
        # Documents of which no word is known have the same features, but need not be the same.
        comparable = np.diff(csr_matrix(X.sparse).indptr) > 0
        return known & comparable, there & ~known, known & comparable & ~same

    def save(self, place: Path) -> None:
        save_matrix(place / "X.npz", self.X)
        save_matrix(place / "Y.npz", self.Y)
        if self.is_name.any():
            np.save(place / _IS_NAME, self.is_name)

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Load the training data from a model folder; None if the model did not keep it."""
        place = folder / TRAINING
        if not place.is_dir():
            return None
        verify(place)
        X, Y = (load_matrix(place / f"{name}.npz", name="training data") for name in "XY")
        if X.shape[0] != Y.shape[0]:
            raise InputError(
                f"{place} is inconsistent", expected=f"labels of {X.shape[0]:,} documents", received=f"{Y.shape[0]:,}",
                fix="copy the model again",
            )  # fmt: skip
        path = place / _IS_NAME
        is_name = np.load(path, allow_pickle=False) if path.exists() else np.zeros(X.shape[0], bool)
        return cls(csr_matrix(X), csr_matrix(Y), is_name)


def _row_key(X: csr_matrix, row: int) -> bytes:
    own = slice(X.indptr[row], X.indptr[row + 1])
    return X.indices[own].astype(np.int32).tobytes() + X.data[own].astype(np.float32).tobytes()


def params_of_growth(metadata: ModelMetadata) -> RankerParams:
    """Return the training parameters for clusters that change.

    They do not use matcher-aware negatives (man), which would require predictions for all documents.
    """
    params = RankerParams.from_json(metadata.train_params)
    return replace(params, hlm_args=replace(params.hlm_args, neg_mining_chain="tfn"))


def recounted(evidence: ProbabilityModel | None, training: TrainingData) -> ProbabilityModel | None:
    """Return the fusion with the number of documents per label updated from the training data."""
    if evidence is None:
        return None
    documents = training.counts
    documents = np.pad(documents, (0, max(evidence.nr_labels - len(documents), 0)))
    fusion = replace(evidence.fusion, log_documents=np.log1p(documents).astype(np.float32))
    return replace(evidence, fusion=fusion)


@dataclass(frozen=True, eq=False)
class TrainedDocuments:
    """The documents that a model was trained on, as sorted hashes of their texts."""

    keys: np.ndarray

    @classmethod
    def of(cls, texts: Iterable[str | bytes]) -> Self:
        return cls(np.unique(_keys(texts)))

    def include(self, texts: Iterable[str | bytes]) -> np.ndarray:
        """Return, for each text, whether the model was trained on it."""
        return np.isin(_keys(texts), self.keys)

    def unseen(self, texts: Iterable[str | bytes], name: str, all_rows: str) -> np.ndarray | None:
        """Return the rows of the texts that the model was not trained on, with a warning; None if that is all of them.

        Args:
            texts: the documents that the model is measured on.
            name: what a user calls them, such as the file.
            all_rows: how a user asks for a measurement on all of them, such as ``--rows all``.
        """
        seen = self.include(texts)
        count, trained = len(seen), int(seen.sum())
        if not trained:
            return None
        if trained == count:
            raise InputError(
                f"{name}: all of these {count:,} documents were used in training",
                expected="other documents, because metrics on training data are far too high",
                fix=f"use other documents, or add {all_rows} to measure the model on these",
            )
        _LOG.warning(
            "%s: %s of %s documents were used in training; the model is measured on the other %s (%s: on all of them)",
            name, f"{trained:,}", f"{count:,}", f"{count - trained:,}", all_rows,
        )  # fmt: skip
        return np.flatnonzero(~seen)

    def warn_of(self, texts: Iterable[str | bytes], name: str) -> None:
        """Warn if a measurement contains training documents."""
        if trained := int((seen := self.include(texts)).sum()):
            _LOG.warning(
                "%s: %s of %s documents were used in training; metrics on training data are far too high", name,
                f"{trained:,}", f"{len(seen):,}",
            )  # fmt: skip

    def with_texts(self, texts: Iterable[str | bytes]) -> Self:
        return type(self)(np.union1d(self.keys, _keys(texts)))

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / KEYS, self.keys)

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Load the hashes from a folder; None if the folder has none."""
        path = folder / KEYS
        verify(folder)
        if not path.exists():
            return None
        try:
            keys = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"{path} cannot be read: {error}", fix="copy the model again") from None
        if keys.dtype != np.int64 or keys.ndim != 1:
            raise InputError(f"{path} does not contain document hashes", fix="copy the model again")
        return cls(keys)


def _keys(texts: Iterable[str | bytes]) -> np.ndarray:
    """Return a hash of each text, ignoring differences in white space."""
    from xmc_tf.tables.splits import text_key  # imported here because predictions need no tables

    lines = (text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in texts)
    return np.fromiter((text_key(" ".join(line.split())) for line in lines), np.int64)
