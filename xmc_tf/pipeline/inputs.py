"""The inputs of training: the data, all options, and checksums of the user's data."""

import dataclasses
import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import issparse, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import LARGEST_SEED
from xmc_tf.data import (
    Features,
    JoinedTexts,
    TextFile,
    Texts,
    as_features,
    check_training_input,
    check_validation_input,
)
from xmc_tf.data.checks import check_pair
from xmc_tf.data.vocabularies import LabelHierarchy
from xmc_tf.data.windows import WindowOptions
from xmc_tf.label_names import NameDocuments
from xmc_tf.params import (
    MatcherParams,
    MatcherPredParams,
    PredictionOptions,
    TfidfParams,
    XTransformerParams,
    XTransformerPredParams,
    encoder_params_of_effort,
)
from xmc_tf.pipeline.waiting import on_first_rank
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import same_everywhere
from xmc_tf.store.files import content_hash
from xmc_tf.tree import LabelTree

if TYPE_CHECKING:
    from xmc_tf.encoder.tokenizer import TokenMemory

_PIECE = 1 << 22


def checksum(thing: Any) -> str | None:
    """Return a checksum of texts, names, a matrix, features or a tree; None for None."""
    if thing is None:
        return None
    total = hashlib.blake2b(digest_size=16)
    _add(total, thing)
    return total.hexdigest()


def files_of(name: str) -> list[list[str]] | None:
    """Return name and hash of each file below a folder; None if the path is not a folder."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return None
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return [[str(path.relative_to(folder)), content_hash(path)] for path in found]


def _add(total: Any, thing: Any) -> None:
    if isinstance(thing, TextFile):
        with thing.path.open("rb") as file:
            while piece := file.read(_PIECE):
                total.update(piece)
    elif isinstance(thing, Features):
        for part in (thing.sparse, thing.dense):
            _add(total, part)
    elif isinstance(thing, LabelTree):
        for array in (*thing.splits, thing.labels):
            _add(total, array)
    elif issparse(thing):
        total.update(f"{thing.format} {thing.shape} ".encode())
        # The type of the indices depends on how the file was written, not on its content.
        for array in (thing.indptr, thing.indices):
            _add(total, array.astype(np.int64, copy=False))
        _add(total, thing.data)
    elif isinstance(thing, np.ndarray):
        total.update(f"{thing.dtype.str} {thing.shape} ".encode())
        total.update(np.ascontiguousarray(thing).reshape(-1).view(np.uint8).data)
    elif isinstance(thing, Sequence):
        broken = []
        for row, line in enumerate(thing):
            encoded = line.encode("utf-8", errors="replace") if isinstance(line, str) else bytes(line)
            total.update(encoded + b"\n")
            if b"\n" in encoded:
                broken.append((row, len(encoded)))
        if broken:  # only then, so that the checksums of texts without line breaks equal those of their files
            total.update(repr(broken).encode())
    elif thing is not None:
        raise TypeError(f"cannot compute a checksum of {type(thing).__name__}")


_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Documents:
    """Texts with their labels and, optionally, features."""

    texts: Texts
    Y: spmatrix
    X: Features | None = None
    files: Mapping[str, Any] = field(default_factory=dict)  # for messages: sources of "texts", "Y", "X", "names"
    nr_names: int = 0  # number of label names, which are the last rows

    @property
    def nr_documents(self) -> int:
        """Number of documents, not counting label names."""
        return int(self.Y.shape[0]) - self.nr_names

    def with_names(self, lines: Sequence[str]) -> "Documents":
        """Return the documents with one document per label name appended; these have only zeros as features."""
        names, X = NameDocuments.of(lines), self.X
        if X is not None:
            count = len(names.texts)
            dense = None if X.dense is None else np.pad(X.dense, ((0, count), (0, 0)))
            X = as_features((None if X.sparse is None else names.unlabelled_below(X.sparse), dense))
        texts = JoinedTexts([self.texts, names.texts], len(names.texts))
        return Documents(texts, names.below(self.Y), X, self.files, len(names.texts))

    @property
    def nr_labels(self) -> int:
        """Number of labels, including those without documents."""
        return int(self.Y.shape[1])


@dataclass(frozen=True)
class Recipe:
    """The options of training."""

    params: XTransformerParams = field(default_factory=XTransformerParams)
    pred_params: XTransformerPredParams = field(default_factory=XTransformerPredParams)  # defaults for prediction
    tfidf: TfidfParams | None = None  # None: features are given, or the rankers use only embeddings
    prediction: PredictionOptions = PredictionOptions()  # noqa: RUF009  frozen; overrides pred_params
    steps_scale: tuple[float, ...] = ()  # factors of the training steps: one per level, or for all
    seed: int = 0
    threads: int = -1  # of the linear parts; -1: one per core
    logdir: str | None = None  # folder of TensorBoard's files
    effort: str | None = None  # "fast", "balanced" or "best": choose the rankers' trees by data size; None: use params

    def __post_init__(self) -> None:
        encoder_params_of_effort(self.params, self.effort, 1, 1)  # raises errors that do not depend on the data
        method = self.prediction.ensemble_method
        if self.params.only_encoder and method not in (None, "transformer-only"):
            raise InputError(
                f"--ensemble-method {method} needs rankers, but there are none", received="--only-encoder",
                fix="leave one of them out",
            )  # fmt: skip
        if not 0 <= self.seed <= LARGEST_SEED:
            raise InputError(
                "the seed is out of range",
                expected=f"a whole number from 0 to {LARGEST_SEED:,}",
                received=str(self.seed),
                fix="choose another --seed",
            )

    def for_data(self, nr_documents: int, nr_labels: int) -> Self:
        """Return the options with the label trees that the effort selects for data of this size."""
        params = encoder_params_of_effort(self.params, self.effort, nr_documents, nr_labels)
        return dataclasses.replace(self, params=params, effort=None)

    @property
    def first_level(self) -> MatcherParams:
        """The parameters of the first level, which select the initial encoder."""
        chain = self.params.matcher_params_chain
        return chain[0] if isinstance(chain, tuple) else chain

    @property
    def reading(self) -> WindowOptions:
        """The options for reading documents with the encoder."""
        last = self.last_prediction
        return WindowOptions.of(last.truncate_length, last.long_texts, last.max_windows)

    @property
    def last_prediction(self) -> MatcherPredParams:
        """The prediction parameters of the last level, which also determine how the encoder reads documents."""
        chain = self.pred_params.matcher_params_chain
        return chain[-1] if isinstance(chain, tuple) else chain


@dataclass(frozen=True, eq=False)
class TrainingInputs:
    """All training data: documents, labels, and optional trees, names and validation data."""

    documents: Documents
    tree: LabelTree | None = None  # replaces the preliminary tree
    label_features: Any = None  # cluster the labels by these instead of their documents
    names: Sequence[str] | None = None
    validation: Documents | None = None
    lines: Sequence[str] | None = None  # the names of the labels with alternative names after tabs
    hierarchy: LabelHierarchy | None = None  # the broader terms of the labels, which the model keeps
    tokens: "TokenMemory | None" = None  # tokens of earlier trainings
    unlabelled: Texts = ()  # show how rare words are

    def check(self, communicator: Communicator) -> dict[str, str | None]:
        """Check that the data fit together and are the same on all ranks; return their checksums."""
        on_first_rank(communicator, self._check_here)
        train, held_out = self.documents, self.validation
        sums = {
            "texts": checksum(train.texts),
            "labels": checksum(train.Y),
            "features": checksum(train.X),
            "tree": checksum(self.tree),
            "label features": checksum(self.label_features),
            "validation texts": checksum(held_out.texts) if held_out else None,
            "validation labels": checksum(held_out.Y) if held_out else None,
            "unlabelled": checksum(self.unlabelled) if len(self.unlabelled) else None,
        }
        same_everywhere(communicator, sums)
        return sums

    def with_names(self) -> "TrainingInputs":
        """Return the inputs with one additional document per label name."""
        assert self.lines is not None
        return dataclasses.replace(self, documents=self.documents.with_names(self.lines))

    def _check_here(self) -> None:
        train, held_out = self.documents, self.validation
        check_training_input(Y=train.Y, X=train.X, texts=train.texts, names=self.names, files=train.files)
        for texts in (train.texts, held_out.texts if held_out else None, self.unlabelled):
            if isinstance(texts, TextFile):
                texts.check()
        for what, count in (("the tree", self.tree and self.tree.nr_labels), ("label features", self._nr_described)):
            if count is not None and count != train.nr_labels:
                raise InputError(
                    f"{what} and the label matrix have different numbers of labels",
                    expected=f"{train.nr_labels:,}, the number of columns of the label matrix",
                    received=f"{count:,}",
                )
        if held_out is None:
            return
        called = held_out.files
        check_validation_input(held_out.Y, train.nr_labels, str(called.get("Y", "the validation labels")))
        check_pair(held_out.texts, held_out.Y, called.get("texts", "validation texts"), called.get("Y", "labels"))
        if (held_out.X is None) != (train.X is None):
            raise InputError(
                "training and validation need the same kind of features",
                expected="features for both, or for neither",
                received="features only for " + ("training" if held_out.X is None else "validation"),
                fix="give both -x and -xt, or neither",
            )
        if held_out.X is not None and train.X is not None:
            check_pair(held_out.X, held_out.Y, called.get("X", "validation features"), called.get("Y", "labels"))
            if held_out.X.nr_features != train.X.nr_features:
                raise InputError(
                    "the validation features (-xt) do not fit the training features (-x)",
                    expected=f"{train.X.nr_features:,} columns",
                    received=f"{held_out.X.nr_features:,}",
                )

    @property
    def _nr_described(self) -> int | None:
        return None if self.label_features is None else int(self.label_features.shape[0])
