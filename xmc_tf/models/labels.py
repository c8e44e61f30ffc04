"""Label matrices of documents, and checks for labels that the model does not know."""

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import check_labels, check_pair, check_validation_input
from xmc_tf.data.text import Texts
from xmc_tf.params.values import nearest

if TYPE_CHECKING:
    from xmc_tf.tables.label_forms import LabelData

_LOG = logging.getLogger(__name__)
_SHOWN = 3

Labels: TypeAlias = spmatrix | np.ndarray | Iterable[Iterable[str] | str | int] | str | int
"""Labels in any accepted form: a matrix, lists of names, texts with separators, or the name of a column."""


def label_matrix(labels: "LabelData", names: Sequence[str] | None = None) -> tuple[spmatrix, list[str] | None]:
    """Return the label matrix of training documents, and the label names.

    If ``names`` is None, the names are the columns of a DataFrame or the sorted labels of lists; a matrix has no names.
    """
    names = None if names is None else _checked(names)
    if labels.is_matrix:
        if names is None and labels.columns is not None:
            names = _checked(labels.columns.tolist())
        return labels.matrix(), names
    documents = labels.names
    if names is None:
        names = _checked(sorted({name for document in documents for name in document}))
    matrix = matrix_of_names(documents, names, "the label names")
    check_labels(matrix)
    return matrix, names


def true_labels(labels: "LabelData", documents: Any, nr_labels: int, names: Sequence[str] | None) -> csr_matrix:
    """Return the label matrix of test documents. Labels unknown to the model come last and count as misses."""
    if labels.is_matrix and (labels.columns is None or names is None):
        matrix: Any = labels.matrix()
        check_validation_input(matrix, nr_labels)
    else:
        names = needed_names(names, nr_labels)
        every = [*names, *unknown_labels(labels, names)]  # unknown labels come last
        matrix = matrix_of_names(labels.names, every, "the model's label names")
    check_pair(documents, matrix, "the documents", "the labels")
    return matrix.tocsr()


def measurable(texts: Texts | None, truth: csr_matrix) -> np.ndarray:
    """Return the rows of the documents that have a text and a label, and warn about the others."""
    usable = np.diff(truth.indptr) > 0
    if texts is not None:
        usable &= np.fromiter((bool(text.strip()) for text in texts), bool, len(usable))
    if not usable.any():
        raise InputError(
            "there is nothing to measure", expected="documents with a text and a label",
            received=f"none in {len(usable):,} documents",
        )  # fmt: skip
    if not usable.all():
        _LOG.warning(
            "%s of %s documents have no text or no label and are not measured", f"{(~usable).sum():,}",
            f"{len(usable):,}",
        )  # fmt: skip
    return np.flatnonzero(usable)


def needed_names(names: Sequence[str] | None, nr_labels: int) -> Sequence[str]:
    """Return the label names of a model; raise an error if there are none."""
    if names is None:
        raise InputError(
            "the labels are names, but the model's labels have no names",
            expected=f"a sparse matrix of documents × {nr_labels:,} labels", received="label names",
            fix="train the model with names=[...]",
        )  # fmt: skip
    return names


def unknown_labels(labels: "LabelData", names: Sequence[str]) -> list[str]:
    """Return the sorted labels that the model does not know, and warn about them; raise an error if it knows none."""
    documents = labels.names
    known = set(names)
    unknown: dict[str, int] = {}
    for document in documents:
        for name in set(document) - known:
            unknown[name] = unknown.get(name, 0) + 1
    if unknown:
        first = sorted(unknown, key=lambda name: (-unknown[name], name))
        shown = ", ".join(f"{name[:60]!r}" for name in first[:_SHOWN]) + (", …" if len(first) > _SHOWN else "")
        if len(unknown) == len({name for document in documents for name in document}):
            similar = nearest(first[0], names)
            raise InputError(
                "the model knows none of the labels", expected=f"some of its {len(names):,} labels", received=shown,
                fix=f"did you mean {similar!r}?" if similar else "check the column and label_separator",
            )  # fmt: skip
        _LOG.warning(
            "%s of the labels are unknown to the model and count as misses: %s (in %s documents)",
            f"{len(unknown):,}", shown, f"{sum(not known.issuperset(document) for document in documents):,}",
        )  # fmt: skip
    return sorted(unknown)


def _checked(names: Sequence[str]) -> list[str]:
    """Return the names as a list; raise an error if one cannot be stored as a line of ``labels.txt``."""
    for column, name in enumerate(names := list(names)):
        if not isinstance(name, str) or not name.strip() or "\n" in name:
            raise InputError(
                f"label name {column:,} cannot be used", expected="non-empty text on one line",
                received=repr(name)[:60],
            )  # fmt: skip
    return names


def matrix_of_names(documents: list[list[str]], names: Sequence[str], called: str) -> csr_matrix:
    """Return a matrix of documents × labels with 1 for each label; errors refer to the names as ``called``."""
    column_of = {name: column for column, name in enumerate(names)}
    if len(column_of) != len(names):
        double = next(name for column, name in enumerate(names) if column_of[name] != column)
        raise InputError(
            f"{called} contain {double!r} more than once", expected="a different name for each label",
            fix="rename one of them, or give the labels as a sparse matrix",
        )  # fmt: skip
    columns: list[int] = []
    indptr = [0]
    for row, document in enumerate(documents):
        for name in document:
            if name not in column_of:
                similar = nearest(name, names)
                raise InputError(
                    f"document {row:,} has an unknown label: {name[:60]!r}",
                    expected=f"one of {called} ({len(names):,})",
                    fix=f"did you mean {similar!r}?" if similar else "add it to names, or remove it from the document",
                )
        columns += sorted({column_of[name] for name in document})
        indptr.append(len(columns))
    values = np.ones(len(columns), np.float32)
    return csr_matrix((values, np.array(columns, np.int32), np.array(indptr)), shape=(len(documents), len(names)))


def binary(Y: Any) -> csr_matrix:
    """Return a copy of the label matrix with every nonzero value set to 1."""
    out = csr_matrix(Y, dtype=np.float32, copy=True)
    out.sum_duplicates()
    out.eliminate_zeros()
    out.data[:] = 1.0
    return out
