"""The interface that both models share."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from scipy.sparse import csr_matrix

from xmc_tf.data import Texts
from xmc_tf.metrics import Measures
from xmc_tf.models.explaining.explanation import Explanation
from xmc_tf.models.labels import Labels
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.tree import LabelTree

if TYPE_CHECKING:
    from xmc_tf.serving.export import Exported, ExportSettings


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
    def tree(self) -> LabelTree:
        """The label tree of the rankers."""

    @property
    def metadata(self) -> ModelMetadata:
        """Parameters, shapes, seed and versions, as ``params.json`` contains them."""

    def predict(
        self,
        texts: Texts,
        *,
        beam_size: int | None = None,
        only_topk: int | None = None,
        post_processor: str | None = None,
        threads: int = -1,
    ) -> csr_matrix:
        """Return the scores of the best labels of each document, descending within a row: documents × labels.

        Args:
            texts: documents, one text each.
            beam_size: number of nodes kept at each level above the labels; larger is slower and more exact. None: the
                model's default.
            only_topk: number of labels per document; None: the model's default.
            post_processor: function applied to the scores of each level; None: the model's default.
            threads: number of threads; -1: one per core.
        """

    def best(
        self,
        texts: Texts,
        k: int = 5,
        *,
        beam_size: int | None = None,
        post_processor: str | None = None,
        threads: int = -1,
    ) -> list[list[tuple[str, float]]]:
        """Return the names and scores of the k best labels of each document, best first.

        Args:
            texts: documents, one text each.
            k: number of labels per document.
            beam_size: number of nodes kept at each level above the labels; larger is slower and more exact. None: the
                model's default.
            post_processor: function applied to the scores of each level; None: the model's default.
            threads: number of threads; -1: one per core.
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

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder, completely or not at all; an older model there is replaced.

        Args:
            folder: folder of the model.
        """

    def export(self, folder: str | Path, settings: "ExportSettings | None" = None) -> "Exported":
        """Export the model as a SavedModel.

        Args:
            folder: folder of the SavedModel; for TensorFlow Serving, its name is the version.
            settings: options of the export, such as the number of labels and the precision of the weights; None: the
                model's defaults.
        """
