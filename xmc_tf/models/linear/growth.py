"""Further documents, and labels that are removed or merged: the methods of a linear model that grows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, Unpack

from xmc_tf.models.documents import DocumentsLike
from xmc_tf.models.labels import Labels
from xmc_tf.models.linear.model import LinearModel

if TYPE_CHECKING:
    from xmc_tf.models.documents import FrameColumns

# Growing is imported when it is used: it needs the solvers, which prediction does not.


@dataclass(eq=False, repr=False)
class GrowingModel(LinearModel):
    """A linear model that can grow and shrink without being trained again; none of these methods changes it."""

    def with_documents(
        self,
        texts: DocumentsLike,
        labels: Labels | None = None,
        *,
        new_labels: bool | Sequence[str] = False,
        exact: bool = False,
        threads: int = -1,
        **columns: "Unpack[FrameColumns]",
    ) -> Self:
        """Return the model with further documents: only the clusters of their labels change.

        Vocabulary and word weights, label tree and calibration stay as they are. The documents are kept, so that the
        result can grow again.

        Example:
            >>> texts, labels = ["soup with fresh herbs", "herbs for a garden"], [["cooking"], ["gardening"]]
            >>> model = XRLinear.train(texts, labels, keep_training_data=True)
            >>> grown = model.with_documents(["herbs in spring"], [["seasons"]], new_labels=True)

        Args:
            texts: the documents, as :meth:`train` takes them.
            labels: their labels, as :meth:`train` takes them. Documents without labels are left out.
            new_labels: whether there may be labels that the model does not have, which are then added; or their names,
                in the order of their numbers, with alternative names after tabs.
            exact: solve these clusters again on all their documents, as a training with the same tree does. By default
                their weights are moved to the new documents, which takes as long as these alone take.
            threads: number of threads; -1: one per core. The result does not depend on it.
            **columns: of a DataFrame, as for :meth:`train`.

        Raises:
            InputError: the model has not kept its training data, or a label is unknown.
        """
        from xmc_tf.models.growing.documents import check_documents, further_labels, training_of, with_documents

        training = training_of(self)
        read = self._read(texts, labels, columns, labelled=True)
        Y, lines = further_labels(self, read.labelled(), new_labels)
        check_documents(read.documents, Y)
        X = read.documents if read.texts is None else self.features(read.texts, threads)
        return with_documents(self, training, X, Y, lines, exact=exact, threads=threads)

    def without_labels(self, labels: Iterable[str | int]) -> Self:
        """Return the model without some labels. Nothing is trained; the labels after them get lower numbers.

        Example:
            >>> texts, labels = ["soup with fresh herbs", "herbs for a garden"], [["cooking"], ["gardening"]]
            >>> XRLinear.train(texts, labels).without_labels(["gardening"]).names
            ['cooking']

        Args:
            labels: names or numbers of the labels to remove.

        Raises:
            InputError: a label does not exist, or none would remain.
        """
        from xmc_tf.models.growing.labels import without_labels

        return without_labels(self, labels)

    def with_merged_labels(self, groups: Iterable[Iterable[str | int]], *, threads: int = -1) -> Self:
        """Return the model with some labels merged: documents that have one of a group have the merged label.

        Only the clusters that change are solved again. Where names of labels are evidence, the names of merged labels
        are found as alternative names of the one that stays.

        Example:
            >>> texts, labels = ["soup with herbs", "herbs for a garden"], [["cooking"], ["gardening"]]
            >>> model = XRLinear.train(texts, labels, keep_training_data=True)
            >>> model.with_merged_labels([["cooking", "gardening"]]).names
            ['cooking']

        Args:
            groups: names or numbers of the labels to merge, in each group first the one that stays.
            threads: number of threads; -1: one per core. The result does not depend on it.

        Raises:
            InputError: the model has not kept its training data, or a label is unknown or occurs twice.
        """
        from xmc_tf.models.growing.documents import training_of
        from xmc_tf.models.growing.merging import with_merged_labels

        return with_merged_labels(self, training_of(self), groups, threads)
