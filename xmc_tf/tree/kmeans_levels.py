"""The nodes of one binary level of the tree, and their split into the nodes of the next level."""

from dataclasses import dataclass, field

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.data.features import Features
from xmc_tf.tree.kmeans_kernels import LabelEntries
from xmc_tf.tree.kmeans_nodes import keep_shared, row_squares
from xmc_tf.tree.threads import ThreadPool, even_cuts


@dataclass
class BinaryLevel:
    """The nodes of one binary level; the labels of a node are contiguous, those without features last."""

    starts: np.ndarray  # where the labels of each node begin
    empties: np.ndarray  # number of labels without features of each node
    widths: np.ndarray  # number of sparse features of each node
    entries: LabelEntries
    _spare: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)
    _owned: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)

    @property
    def nr_nodes(self) -> int:
        return self.starts.size - 1

    @property
    def filled(self) -> np.ndarray:
        """Number of labels with features of each node."""
        return np.diff(self.starts) - self.empties

    def work_before(self) -> np.ndarray:
        """Return the cumulative number of entries before each node and after the last."""
        lengths = self.entries.end - self.entries.begin + self.entries.dense.shape[1] + 8
        return np.concatenate(([0], np.cumsum(lengths)))[self.starts]

    def halve(self, left: np.ndarray) -> None:
        """Put the labels with ``left`` set into left children, the others into right ones."""
        node = np.repeat(np.arange(self.nr_nodes), np.diff(self.starts))
        places = np.argsort(2 * node + ~left, kind="stable")
        self.entries = _at_places(self.entries, places)
        starts = np.empty(2 * self.starts.size - 1, np.int64)
        starts[0::2], starts[1::2] = self.starts, (self.starts[:-1] + self.starts[1:]) >> 1
        empties = np.empty(2 * self.empties.size, np.int64)
        empties[0::2], empties[1::2] = self.empties // 2, self.empties - self.empties // 2
        self.starts, self.empties, self.widths = starts, empties, np.repeat(self.widths, 2)

    def part(self, first: int, last: int) -> "BinaryLevel":
        """Return the nodes in ``[first, last)`` as a level."""
        if first == 0 and last == self.nr_nodes:
            return self
        low, high = int(self.starts[first]), int(self.starts[last])
        entries = _at_places(self.entries, np.arange(low, high))
        starts = self.starts[first : last + 1] - low
        return BinaryLevel(starts, self.empties[first:last], self.widths[first:last].copy(), entries)

    def drop_unshared(self, pool: ThreadPool) -> None:
        """Keep only the features that several labels of a node share, and renumber them."""
        offsets = np.concatenate(([0], np.cumsum(self.entries.end - self.entries.begin)))
        size = int(offsets[-1])
        # Two pairs of arrays take turns, because allocating fresh memory costs as much as the work itself.
        indices, values = self._spare or (np.empty(size, np.uint32), np.empty(size, np.float32))
        pool.run(
            lambda first, last: keep_shared(
                first, last, self.starts, self.widths, offsets[self.starts], self.entries, indices, values
            ),
            even_cuts(self.work_before(), pool.parts),
        )  # fmt: skip
        self._spare, self._owned = self._owned, (indices, values)
        columns = {"indices": read_only(indices, np.uint32), "values": read_only(values, np.float32)}
        self.entries = self.entries._replace(**columns)


def _at_places(entries: LabelEntries, places: np.ndarray) -> LabelEntries:
    """Return the labels at these places, in this order; their features stay where they are."""
    names = ("begin", "end", "order", "private", "norms")
    return entries._replace(**{name: getattr(entries, name)[places] for name in names})


def first_level(features: Features, pool: ThreadPool) -> BinaryLevel:
    """Return the root level: all labels in one node."""
    nr_labels, sparse, width = features.nr_rows, features.sparse, features.nr_sparse
    dense = read_only(np.zeros((nr_labels, 0)) if features.dense is None else features.dense, np.float32)
    indices: np.ndarray
    if sparse is None:
        indptr, indices, values = np.zeros(nr_labels + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)
    else:
        indptr, indices, values = sparse.indptr.astype(np.int64), sparse.indices, sparse.data
    if width >= 2**31:
        used, indices = np.unique(indices, return_inverse=True)
        width = used.size
    values = read_only(values, np.float32)
    squares = np.empty(nr_labels, np.float64)
    work = indptr + np.arange(nr_labels + 1) * (dense.shape[1] + 8)
    pool.run(lambda low, high: row_squares(low, high, indptr, values, dense, squares), even_cuts(work, pool.parts))
    if (wrong := np.flatnonzero(~np.isfinite(squares))).size:
        first = features.rows(wrong[:1])
        parts = [[] if first.sparse is None else first.sparse.data, [] if first.dense is None else first.dense.ravel()]
        numbers = np.concatenate(parts)
        number = numbers[~np.isfinite(numbers)][0]
        raise InputError(
            f"the embedding of label {wrong[0]} holds {number}", expected="finite numbers",
            received=f"{number} in {wrong.size:,} of {squares.size:,} embeddings",
            fix="check the features of the documents and of the labels",
        )  # fmt: skip
    # Scaled so that squares of sums fit a float32 for any unit of the features; the tree stays the same.
    largest = float(np.sqrt(squares.max()))
    if largest > 0 and not 1e-9 < largest < 1e9:
        factor = np.float32(1.0 / largest)
        values, dense = read_only(values * factor, np.float32), read_only(dense * factor, np.float32)
        squares /= largest**2
    order = np.argsort(squares == 0, kind="stable")
    indices = read_only(read_only(indices, np.int32).view(np.uint32), np.uint32)
    private, norms = np.zeros(nr_labels, np.float32), np.sqrt(squares[order]).astype(np.float32)
    entries = LabelEntries(indptr[:-1][order], indptr[1:][order], indices, values, dense, order, private, norms)
    sizes = [0, nr_labels], [np.count_nonzero(squares == 0)], [width]
    starts, empties, widths = (np.array(size, np.int64) for size in sizes)
    return BinaryLevel(starts, empties, widths, entries)


def level_of_nodes(features: Features, level: BinaryLevel, pool: ThreadPool) -> BinaryLevel:
    """Return the same nodes with other features of their labels."""
    root = first_level(features, pool)
    place = np.empty(features.nr_rows, np.int64)
    place[root.entries.order] = np.arange(features.nr_rows)
    empty, node = np.zeros(features.nr_rows, np.bool_), np.repeat(np.arange(level.nr_nodes), np.diff(level.starts))
    empty[root.entries.order[root.entries.order.size - int(root.empties[0]) :]] = True
    order = level.entries.order
    order = order[np.argsort(2 * node + empty[order], kind="stable")]
    empties = np.bincount(node, empty[order], level.nr_nodes).astype(np.int64)
    entries = _at_places(root.entries, place[order])
    changed = BinaryLevel(level.starts, empties, np.repeat(root.widths, level.nr_nodes), entries)
    changed.drop_unshared(pool)
    return changed


def read_only(array: np.ndarray, kind: type) -> np.ndarray:
    """Return a read-only view, so that mapped files and own memory share one compiled kernel."""
    view = np.require(np.asarray(array), dtype=kind, requirements=["C", "A"]).view()
    view.flags.writeable = False
    return view
