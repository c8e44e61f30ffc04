"""The training data that a model keeps: ``training/X.npz`` and ``training/Y.npz``."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.folders.checksums import verified
from xmc_tf.common.folders.model_parts import TRAINING
from xmc_tf.data import Features, load_matrix, save_matrix
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.models.labels import binary
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.params import RankerParams

_IS_NAME = "is_name.npy"
KEYS = "keys.npy"


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Features and labels of the documents that a model was trained on: ``training/X.npz`` and ``training/Y.npz``."""

    X: csr_matrix
    Y: csr_matrix
    is_name: np.ndarray

    @staticmethod
    def problem(X: Features, params: RankerParams) -> str | None:
        """Return why a model could not grow with this training data; None if it could."""
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
        """Return the data of a training; refuse those with which a model cannot grow. Names are the last documents."""
        if problem := cls.problem(X, params):
            raise InputError(
                "this model cannot grow with its training data",
                expected="sparse features, negatives of our own, the full model, no relevance", received=problem,
                fix="leave out --keep-training-data (in Python: keep_training_data)",
            )  # fmt: skip
        assert X.sparse is not None
        return cls(csr_matrix(X.sparse), binary(Y), np.arange(X.nr_rows) >= X.nr_rows - nr_names)

    @property
    def nr_rows(self) -> int:
        """Number of documents, including names."""
        return int(self.X.shape[0])

    @property
    def nr_documents(self) -> int:
        """Number of documents, without names."""
        return self.nr_rows - int(self.is_name.sum())

    @property
    def counts(self) -> np.ndarray:
        """Number of documents of each label, without names."""
        return np.bincount(self.Y[~self.is_name].indices, minlength=self.Y.shape[1])

    def with_labels(self, Y: csr_matrix) -> Self:
        return replace(self, Y=Y)

    def labels(self, nr_labels: int) -> csr_matrix:
        """Return the labels of the documents, with empty columns for labels that were added later."""
        Y = self.Y
        return csr_matrix((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], nr_labels))

    def without_idle_names(self) -> Self:
        """Return the documents without the names of labels that have been removed."""
        kept = ~self.is_name | (np.diff(self.Y.indptr) > 0)
        return replace(self, X=self.X[kept], Y=self.Y[kept], is_name=self.is_name[kept])

    def check_features(self, X: Features) -> None:
        if X.sparse is None or X.nr_dense or X.nr_features != self.X.shape[1]:
            raise InputError(
                "the features do not fit the model", expected=f"{self.X.shape[1]:,} sparse features, as in training",
                received=f"{X.nr_features:,}",
            )  # fmt: skip

    def save(self, place: Path) -> None:
        save_matrix(place / "X.npz", self.X)
        save_matrix(place / "Y.npz", self.Y)
        if self.is_name.any():
            np.save(place / _IS_NAME, self.is_name)

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Load the part of a model's folder; None if the model has not kept its training data."""
        place = folder / TRAINING
        if not place.is_dir():
            return None
        with verified(place, archives=place.glob("[XY].npz")):
            X, Y = (load_matrix(place / f"{name}.npz", name="training data") for name in "XY")
        if X.shape[0] != Y.shape[0]:
            raise InputError(
                f"{place} is inconsistent", expected=f"labels of {X.shape[0]:,} documents", received=f"{Y.shape[0]:,}",
                fix="copy the model again",
            )  # fmt: skip
        path = place / _IS_NAME
        is_name = np.load(path, allow_pickle=False) if path.exists() else np.zeros(X.shape[0], bool)
        return cls(csr_matrix(X), csr_matrix(Y), is_name)


def params_of_growth(metadata: ModelMetadata) -> RankerParams:
    """Return the training parameters of clusters that change.

    Documents of confused labels (man) are no counterexamples there: all documents would have to be predicted for them.
    """
    params = RankerParams.from_json(metadata.train_params)
    return replace(params, hlm_args=replace(params.hlm_args, neg_mining_chain="tfn"))


def recounted(evidence: ProbabilityModel | None, training: TrainingData) -> ProbabilityModel | None:
    """Return evidence with the numbers of documents that labels have in the training data."""
    if evidence is None:
        return None
    documents = training.counts
    documents = np.pad(documents, (0, max(evidence.nr_labels - len(documents), 0)))
    fusion = replace(evidence.fusion, log_documents=np.log1p(documents).astype(np.float32))
    return replace(evidence, fusion=fusion)


@dataclass(frozen=True, eq=False)
class TrainedDocuments:
    """The documents that a model was trained on, as ascending digests of their texts."""

    keys: np.ndarray

    @classmethod
    def of(cls, texts: Iterable[str | bytes]) -> Self:
        return cls(np.unique(_keys(texts)))

    def include(self, texts: Iterable[str]) -> np.ndarray:
        """Return for each text whether the model was trained on it."""
        return np.isin(_keys(texts), self.keys)

    def with_texts(self, texts: Iterable[str | bytes]) -> Self:
        return type(self)(np.union1d(self.keys, _keys(texts)))

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / KEYS, self.keys)

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Read the folder; None if there is none."""
        path = folder / KEYS
        with verified(folder):
            if not path.exists():
                return None
            try:
                keys = np.load(path, allow_pickle=False)
            except (OSError, ValueError, EOFError) as error:
                raise InputError(f"{path} cannot be read: {error}", fix="copy the model again") from None
        if keys.dtype != np.int64 or keys.ndim != 1:
            raise InputError(f"{path} has no digests of documents", fix="copy the model again")
        return cls(keys)


def _keys(texts: Iterable[str | bytes]) -> np.ndarray:
    """Return digests of texts, ignoring differences in white space."""
    from xmc_tf.tables.splits import text_key  # what tables need, a prediction does not

    lines = (text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in texts)
    return np.fromiter((text_key(" ".join(line.split())) for line in lines), np.int64)
