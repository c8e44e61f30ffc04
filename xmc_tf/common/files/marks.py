"""Marks by which a command recognizes files that it wrote earlier. It overwrites no other files."""

from collections.abc import Iterable
from pathlib import Path

# Comments of .npz archives.
FEATURES, LABELS, RELEVANCE = "xmc_tf features", "xmc_tf labels", "xmc_tf relevance"
_MATRIX = "xmc_tf predictions"
# Spaces at the end of an .npy header; NumPy writes fewer.
EMBEDDINGS = " " * 256
# The marks of a matrix of predictions, of JSON lines, and of tables of predicted labels.
PREDICTIONS = (_MATRIX, '"scores": [', "label 1,score 1", "label 1;score 1", "label 1\tscore 1")
MATRIX_OF_PREDICTIONS = _MATRIX
_HEAD, _TAIL = 1 << 16, 64


def is_marked(path: Path, marks: Iterable[str]) -> bool:
    """Return whether a file has one of the marks near its beginning or at its end. Empty files count as marked."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
        size = file.seek(0, 2)
        file.seek(max(size - _TAIL, 0))
        tail = file.read()
    return not head or any(mark.encode() in head or tail.endswith(mark.encode()) for mark in marks)
