"""Labels that are category paths, such as ``Shoes > Boots``: metrics by level, and more general predictions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import scipy.sparse as smat

from xmc_tf.metrics.ranking import NO_LABEL, as_truth, top_labels
from xmc_tf.metrics.table import percent

_SEPARATORS = (" > ", ">", "→", "»", "::", "/")
_MOST_PATHS = 0.5  # minimum share of labels that are paths, and maximum share of different top categories among these


@dataclass(frozen=True)
class CategoryPaths:
    """The category path of each label."""

    parts: tuple[tuple[str, ...], ...]  # the categories of each label, from the top
    separator: str

    @classmethod
    def of(cls, names: Sequence[str] | None) -> Self | None:
        """Extract the category paths from label names; return None if the names are not paths."""
        if not names or any("://" in name for name in names):  # addresses have slashes too
            return None
        for separator in _SEPARATORS:
            parts = (name.partition("\t")[0].split(separator) for name in names)
            paths = [tuple(part.strip() for part in one if part.strip()) for one in parts]
            long = [path for path in paths if len(path) > 1]
            top = {path[0] for path in long}
            if len(long) >= _MOST_PATHS * len(paths) and len(top) <= _MOST_PATHS * len(long):
                return cls(tuple(paths), separator if separator.startswith(" ") else f" {separator} ")
        return None

    @property
    def depth(self) -> int:
        """The number of categories in the longest path."""
        return max(map(len, self.parts))

    def right_by_level(self, truth: smat.spmatrix, predicted: smat.spmatrix) -> list[float]:
        """Return, for each level, the share of documents whose best label is correct down to that level."""
        true, best = as_truth(truth), top_labels(predicted, 1)[:, 0]
        rows = np.repeat(np.arange(true.shape[0]), np.diff(true.indptr))
        shares = []
        for level in range(1, self.depth + 1):
            numbers: dict[tuple[str, ...], int] = {}
            group = np.array([numbers.setdefault(path[:level], len(numbers)) for path in self.parts], np.int64)
            found = np.where(best == NO_LABEL, -1, group[np.maximum(best, 0)])
            right = np.zeros(true.shape[0], bool)
            right[rows[group[true.indices] == found[rows]]] = True
            shares.append(float(right.mean()))
        return shares

    def back_off(self, labels: Iterable[tuple[int, float]], least: float) -> tuple[str, float] | None:
        """Return the most specific category with a probability of ``least`` or more on the path of the best label.

        If no category has it, return the top one; without labels, None. A category's probability is the sum over its
        labels. A document has exactly one label here, so probabilities with a sum below 1 are scaled to a sum of 1.
        """
        found = list(labels)
        if not found:
            return None
        best, total = self.parts[found[0][0]], min(sum(score for _, score in found), 1.0)
        for level in range(len(best), 0, -1):
            below = sum(score for label, score in found if self.parts[label][:level] == best[:level])
            sure = min(below / max(total, 1e-9), 1.0)
            if sure >= least or level == 1:
                return self.separator.join(best[:level]), sure
        return None


def level_shares(names: Sequence[str] | None, truth: smat.spmatrix, predicted: smat.spmatrix) -> list[float]:
    """Return the result of `CategoryPaths.right_by_level`, or an empty list if the names are not paths."""
    paths = CategoryPaths.of(names)
    return [] if paths is None else paths.right_by_level(truth, predicted)


def level_sentence(shares: Sequence[float]) -> str:
    listed = ", ".join(f"{level}: {percent(share)}" for level, share in enumerate(shares, 1))
    return f"% of documents whose best label is right down to each level of its category path: {listed}"
