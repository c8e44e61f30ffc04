"""The layout of one level's weights in the served graph, in which siblings share rows of weights.

The children of one parent form a group. If the beam contains every parent of a level, the whole level is one group.
A group has a row for each feature that any of its nodes has a weight for. A search for ``group * features + feature``
finds the row: one search per group and feature of the query, not one per node. Rows have one of two forms:

blocks   a number for every sibling: fastest to add, but wastes memory if few siblings have a weight
pairs    only the existing weights, each with its place among the siblings
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from scipy.sparse import csc_matrix

PRECISIONS = ("fp32", "fp16", "int8")
# Adding a block takes as long as adding half as many pairs, so blocks may take this many times the memory of pairs.
MOST_WASTE = 1.5
# Number of weights that are sorted at a time, with about 100 bytes of memory each.
BATCH = 1 << 21


@dataclass(eq=False)
class Arrangement:
    """The weights of one level in the layout that the graph reads."""

    nr_nodes: int
    nr_parents: int
    widest: int  # maximum number of nodes in a group
    most_children: int
    whole: bool  # the level is one group
    form: str  # "blocks" or "pairs"
    stride: int  # distance between the keys of two groups: the number of sparse features
    nr_dense: int
    nr_weights: int
    density: float  # the share of places in the rows that have a weight
    arrays: dict[str, np.ndarray] = field(repr=False)
    bytes: int = 0

    def __post_init__(self) -> None:
        self.bytes = self.bytes or sum(array.nbytes for array in self.arrays.values())

    @property
    def name(self) -> str:
        """Description of the form, for the table of an export."""
        if self.form == "blocks":
            return "dense" if self.whole else "blocks of siblings"
        return "rows of the level" if self.whole else "rows of siblings"


def arrange(
    weights: csc_matrix,  # (sparse features, dense features, bias if there is one) × nodes
    clusters: csc_matrix,  # nodes × parents
    bias: float,
    *,
    nr_sparse: int,
    nr_dense: int,
    beam: int,  # number of parents in the beam of a query
    precision: str = "fp32",
    form: str | None = None,  # None: the form that suits the density of the rows
) -> Arrangement:
    nr_nodes, nr_parents = clusters.shape
    splits = np.asarray(clusters.indptr, np.int64)
    whole = nr_parents <= beam
    groups = np.array([0, splits[-1]]) if whole else splits
    sparse = _Rows(groups, max(nr_sparse, 1))
    dense = np.zeros((int(splits[-1]), nr_dense), np.float32)
    biases = np.zeros(int(splits[-1]), np.float32)
    scale = _scales(weights, clusters.indices, groups, nr_sparse) if precision == "int8" else None
    for first, feature, place, value in _entries(weights, clusters.indices, groups):
        of_bias, of_dense = feature >= nr_sparse + nr_dense, feature >= nr_sparse
        biases[place[of_bias]] = value[of_bias] * np.float32(bias)
        of_dense &= ~of_bias
        dense[place[of_dense], feature[of_dense] - nr_sparse] = value[of_dense]
        rest = feature < nr_sparse
        feature, place, value = feature[rest], place[rest], value[rest]
        if scale is not None:
            value = value / scale[place]
        sparse.add(first, feature, place, _kept(value, precision))
    arrays = sparse.arrays()
    nr_rows, nr_pairs = arrays["keys"].size, arrays["values"].size
    widest = int(np.diff(groups).max(initial=1))
    if form is None:
        block_bytes = nr_rows * widest * arrays["values"].itemsize
        pair_bytes = sum(arrays[name].nbytes for name in ("values", "places", "starts"))
        form = "blocks" if block_bytes <= MOST_WASTE * pair_bytes else "pairs"
    if form == "blocks":
        _pairs_to_blocks(arrays, widest)
    arrays |= {"bias": biases, "splits": _small(splits)}
    if not np.array_equal(clusters.indices, np.arange(nr_nodes)):
        arrays["children"] = clusters.indices.astype(np.int32)
    if scale is not None and nr_pairs:
        arrays["scale"] = scale
    if nr_dense and precision == "int8":
        dense_scale = _scale_of(np.abs(dense).max(axis=1))
        arrays |= {"dense": _kept(dense / dense_scale[:, None], precision), "dense_scale": dense_scale}
    elif nr_dense:
        arrays["dense"] = _kept(dense, precision)
    return Arrangement(
        nr_nodes=int(nr_nodes), nr_parents=int(nr_parents), widest=widest,
        most_children=int(np.diff(splits).max(initial=1)), whole=whole, form=form, stride=max(nr_sparse, 1),
        nr_dense=nr_dense, nr_weights=int(weights.nnz), density=nr_pairs / max(nr_rows * widest, 1), arrays=arrays,
    )  # fmt: skip


def _scales(weights: csc_matrix, order: np.ndarray, groups: np.ndarray, nr_sparse: int) -> np.ndarray:
    """Return the scale of each node's 8-bit weights for sparse features."""
    largest = np.zeros(int(groups[-1]), np.float32)
    for _, feature, place, value in _entries(weights, order, groups):
        np.maximum.at(largest, place[feature < nr_sparse], np.abs(value[feature < nr_sparse]))
    return _scale_of(largest)


def _scale_of(largest: np.ndarray) -> np.ndarray:
    """Return the scale of 8-bit weights, given the largest absolute weight of each node."""
    return np.where(largest > 0, largest / 127, 1).astype(np.float32)


class _Rows:
    def __init__(self, groups: np.ndarray, stride: int) -> None:
        self._groups, self._stride = groups, stride
        self._parts: dict[str, list[np.ndarray]] = {"keys": [], "sizes": [], "places": [], "values": []}

    def add(self, first: int, feature: np.ndarray, place: np.ndarray, value: np.ndarray) -> None:
        """Add a batch from `_entries`; ``first`` is the number of its first group."""
        group = first + np.searchsorted(self._groups[first + 1 :], place, side="right")
        keys = group * self._stride + feature
        order = np.argsort(keys, kind="stable")  # stable: within a row the siblings stay in order
        found, sizes = np.unique(keys[order], return_counts=True)
        widest = int(np.diff(self._groups).max(initial=1))
        small = np.uint8 if widest <= 1 << 8 else np.uint16 if widest <= 1 << 16 else np.int32
        # Smaller keys, so that more of them fit the cache during a search.
        key_type = np.int32 if (len(self._groups) - 1) * self._stride < 2**31 else np.int64
        self._parts["keys"].append(found.astype(key_type))
        self._parts["sizes"].append(sizes.astype(np.int32))
        self._parts["places"].append((place - self._groups[group])[order].astype(small))
        self._parts["values"].append(value[order])

    def arrays(self) -> dict[str, np.ndarray]:
        """Concatenate the parts of each array, and free them array by array to save memory."""
        out = {name: np.concatenate(self._parts.pop(name)) for name in list(self._parts)}
        sizes = out.pop("sizes")
        starts = np.zeros(sizes.size + 1, np.int64)
        np.cumsum(sizes, out=starts[1:])
        return out | {"starts": _small(starts)}


def _entries(
    weights: csc_matrix, order: np.ndarray, groups: np.ndarray
) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (first group, features, places, values) for batches of groups; a huge group is split by features."""
    before = np.concatenate([[0], np.cumsum(np.diff(weights.indptr)[order], dtype=np.int64)])
    first, nr_groups = 0, len(groups) - 1
    while first < nr_groups:
        limit = before[groups[first]] + BATCH
        last = max(first + 1, int(np.searchsorted(before[groups], limit, side="right")) - 1)
        low, high = int(groups[first]), int(groups[last])
        if before[high] - before[low] <= BATCH:
            yield (first, *_columns(weights, order, low, high))
        else:
            for begin, end in pairwise(_cuts(weights, order, before, low, high)):
                parts = [
                    [part[(columns[0] >= begin) & (columns[0] < end)] for part in columns]
                    for columns in _pieces(weights, order, before, low, high)
                ]
                rows, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
                yield first, rows, columns, values
        first = last


def _columns(weights: csc_matrix, order: np.ndarray, low: int, high: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, places and values of the weights of ``order[low:high]``; a place is a position in ``order``."""
    nodes = order[low:high]
    start = np.asarray(weights.indptr, np.int64)[nodes]
    counts = np.asarray(weights.indptr, np.int64)[nodes + 1] - start
    own = np.concatenate([[0], np.cumsum(counts)[:-1]])
    at = np.repeat(start - own, counts) + np.arange(counts.sum())
    # The matrix may be mapped from a file; only this part of it is read.
    places = np.repeat(np.arange(low, high), counts)
    return weights.indices[at].astype(np.int64), places, weights.data[at].astype(np.float32)


def _pieces(
    weights: csc_matrix, order: np.ndarray, before: np.ndarray, low: int, high: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the same arrays as `_columns`, but for a limited number of weights at a time."""
    while low < high:
        end = min(max(low + 1, int(np.searchsorted(before, before[low] + BATCH, side="right")) - 1), high)
        yield _columns(weights, order, low, end)
        low = end


def _cuts(weights: csc_matrix, order: np.ndarray, before: np.ndarray, low: int, high: int) -> np.ndarray:
    """Return the bounds that split the features into ranges of about one batch of weights each."""
    counts = np.zeros(weights.shape[0], np.int64)
    for features, _, _ in _pieces(weights, order, before, low, high):
        counts += np.bincount(features, minlength=len(counts))
    total = np.cumsum(counts)
    inner = np.searchsorted(total, np.arange(BATCH, total[-1], BATCH)) + 1
    return np.unique(np.concatenate([[0], inner, [len(counts)]]))


def _kept(values: np.ndarray, precision: str) -> np.ndarray:
    if precision == "int8":
        return np.rint(values).astype(np.int8)
    if precision == "fp16":
        return np.clip(values, -65504, 65504).astype(np.float16)
    return values


def _pairs_to_blocks(arrays: dict[str, np.ndarray], widest: int) -> None:
    places, values, starts = arrays.pop("places"), arrays["values"], arrays.pop("starts")
    blocks = np.zeros((arrays["keys"].size, widest), values.dtype)
    step = max(1, BATCH // widest)
    for low in range(0, len(blocks), step):  # in steps, because the row numbers take more memory than the weights
        part = starts[low : low + step + 1]
        rows = np.repeat(np.arange(low, low + len(part) - 1), np.diff(part))
        blocks[rows, places[part[0] : part[-1]]] = values[part[0] : part[-1]]
    arrays["values"] = blocks


def _small(numbers: np.ndarray) -> np.ndarray:
    """Return ascending numbers as int32 if they fit, otherwise unchanged."""
    return numbers.astype(np.int32) if numbers[-1] < 2**31 else numbers
