"""Beam search as TensorFlow ops, with the same results as the rankers' own search."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from xmc_tf.rankers.ensemble import GROWTH
from xmc_tf.rankers.kernels.postprocess import post_processor_code
from xmc_tf.serving.arrangement import Arrangement
from xmc_tf.serving.query import Query

_LARGEST_NODE = 2**31 - 1
NOTHING = -(2**63)  # below every score: not a candidate


class Beam(NamedTuple):
    """The best nodes of a level for each document."""

    nodes: tf.Tensor  # int32 [documents, beam], best first; -1 for missing ones
    scores: tf.Tensor  # float32 of the same shape


class LevelSearch:
    def __init__(self, arrangement: Arrangement, variables: Mapping[str, tf.Variable], post_processor: str) -> None:
        self._level, self._variables, self._post_processor = arrangement, variables, post_processor

    def __call__(self, query: Query, beam: Beam, most: int) -> Beam:
        """Return the best ``most`` children of the nodes in the beam."""
        first = tf.gather(self._variables["splits"], tf.maximum(beam.nodes, 0))
        last = tf.gather(self._variables["splits"], tf.maximum(beam.nodes, 0) + 1)
        # The children of each node in the beam, padded to the maximum number of children.
        places = first[..., None] + tf.range(self._level.most_children, dtype=first.dtype)
        there = (places < last[..., None]) & (beam.nodes >= 0)[..., None]
        places = tf.where(there, places, 0)
        raw = self._sparse_scores(query, beam, places)
        if "dense" in self._variables:
            raw += self._dense_scores(query, places)
        raw += tf.gather(self._variables["bias"], places)
        scores = chained(self._post_processor, raw, beam.scores[..., None])
        children = self._variables.get("children")
        nodes = tf.cast(places, tf.int32) if children is None else tf.gather(children, places)
        width = beam.nodes.shape[1] * self._level.most_children
        return best_of(tf.reshape(rank(scores, nodes, there), [-1, width]), min(most, width))

    def _sparse_scores(self, query: Query, beam: Beam, places: tf.Tensor) -> tf.Tensor:
        """Return the raw scores from sparse features: float32 [documents, beam, children]."""
        # Read once, because each read copies the variable.
        keys = self._variables["keys"].value()
        if keys.shape[0] == 0:  # no node has a weight on any sparse feature
            return tf.zeros(tf.shape(places), tf.float32)
        groups = tf.zeros_like(beam.nodes[:, :1]) if self._level.whole else beam.nodes
        each = groups.shape[1]
        # One row of weights to look up for each feature of a document and each group in its beam.
        row_keys = tf.cast(tf.gather(groups, query.rows), keys.dtype) * self._level.stride
        row_keys = tf.reshape(row_keys + tf.cast(query.features, keys.dtype)[:, None], [-1])
        at = tf.minimum(tf.searchsorted(keys, row_keys), keys.shape[0] - 1)
        found = tf.where(tf.equal(tf.gather(keys, at), row_keys))[:, 0]
        at = tf.gather(at, found)
        entry = tf.cast(found // each, tf.int32)
        value = tf.gather(query.values, entry)
        target = tf.gather(query.rows, entry) * each + tf.cast(found % each, tf.int32)
        nr_targets = query.count * each
        add = self._add_blocks if self._level.form == "blocks" else self._add_pairs
        sums = tf.reshape(add(at, value, target, nr_targets), [-1, each, self._level.widest])
        if self._level.whole:
            chosen = tf.gather(sums[:, 0], tf.reshape(places, [query.count, -1]), batch_dims=1)
            sums = tf.reshape(chosen, tf.shape(places))
        elif self._level.widest != self._level.most_children:
            sums = sums[..., : self._level.most_children]
        if "scale" in self._variables:
            sums *= tf.gather(self._variables["scale"], places)
        return sums

    def _add_blocks(self, at: tf.Tensor, value: tf.Tensor, target: tf.Tensor, nr_targets: tf.Tensor) -> tf.Tensor:
        rows = tf.cast(tf.gather(self._variables["values"], at), tf.float32)
        return tf.math.unsorted_segment_sum(rows * value[:, None], target, nr_targets)

    def _add_pairs(self, at: tf.Tensor, value: tf.Tensor, target: tf.Tensor, nr_targets: tf.Tensor) -> tf.Tensor:
        start = tf.gather(self._variables["starts"], at)
        ends = tf.cumsum(tf.gather(self._variables["starts"], at + 1) - start)
        total = tf.reduce_max(tf.concat([ends, [0]], axis=0))
        # The row of each pair: no row is empty, so the number rises by one wherever a row begins.
        of_row = tf.cumsum(tf.scatter_nd(ends[:-1, None], tf.ones_like(ends[1:], tf.int32), [total]))
        before = tf.concat([tf.zeros_like(ends[:1]), ends[:-1]], axis=0)
        pairs = tf.range(total) + tf.gather(start - before, of_row)
        amount = tf.cast(tf.gather(self._variables["values"], pairs), tf.float32) * tf.gather(value, of_row)
        place = tf.gather(target * self._level.widest, of_row)
        place += tf.cast(tf.gather(self._variables["places"], pairs), tf.int32)
        return tf.math.unsorted_segment_sum(amount, place, nr_targets * self._level.widest)

    def _dense_scores(self, query: Query, places: tf.Tensor) -> tf.Tensor:
        """Return the children's raw scores from dense features. The whole level is scored first if that is faster."""
        assert query.dense is not None
        vectors, weights = query.dense, self._variables["dense"]

        def of_children() -> tf.Tensor:
            rows = tf.cast(tf.gather(weights, places), tf.float32)
            return tf.einsum("nbcd,nd->nbc", rows, vectors)

        def of_all() -> tf.Tensor:
            everything = tf.matmul(vectors, tf.cast(weights, tf.float32), transpose_b=True)
            chosen = tf.gather(everything, tf.reshape(places, [query.count, -1]), batch_dims=1)
            return tf.reshape(chosen, tf.shape(places))

        few = tf.size(places) < weights.shape[0]
        sums = of_all() if self._level.whole else tf.cond(few, of_children, of_all)
        if "dense_scale" in self._variables:
            sums *= tf.gather(self._variables["dense_scale"], places)
        return sums


class TreeSearch:
    def __init__(self, levels: Sequence[LevelSearch], nr_roots: int, beams: Sequence[int], first_post: str) -> None:
        self._levels, self._nr_roots, self._beams = levels, nr_roots, beams
        self._root_score = 0.0 if additive(first_post) else 1.0

    def __call__(self, query: Query, most: int) -> list[Beam]:
        """Return the beam of each level; the last beam contains the best ``most`` labels."""
        shape = [query.count, self._nr_roots]
        nodes = tf.broadcast_to(tf.range(self._nr_roots), shape)
        beam = Beam(tf.ensure_shape(nodes, [None, self._nr_roots]), tf.fill(shape, self._root_score))
        beams = []
        for level, size in zip(self._levels, [*self._beams[:-1], most], strict=True):
            beam = level(query, beam, size)
            beams.append(beam)
        return beams


class MeanSearch:
    """A search over several trees; its last beam contains the mean of the trees' scores."""

    def __init__(self, searches: Sequence[TreeSearch], pool: int) -> None:
        self._searches, self._pool = searches, pool

    def __call__(self, query: Query, most: int) -> list[Beam]:
        return search_deeper(self._search, query, most, self._pool)

    def _search(self, query: Query, size: int) -> list[Beam]:
        found = [search(query, size) for search in self._searches]
        return [*found[0][:-1], mean_of([beams[-1] for beams in found], size)]


def search_deeper(search: Callable[[Query, int], list[Beam]], query: Query, most: int, first: int) -> list[Beam]:
    """Return the beams. A longer list of labels begins with the shorter list; see ``xmc_tf.rankers.ensemble``."""
    *above, found = search(query, first)
    while first < most:
        first *= GROWTH
        found = append_new(found, search(query, first)[-1])
    return [*above, first_of(found, most)]


def append_new(found: Beam, more: Beam, shares: bool = False) -> Beam:
    """Append the labels of ``more`` that are not in ``found``. Their scores are capped at the lowest score in ``found``
    or, with ``shares``, multiplied by it.
    """
    known = tf.reduce_any(tf.equal(more.nodes[:, :, None], found.nodes[:, None, :]), axis=2)
    new = tf.where(known, -1, more.nodes)
    lowest = tf.reduce_min(tf.where(found.nodes >= 0, found.scores, tf.float32.max), axis=1, keepdims=True)
    if shares:
        scores = more.scores * tf.where(lowest == tf.float32.max, 1.0, lowest)
    else:
        scores = tf.minimum(more.scores, lowest)
    nodes = tf.concat([found.nodes, new], axis=1)
    scores = tf.concat([found.scores, tf.where(new >= 0, scores, 0.0)], axis=1)
    order = tf.argsort(tf.cast(nodes < 0, tf.int32), axis=1, stable=True)
    return Beam(tf.gather(nodes, order, batch_dims=1), tf.gather(scores, order, batch_dims=1))


def first_of(beam: Beam, most: int) -> Beam:
    return Beam(beam.nodes[:, :most], beam.scores[:, :most])


def mean_of(beams: Sequence[Beam], most: int) -> Beam:
    """Return the best labels by their mean score over the beams; a label counts as 0 in beams that lack it."""
    # The sum runs from the first beam to the last in float32, as in the rankers' own search.
    nodes = tf.concat([beam.nodes for beam in beams], axis=1)
    total, there, before = tf.zeros_like(nodes, tf.float32), nodes >= 0, 0
    for beam in beams:
        same = tf.equal(nodes[:, :, None], beam.nodes[:, None, :])
        total += tf.reduce_sum(tf.where(same, beam.scores[:, None, :], 0.0), axis=2)
        # A label is a candidate where it appears first: not in the beams after this one.
        before += beam.nodes.shape[1]
        later = tf.range(nodes.shape[1]) >= before
        there &= ~(later & tf.reduce_any(same, axis=2))
    return best_of(rank(total / len(beams), nodes, there), min(most, nodes.shape[1]))


def additive(name: str) -> bool:
    """Return whether the post-processor's scores are added along the path, as logarithms are."""
    return name.startswith("log-")


def chained(name: str, raw: tf.Tensor, parent: tf.Tensor) -> tf.Tensor:
    """Return the float32 scores of nodes, combined with their parents' scores."""
    # Double precision, as in the compiled search: equal scores are frequent (a hinge maps all values beyond its margin
    # to 1) and must be equal here too. Only scores below 1e-38 differ: TensorFlow flushes subnormal numbers to 0.
    post_processor_code(name)  # raises an error for unknown names
    if name == "noop":
        return raw
    raw, parent = tf.cast(raw, tf.float64), tf.cast(parent, tf.float64)
    if name == "sigmoid":
        own = 1.0 / (1.0 + tf.exp(-raw))
    elif name == "log-sigmoid":
        own = tf.minimum(raw, 0.0) - tf.math.log1p(tf.exp(-tf.abs(raw)))
    else:
        gap = tf.maximum(1.0 - raw, 0.0)
        loss = gap
        for _ in range(int(name.removesuffix("-hinge")[-1]) - 1):
            loss *= gap
        own = -loss if additive(name) else tf.exp(-loss)
    return tf.cast(own + parent if additive(name) else own * parent, tf.float32)


def rank(scores: tf.Tensor, nodes: tf.Tensor, there: tf.Tensor) -> tf.Tensor:
    """Return sort keys: larger for higher scores, then for smaller node numbers; `NOTHING` where ``there`` is false."""
    bits = tf.bitcast(scores, tf.int32)
    bits = tf.where(tf.equal(bits, -(2**31)), 0, bits)  # -0.0 becomes 0.0
    # The bits of negative numbers rise as the numbers fall.
    ascending = tf.where(bits < 0, tf.bitwise.bitwise_xor(bits, _LARGEST_NODE), bits)
    keys = tf.bitwise.left_shift(tf.cast(ascending, tf.int64), tf.constant(32, tf.int64))
    return tf.where(there, keys + tf.cast(_LARGEST_NODE - nodes, tf.int64), NOTHING)


def best_of(keys: tf.Tensor, most: int) -> Beam:
    """Return the nodes and scores of the ``most`` largest keys in each row; :func:`rank` makes the keys."""
    scores, nodes = unrank(tf.math.top_k(keys, k=most).values)
    return Beam(nodes, scores)


def unrank(keys: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Convert keys of :func:`rank` to float32 scores and int32 nodes; 0 and -1 if a key is not a candidate."""
    there = tf.not_equal(keys, NOTHING)
    ascending = tf.cast(tf.bitwise.right_shift(keys, tf.constant(32, tf.int64)), tf.int32)
    bits = tf.where(ascending < 0, tf.bitwise.bitwise_xor(ascending, _LARGEST_NODE), ascending)
    low = tf.cast(tf.bitwise.bitwise_and(keys, tf.constant(_LARGEST_NODE, tf.int64)), tf.int32)
    return tf.where(there, tf.bitcast(bits, tf.float32), 0.0), tf.where(there, _LARGEST_NODE - low, -1)
