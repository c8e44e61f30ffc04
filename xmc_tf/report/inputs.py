from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import Texts
from xmc_tf.metrics.compare import Comparison, compare
from xmc_tf.metrics.evaluation import inverse_propensity
from xmc_tf.metrics.measures import check_shapes
from xmc_tf.metrics.ranking import as_truth
from xmc_tf.metrics.single_label import is_single_label
from xmc_tf.tables.runs import Run, runs_of
from xmc_tf.tables.store import TableStore

if TYPE_CHECKING:
    from xmc_tf.data.vocabularies import LabelHierarchy
    from xmc_tf.models.model import Model

MODEL_LABELS = 20  # labels per document that are predicted for a report


@dataclass(frozen=True)
class Curve:
    """A line of a chart, such as the loss over the steps."""

    name: str
    steps: Sequence[float]
    values: Sequence[float]
    chart: str = ""  # title; lines with the same title share a chart (default: the name)
    x_title: str = "step"

    def __post_init__(self) -> None:
        if len(self.steps) != len(self.values):
            raise InputError(
                f"curve {self.name!r} has different numbers of steps and values",
                expected=f"{len(self.steps):,} values, one per step",
                received=f"{len(self.values):,}",
            )


@dataclass(frozen=True, eq=False)
class ReportInputs:
    """The inputs of a report. Only the first three are required; each optional input adds to the report.

    Example:
        >>> truth, predicted = load_matrix("Y.tst.npz"), load_matrix("pred.npz")
        >>> path = write_report(ReportInputs("Subjects", truth, predicted, texts=TextFile("X.tst.txt")), "report")

    Args:
        title: title of the report.
        truth: true labels, a matrix of documents × labels. Every nonzero entry is a label.
        predicted: scores, a matrix of documents × labels. With 10 to 20 labels per document, the report also shows the
            effect of lower thresholds.
        names: label names, in the order of the columns (default: labels are shown by number).
        texts: texts of the documents, to show examples. Only the texts of the examples are read.
        document_names: names of the documents, such as "line 12 of data.csv" (default: their numbers).
        training_labels: labels of the training data, a matrix of documents × labels. They are needed for label
            frequencies and propensities.
        model: the model that made the predictions. It adds the deciding words to the examples. If it knows the broader
            terms of its labels, it also adds near misses.
        curves: learning curves.
        others: other predictions for the same documents to compare with, by name.
        name: name of ``predicted`` in comparisons.
        settings: further values to show in a table, such as parameters and durations.
        ks: cut-offs of precision, recall and nDCG (default: 1, 3 and 5, or only 1 if each document has one label).
        bounds: upper bounds of the frequency groups of labels. If it is empty, there are no groups.
        propensities: parameters A and B of the propensity model.
        hierarchy: the broader terms of the labels, for near misses (default: the terms that the model knows).
    """

    title: str
    truth: spmatrix
    predicted: spmatrix
    names: Sequence[str] | None = None
    texts: Texts | None = None
    document_names: Sequence[str] | None = None
    training_labels: spmatrix | None = None
    model: "Model | None" = None
    curves: Sequence[Curve] = ()
    others: Mapping[str, spmatrix] = field(default_factory=dict)
    name: str = "model"
    settings: Mapping[str, Any] = field(default_factory=dict)
    ks: Sequence[int] = ()
    bounds: Sequence[int] = (10, 50)
    propensities: tuple[float, float] = (0.55, 1.5)
    hierarchy: "LabelHierarchy | None" = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "truth", as_truth(self.truth))
        if not self.ks:
            object.__setattr__(self, "ks", (1,) if is_single_label(self.truth) else (1, 3, 5))
        object.__setattr__(self, "predicted", csr_matrix(self.predicted))
        for name, matrix in {self.name: self.predicted, **self.others}.items():
            check_shapes(self.truth, matrix, name)
        if self.training_labels is not None:
            object.__setattr__(self, "training_labels", as_truth(self.training_labels, "the training labels"))
        documents, labels = self.truth.shape
        trained = None if self.training_labels is None else self.training_labels.shape[1]
        for what, expected, received in (
            ("label names", labels, None if self.names is None else len(self.names)),
            ("texts", documents, None if self.texts is None else len(self.texts)),
            ("document names", documents, None if self.document_names is None else len(self.document_names)),
            ("columns of training labels", labels, trained),
        ):
            if received is not None and received != expected:
                raise InputError(f"wrong number of {what}", expected=f"{expected:,}", received=f"{received:,}")
        if self.name in self.others:
            raise InputError(f"two predictions have the same name: {self.name!r}", expected="unique names")

    @classmethod
    def of_model(cls, model: "Model", texts: Texts, truth: spmatrix, title: str, **more: Any) -> "ReportInputs":
        """Predict labels of documents with a model, and return the inputs of a report on the predictions.

        Example:
            >>> model, texts = load("model"), TextFile("X.tst.txt")
            >>> inputs = ReportInputs.of_model(model, texts, load_matrix("Y.tst.npz"), "Subjects of books")

        Args:
            model: the model.
            texts: documents that were not used for training; a warning counts others that the model has a record of.
            truth: true labels of the documents, a matrix of documents × labels.
            title: title of the report.
            **more: other arguments of the class.
        """
        if (trained := model.trained_documents) is not None:
            trained.warn_of(texts, "texts")
        predicted = model.predict(texts, only_topk=max((MODEL_LABELS, *more.get("ks", ()))))
        return cls(title, truth, predicted, model.names, texts, model=model, **more)

    @property
    def systems(self) -> dict[str, csr_matrix]:
        """All predictions by name, starting with the main prediction."""
        return {self.name: self.predicted, **{name: csr_matrix(one) for name, one in self.others.items()}}

    @property
    def nr_documents(self) -> int:
        """The number of documents, which are the rows of the true labels."""
        return int(self.truth.shape[0])

    @property
    def nr_labels(self) -> int:
        """The number of labels, which are the columns of the true labels."""
        return int(self.truth.shape[1])

    @property
    def training_frequency(self) -> np.ndarray | None:
        """The number of training documents of each label, or None without training labels."""
        if self.training_labels is None:
            return None
        return np.bincount(self.training_labels.indices, minlength=self.nr_labels)

    @property
    def gains(self) -> np.ndarray | None:
        """The inverse propensity of each label, or None without training labels."""
        frequency = self.training_frequency
        if frequency is None or self.training_labels is None:
            return None
        return inverse_propensity(frequency, self.training_labels.shape[0], *self.propensities)

    @property
    def broader(self) -> csr_matrix | None:
        """A matrix of labels × broader terms, or None if the hierarchy or the label names are unknown."""
        hierarchy = self.model.hierarchy if self.hierarchy is None and self.model is not None else self.hierarchy
        return None if hierarchy is None or self.names is None else hierarchy.broader_matrix(self.names)

    def compared(self, *, details: bool = False) -> Comparison:
        """Return the metrics of all predictions.

        Args:
            details: whether to measure at every k from 1, as charts need (default: false).
        """
        return compare(
            self.truth, [(self.name, self.predicted), *self.others.items()], self.ks, bounds=self.bounds,
            training_frequency=self.training_frequency, gains=self.gains, broader=self.broader, details=details,
        )  # fmt: skip

    def document_name(self, document: int) -> str:
        """Return the name of a document, or its number (counted from 1) if it has no name.

        Args:
            document: index of the document, from 0.
        """
        return f"document {document + 1:,}" if self.document_names is None else self.document_names[document]

    def label_name(self, label: int) -> str:
        """Return the name of a label, or its number if it has no name.

        Args:
            label: number of the label, from 0.
        """
        return str(label) if self.names is None else self.names[label]


def curves_of(run: Run) -> list[Curve]:
    """Return the learning curves of a run. Curves named ``"chart: line"`` share the chart of that name."""
    found = []
    for name, points in run.curve.items():
        chart, _, line = name.rpartition(": ")
        found.append(Curve(line, [step for step, _ in points], [value for _, value in points], chart))
    return found


def curves_of_model(store: TableStore, folder: Path) -> list[Curve]:
    """Return the learning curves of the model's last recorded training run, if there is one."""
    runs = [run for run in runs_of(store) if Path(run.model).resolve() == folder.resolve()]
    return curves_of(runs[-1]) if runs else []
