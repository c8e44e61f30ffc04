"""The data of an evaluation: predictions in files, or those of a model for a labelled table."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.compiled import announce_compiling
from xmc_tf.common.errors import InputError
from xmc_tf.common.files.regular import existing_file
from xmc_tf.data import Texts
from xmc_tf.data.vocabularies import LabelHierarchy, load_hierarchy
from xmc_tf.metrics.propensity import inverse_propensity
from xmc_tf.metrics.ranking import as_truth
from xmc_tf.report.inputs import MODEL_LABELS, broader_terms
from xmc_tf.report.writing import refuse_report
from xmc_tf.tables.label_forms import LISTS, LabelData
from xmc_tf.tables.reading_flags import labelled_columns, source_options

if TYPE_CHECKING:
    from xmc_tf.models.model import Model


@dataclass(frozen=True, eq=False)
class MeasuredData:
    """True labels and predictions, with the texts and the model for a report.

    Args:
        truth: true labels, documents × labels.
        systems: predictions by name.
        names: label names, or None.
        texts: the documents, or None.
        documents: what the documents are called, or None.
        model: the model that predicted, or None.
        training: labels of the training documents, or None.
        propensities: parameters A and B of the propensity model.
        hierarchy: the broader terms of the labels (default: those that the model knows).
    """

    truth: csr_matrix
    systems: Sequence[tuple[str, Any]]
    names: Sequence[str] | None = None
    texts: Texts | None = None
    documents: Sequence[str] | None = None
    model: "Model | None" = None
    training: csr_matrix | None = None
    propensities: tuple[float, float] = (0.55, 1.5)
    hierarchy: LabelHierarchy | None = None

    @property
    def frequency(self) -> np.ndarray | None:
        """Number of training documents of each label, or None."""
        return None if self.training is None else np.bincount(self.training.indices, minlength=self.training.shape[1])

    @property
    def gains(self) -> np.ndarray | None:
        """Inverse propensity of each label, or None."""
        frequency = self.frequency
        if frequency is None or self.training is None:
            return None
        return inverse_propensity(frequency, self.training.shape[0], *self.propensities)

    @property
    def broader(self) -> csr_matrix | None:
        """The broader terms of the labels, labels × terms, or None."""
        return broader_terms(self.hierarchy, self.model, self.names)


def measured_table(args: argparse.Namespace, most: int) -> MeasuredData:
    """Return a model's predictions for a labelled table, and the table's labels.

    Labels that the model does not know count as misses. Rows without a text or a label are counted and left out.

    Args:
        args: the parsed flags.
        most: the largest number of labels per document that is measured.
    """
    from xmc_tf.models.documents import labelled_rows
    from xmc_tf.models.labels import matrix_of_names, true_labels, unknown_labels
    from xmc_tf.models.loading import load
    from xmc_tf.models.results import over_all_labels

    files = {
        "-y": args.truth_path, "-p": args.pred_path, "-t": args.text_path, "--train-labels": args.train_labels,
        "--labels": args.labels, "--ensemble": args.ensemble,
    }  # fmt: skip
    if found := [flag for flag, value in files.items() if value]:
        raise InputError(f"a table and {', '.join(found)} exclude each other", fix="leave out one of them")
    if not args.model_folder:
        raise InputError("-m is missing", expected="the model that is measured on the table", fix="add -m model")
    if args.report:
        refuse_report(
            "--report", args.report, {"TABLE": args.table, "-m": args.model_folder, "--vocabulary": args.vocabulary}
        )
    announce_compiling()
    model = load(args.model_folder)
    options = labelled_columns(args, model.metadata.columns)
    texts, labels, documents = labelled_rows(args.table, source_options(args), options, "measured")
    own = LabelData(LISTS, labels)
    if model.names is None:
        names, truth = None, true_labels(own, texts, model.metadata.nr_labels, None)
    else:
        names = [*model.names, *unknown_labels(own, model.names)]
        truth = matrix_of_names(own.names, names, "the model's label names")
    hierarchy = given_hierarchy(args, names)
    predicted = over_all_labels(model.predict(texts, only_topk=max(most, MODEL_LABELS)), truth.shape[1], None)
    name = (args.tags or [Path(args.model_folder).name or "model"])[0]
    return MeasuredData(
        as_truth(truth), [(name, predicted)], names, texts, documents, model, hierarchy=hierarchy
    )  # fmt: skip


def given_hierarchy(args: argparse.Namespace, names: Sequence[str] | None) -> LabelHierarchy | None:
    """Return the broader terms of labels in the vocabulary that is given; None without one.

    Args:
        args: the parsed flags.
        names: the names of the labels, or None.
    """
    vocabulary, language = args.vocabulary, args.language
    if vocabulary is None and language is None:
        return None
    if vocabulary is None or language is None or names is None:
        raise InputError(
            "near misses cannot be measured",
            expected="--vocabulary, --language, and names of labels, of the model or in --labels",
            received="labels without names" if vocabulary and language else
            f"only {'--language' if vocabulary is None else '--vocabulary'}",
            fix="leave out --vocabulary and --language, or give all of them",
        )  # fmt: skip
    return load_hierarchy(names, existing_file(vocabulary, "vocabulary"), language)
