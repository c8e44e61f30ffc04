"""The interface that both models share."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from scipy.sparse import csr_matrix

from xmc_tf.data import Texts
from xmc_tf.data.vocabularies import LabelHierarchy
from xmc_tf.metrics import Measures
from xmc_tf.models.documents import DocumentsLike
from xmc_tf.models.explaining.explanation import Explanation
from xmc_tf.models.keywords import ExportKeywords, PredictionKeywords
from xmc_tf.models.labels import Labels
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.tree import LabelTree

if TYPE_CHECKING:
    from xmc_tf.audit import Audit
    from xmc_tf.serving.export import Exported, ModelParts


class Model(Protocol):
    """A trained model: what :class:`~xmc_tf.XTransformer` and :class:`~xmc_tf.XRLinear` have in common.

    Example:
        >>> model: Model = load("model")
        >>> model.best(["gradient of a sparse matrix"], k=3)
    """

    @property
    def names(self) -> list[str] | None:
        """Label names, or None."""

    @property
    def nr_labels(self) -> int:
        """Number of labels."""

    @property
    def tree(self) -> LabelTree:
        """The label tree of the rankers."""

    @property
    def hierarchy(self) -> LabelHierarchy | None:
        """The broader terms of the labels, or None."""

    @property
    def metadata(self) -> ModelMetadata:
        """Parameters, shapes, seed and versions, as ``params.json`` contains them."""

    def predict(self, texts: DocumentsLike, X: Any = None, **options: Unpack[PredictionKeywords]) -> csr_matrix:
        """Return the scores of the best labels of each document, descending within a row: documents × labels.

        Args:
            texts: documents, one text each.
            X: features of the documents, for a model that needs them beside the texts.
            **options: the fields of :class:`PredictionOptions`, such as ``only_topk`` and ``min_precision``.
        """

    def best(
        self, texts: DocumentsLike, k: int = 5, *, X: Any = None, **options: Unpack[PredictionKeywords]
    ) -> list[list[tuple[str, float]]]:
        """Return the names and scores of the k best labels of each document, best first.

        Args:
            texts: documents, one text each.
            k: number of labels per document.
            X: as for :meth:`predict`.
            **options: as for :meth:`predict`.
        """

    def set_output_constraint(self, labels: Iterable[int] | None) -> None:
        """Restrict predictions to some labels, without changing the model's folder.

        Args:
            labels: numbers of the labels that may be predicted; None for all.
        """

    def explain(self, text: str, k: int = 5, *, beam_size: int | None = None) -> Explanation:
        """Explain the best labels of a text: the words and the path through the tree that led to them.

        Args:
            text: the document.
            k: number of labels.
            beam_size: number of nodes kept at each level above the labels. None: the model's default.
        """

    def evaluate(self, texts: Texts, labels: Labels, *, ks: Sequence[int] = (1, 3, 5, 10)) -> Measures:
        """Measure the model's predictions of documents whose labels are known.

        Args:
            texts: documents, one text each.
            labels: their labels: a sparse matrix of documents × labels, or lists of label names.
            ks: numbers of labels, k, at which the metrics are computed.
        """

    def audit(
        self,
        texts: Texts,
        labels: Labels,
        *,
        documents: Sequence[str] | None = None,
        most: int = 500,
        threads: int = -1,
    ) -> "Audit":
        """Return what is probably missing or wrong in the labels of documents, and why.

        Args:
            texts: documents, one text each.
            labels: their labels: a sparse matrix of documents × labels, or lists of label names.
            documents: what each document is called (default: its number).
            most: maximum number of findings of each kind.
            threads: number of threads; -1: one per core.
        """

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder, completely or not at all; an older model there is replaced.

        Args:
            folder: folder of the model.
        """

    def export(self, folder: str | Path, *, precision: str = "fp32", **options: Unpack[ExportKeywords]) -> "Exported":
        """Export the model as a SavedModel.

        Args:
            folder: folder of the SavedModel; for TensorFlow Serving, its name is the version.
            precision: number format of the rankers' weights: "fp32", "fp16" or "int8".
            **options: fields of :class:`PredictionOptions` that the exported model keeps.
        """

    def export_parts(self) -> "ModelParts":
        """Return the parts that a SavedModel of this model is made of."""
