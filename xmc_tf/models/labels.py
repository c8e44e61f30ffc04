"""The labels of documents: a sparse matrix, or the names of each document's labels."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix, issparse, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import check_labels, check_pair, check_validation_input
from xmc_tf.params.values import nearest

Labels: TypeAlias = spmatrix | Sequence[Iterable[str]]


def label_matrix(labels: Labels, names: Sequence[str] | None = None) -> tuple[spmatrix, list[str] | None]:
    """Return the label matrix of training documents, and the label names.

    Example:
        >>> Y, names = label_matrix([["kitchen", "food"], ["garden"]])
        >>> names
        ['food', 'garden', 'kitchen']

    Args:
        labels: a sparse matrix of documents × labels, or the label names of each document.
        names: label names in the order of the columns. Default: for a matrix, labels have no names; for lists, the
            names in the lists, sorted.

    Raises:
        InputError: the labels of a document are not a list of names, or a name is not in ``names``.
    """
    names = None if names is None else _checked(names)
    if not _are_names(labels):
        matrix: Any = labels
        return (matrix.tocsr() if issparse(matrix) and matrix.format not in ("csr", "csc") else matrix), names
    documents = _documents(labels)
    if names is None:
        names = _checked(sorted({name for document in documents for name in document}))
    matrix = matrix_of_names(documents, names, "the label names of the training")
    check_labels(matrix)
    return matrix, names


def true_labels(labels: Labels, texts: Any, nr_labels: int, names: Sequence[str] | None) -> csr_matrix:
    """Return the label matrix of documents that a model is evaluated on.

    Args:
        labels: a sparse matrix of documents × labels, or the label names of each document.
        texts: the documents.
        nr_labels: number of labels of the model.
        names: label names of the model.
    """
    if _are_names(labels):
        if names is None:
            raise InputError(
                "the labels are names, but the model's labels have no names",
                expected=f"a sparse matrix of documents × {nr_labels:,} labels",
                received="lists of label names",
                fix="train the model with names=[...]",
            )
        matrix: Any = matrix_of_names(_documents(labels), names, "the model's label names")
    else:
        matrix = labels
        check_validation_input(matrix.tocsr() if issparse(matrix) else matrix, nr_labels)
    check_pair(texts, matrix, "the documents", "the labels")
    return matrix.tocsr()


def _are_names(labels: Any) -> bool:
    """Return whether the labels are names; arrays and tables count as a matrix, which the checks then refuse."""
    return not issparse(labels) and not hasattr(labels, "shape")


def _documents(labels: Any) -> list[list[str]]:
    """Return the label names of each document."""
    documents = []
    for row, document in enumerate(labels):
        if isinstance(document, str | bytes | Mapping) or not isinstance(document, Iterable):
            raise InputError(
                f"the labels of document {row:,} are not a list",
                expected='a list of label names per document, such as ["food", "kitchen"]',
                received=repr(document)[:60],
                fix="labels = [[label] for label in labels], if each document has one label",
            )
        names = list(document)
        for name in names:
            if not isinstance(name, str):
                raise InputError(
                    f"the labels of document {row:,} are not names",
                    expected="text",
                    received=f"{name!r}"[:60],
                    fix="use str(label), or give a sparse matrix of documents × labels",
                )
        documents.append(names)
    return documents


def _checked(names: Sequence[str]) -> list[str]:
    """Refuse names that a line of ``labels.txt`` cannot hold."""
    for column, name in enumerate(names := list(names)):
        if not isinstance(name, str) or not name.strip() or "\n" in name:
            raise InputError(
                f"label name {column:,} cannot be used",
                expected="text on one line, not empty",
                received=repr(name)[:60],
            )
    return names


def matrix_of_names(documents: list[list[str]], names: Sequence[str], called: str) -> csr_matrix:
    """Return documents × labels, with an entry of 1 for each label of a document.

    Args:
        documents: the label names of each document.
        names: all names, in the order of the columns.
        called: what they are called in errors.
    """
    column_of = {name: column for column, name in enumerate(names)}
    if len(column_of) != len(names):
        double = next(name for column, name in enumerate(names) if column_of[name] != column)
        raise InputError(
            f"{called} contain {double!r} more than once",
            expected="a different name for each label",
            fix="rename one of them, or give the labels as a sparse matrix",
        )
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
