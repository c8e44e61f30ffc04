"""The base class of both models: their interface, and the methods that they share."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, cast

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, chosen_labels
from xmc_tf.data.vocabularies import LabelHierarchy
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.models.documents import DocumentsLike, FrameColumns, ReadDocuments, read_documents
from xmc_tf.models.incremental.training_data import TrainedDocuments
from xmc_tf.models.labels import Labels, true_labels
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.models.results import named, over_all_labels
from xmc_tf.params import PredictionOptions, RankerParams
from xmc_tf.tree import LabelTree

if TYPE_CHECKING:
    from xmc_tf.audit import Audit
    from xmc_tf.metrics import Measures
    from xmc_tf.models.explaining.explanation import Explanation
    from xmc_tf.serving.export import Exported, ModelParts

# Measuring, auditing and exporting are imported when they are used: prediction does not need them.


class SearchKeywords(TypedDict, total=False):
    """Keywords that predictions and exports share."""

    beam_size: int | None
    only_topk: int | None
    post_processor: str | None
    scores: str | None
    threshold: float | None
    min_precision: float | None


class ExportKeywords(SearchKeywords, total=False):
    """The fields of :class:`PredictionOptions` that an exported model keeps."""

    k: int | None
    """The same as ``only_topk``, which is PECOS's name: number of labels per document."""


class BestKeywords(SearchKeywords, FrameColumns, total=False):
    """The keywords of ``best``, whose ``k`` is an argument."""

    only_labels: Iterable[str | int] | None
    """Names or numbers of the labels that may be predicted (default: all)."""

    ensemble_method: str | None
    max_pred_chunk: int
    batch_tokens: int
    threads: int
    quiet: bool


class PredictionKeywords(BestKeywords, total=False):
    """The fields of :class:`PredictionOptions` as keywords, and a DataFrame's columns."""

    k: int | None
    """The same as ``only_topk``."""


class TrainingKeywords(FrameColumns, total=False):
    """Further keywords of :meth:`XRLinear.train`, and a DataFrame's columns."""

    probabilities: bool | None
    """Predict calibrated probabilities instead of the rankers' scores, learned from documents that are held out for
    that; they also rank labels better (default: if there are enough documents)."""


def read_keywords(
    keywords: Mapping[str, Any],
) -> tuple[PredictionOptions, FrameColumns, Iterable[str | int] | None]:
    """Return the options, the columns of a DataFrame, and the labels that may be predicted (None: all)."""
    columns = {name: value for name, value in keywords.items() if name in FrameColumns.__annotations__}
    options = {name: value for name, value in keywords.items() if name not in columns}
    only_labels = options.pop("only_labels", None)
    if (k := options.pop("k", None)) is not None:
        if options.get("only_topk") is not None:
            raise InputError("k and only_topk are the same option", fix="leave one of them out")
        options["only_topk"] = k
    return PredictionOptions(**options), cast(FrameColumns, columns), only_labels


class Model(ABC):
    """A trained model: what :class:`~xmc_tf.XTransformer` and :class:`~xmc_tf.XRLinear` have in common.

    Example:
        >>> model: Model = load("model")
        >>> model.best(["gradient of a sparse matrix"], k=3)
    """

    names: list[str] | None
    """Label names, or None."""
    metadata: ModelMetadata
    """Parameters, shapes, seed and versions, as ``params.json`` contains them."""
    tree: LabelTree
    """The first label tree of the rankers."""
    hierarchy: LabelHierarchy | None
    """The broader terms of the labels, or None."""
    evidence: ProbabilityModel | None
    """What turns scores into probabilities, or None."""

    @property
    @abstractmethod
    def trained_documents(self) -> TrainedDocuments | None:
        """The documents that the model was trained on, if they were a table's."""

    @property
    @abstractmethod
    def nr_labels(self) -> int:
        """Number of labels."""

    @property
    @abstractmethod
    def more_trees(self) -> Sequence[LabelTree]:
        """The label trees after the first."""

    def predict(self, texts: DocumentsLike, X: Any = None, **options: Unpack[PredictionKeywords]) -> csr_matrix:
        """Return the scores of the best labels of each document, descending within a row: documents × labels.

        Args:
            texts: one text per document, or a single text; of a DataFrame, the columns that the model was trained on
                are read. For an XRLinear that was trained on features: features, documents × features.
            X: features of the documents: required for an XTransformer that was trained with features; for an XRLinear,
                the features of its vectorizer, if they are already computed.
            **options: the fields of :class:`PredictionOptions`, such as ``only_topk`` (or ``k``) and
                ``min_precision``; ``only_labels``, names or numbers of the labels that may be predicted; and ``text``,
                a DataFrame's column of texts, or several (default: those of the training).
        """
        chosen, columns, only_labels = read_keywords(options)
        if only_labels is not None:
            return self.only(only_labels).predict(texts, X, **vars(chosen), **columns)
        return self._predict(self._read(texts, columns=columns), X, chosen)

    @abstractmethod
    def _predict(self, read: ReadDocuments, X: Any, options: PredictionOptions) -> csr_matrix: ...

    def set_output_constraint(self, labels: Iterable[str | int] | None) -> None:
        """Restrict predictions to some labels, without changing the model's folder.

        Args:
            labels: names or numbers of the labels that may be predicted; None for all.
        """
        chosen = None if labels is None else chosen_labels(labels, self.names, self.nr_labels)
        if self.evidence is not None:
            self.evidence.allowed = chosen
        self._restrict(chosen)

    @abstractmethod
    def _restrict(self, chosen: np.ndarray | None) -> None:
        """Restrict the predictions of the rankers and the label head."""

    def only(self, labels: Iterable[str | int]) -> Self:
        """Return a model that predicts only some labels; it shares its parts with this one, which does not change.

        Example:
            >>> some = model.only([0, 2])
            >>> some.best(["gradient of a sparse matrix"], k=1)

        Args:
            labels: names or numbers of the labels.

        Raises:
            InputError: a label does not exist, or may not be predicted.
        """
        chosen, allowed = chosen_labels(labels, self.names, self.nr_labels), self._allowed
        found = chosen if allowed is None else np.intersect1d(chosen, allowed)
        if not len(found):
            raise InputError("none of the labels may be predicted", expected="labels of set_output_constraint")
        return self._only(found, None if self.evidence is None else replace(self.evidence, allowed=found))

    @property
    @abstractmethod
    def _allowed(self) -> np.ndarray | None:
        """The labels that may be predicted; None: all."""

    @abstractmethod
    def _only(self, chosen: np.ndarray, evidence: ProbabilityModel | None) -> Self: ...

    @abstractmethod
    def explain(self, text: str, k: int = 5, *, beam_size: int | None = None) -> "Explanation":
        """Explain the best labels of a text: the words and the path through the tree that led to them.

        Args:
            text: the document.
            k: number of labels.
            beam_size: number of nodes kept at each level above the labels. None: the model's default.
        """

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder, completely or not at all; an older model there is replaced, other files stay.

        Args:
            folder: folder of the model. Only one rank may write it.
        """
        self._save(Path(folder))

    @abstractmethod
    def _save(self, folder: Path) -> None: ...

    @abstractmethod
    def export_parts(self) -> "ModelParts":
        """Return the parts of a SavedModel of this model."""

    @abstractmethod
    def _for_audit(self, read: ReadDocuments, X: Any, threads: int) -> tuple[Features, RankerParams]:
        """Return the features that the rankers read of documents, and the parameters that they were trained with."""

    def best(
        self, texts: DocumentsLike, k: int = 5, *, X: Any = None, **options: Unpack[BestKeywords]
    ) -> list[list[tuple[str, float]]]:
        """Return the names and scores of the k best labels of each document, best first.

        A label without a name is given by its number.

        Args:
            texts: documents, as :meth:`predict` takes them.
            k: number of labels per document; with a threshold, the maximum number.
            X: as for :meth:`predict`.
            **options: as for :meth:`predict`.
        """
        predicted = self.predict(texts, X, **cast(PredictionKeywords, {"only_topk": k, **options}))
        return list(named(predicted, self.names))

    def evaluate(
        self,
        texts: DocumentsLike,
        labels: Labels | None = None,
        *,
        X: Any = None,
        ks: Sequence[int] = (1, 3, 5, 10),
        k: int | None = None,
        **columns: Unpack[FrameColumns],
    ) -> "Measures":
        """Measure the model's predictions of documents whose labels are known.

        Example:
            >>> print(model.evaluate(TextFile("X.tst.txt"), load_matrix("Y.tst.npz")))

        Args:
            texts: documents, as :meth:`train` takes them.
            labels: labels, as :meth:`train` takes them. Labels that the model does not know count as misses; a warning
                names them.
            X: as for :meth:`predict`.
            ks: numbers of best labels to measure at.
            k: one such number, instead of ``ks``.
            **columns: of a DataFrame, as for :meth:`train`.
        """
        from xmc_tf.metrics import evaluate
        from xmc_tf.metrics.measures import check_ks

        read = self._read(texts, labels, columns, labelled=True)
        truth = true_labels(read.labelled(), read.documents, self.nr_labels, self.names)
        ks = check_ks(ks if k is None else (k,))
        predicted = self.predict(read.documents, X, only_topk=ks[-1])
        return evaluate(truth, over_all_labels(predicted, truth.shape[1], None), ks)

    def audit(
        self,
        texts: DocumentsLike,
        labels: Labels | None = None,
        *,
        X: Any = None,
        documents: Sequence[str] | None = None,
        most: int = 500,
        threads: int = -1,
        **columns: Unpack[FrameColumns],
    ) -> "Audit":
        """Return the labels of documents that are probably missing or wrong, and why.

        The documents may be those that the model was trained on: each is judged by rankers that are trained without it.
        An encoder is not trained again. It knows the labels of the documents that it was fine-tuned on, so fewer of
        their errors are found. See the how-to guide on auditing labels.

        Args:
            texts: documents, as :meth:`train` takes them.
            labels: their labels, as :meth:`train` takes them. Labels that the model does not know are left out.
            X: as for :meth:`predict`.
            documents: names of the documents (default: their numbers).
            most: maximum number of findings of each kind.
            threads: number of threads; -1: one per core. The result does not depend on it.
            **columns: of a DataFrame, as for :meth:`train`.

        Raises:
            InputError: there are too few documents, or they do not fit the model.
        """
        from xmc_tf.models.auditing import audit_documents

        read = self._read(texts, labels, columns, labelled=True)
        features, params = self._for_audit(read, X, threads)
        return audit_documents(
            self,  # type: ignore[arg-type]  # both kinds of models are made of such parts
            features, read.texts, read.labelled(), params, documents=documents, most=most, threads=threads,
        )  # fmt: skip

    def export(self, folder: str | Path, *, precision: str = "fp32", **options: Unpack[ExportKeywords]) -> "Exported":
        """Export the model as a SavedModel, from text to label names, which a stock TensorFlow Serving loads.

        Example:
            >>> print(model.export("served/1", only_topk=10, beam_size=20).table())

        Args:
            folder: output folder; for a server, its name is the version.
            precision: number format of the rankers' weights: "fp32", "fp16", or "int8" with a scale for each node.
            **options: fields of :class:`PredictionOptions`, which the exported model keeps: ``only_topk`` (or ``k``),
                ``beam_size``, ``post_processor``, ``scores``, ``threshold`` and ``min_precision``.
        """
        from xmc_tf.serving.export import export_model  # it loads TensorFlow

        chosen, _, only_labels = read_keywords(options)
        if only_labels is not None:
            raise InputError(
                "an export predicts all labels of its model", received="only_labels",
                fix="remove the others first (without_labels); or use xmc-tf serve, whose requests may name labels",
            )  # fmt: skip
        return export_model(self.export_parts(), folder, chosen, precision=precision)

    def _read(
        self, documents: Any, labels: Any = None, columns: FrameColumns | None = None, *, labelled: bool = False
    ) -> ReadDocuments:
        return read_documents(documents, labels, columns, trained=self.metadata.columns, labelled=labelled)
