"""Dual coordinate descent for sixteen sibling labels at once (L2-regularised hinge, squared hinge, logistic loss).

Each visit to a document updates the labels in all sixteen lanes. When a label has converged, the next label in the
queue takes over its lane. Each pass visits the documents in a new random order; with a fixed order, the same problems
need 3 to 6 times as many passes.
References: Hsieh et al., A dual coordinate descent method for large-scale linear SVM, ICML 2008; Yu, Huang, Lin, Dual
coordinate descent methods for logistic regression, Machine Learning 2011.
"""

import math
from typing import NamedTuple

import numpy as np

from xmc_tf.common.compiled import inner, kernel
from xmc_tf.common.lanes import (
    WIDTH,
    at,
    fma,
    load,
    load_signs,
    maximum,
    minimum,
    prefetch,
    prefetch_at,
    splat,
    store,
    where_positive,
)
from xmc_tf.rankers.kernels.emit import emit_column, new_columns
from xmc_tf.rankers.kernels.gather import open_lane

SQUARED_HINGE, HINGE, LOGISTIC = 0, 1, 2

# With more bytes of weights and documents than this, a visit waits for memory more than it computes: then prefetch.
_NEAR_BYTES = 1 << 20
# Number of visits ahead at which to prefetch a document's numbers, and its entries. Weights follow one visit ahead.
_AHEAD_OWN, _AHEAD_ENTRIES = 6, 3


@inner
def _shuffle(order, state):
    """Shuffle ``order`` in place by Fisher-Yates with a splitmix64 generator; return the generator's next state."""
    for i in range(len(order) - 1, 0, -1):
        state += np.uint64(0x9E3779B97F4A7C15)
        z = state
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        j = np.int64(((z >> np.uint64(32)) * np.uint64(i + 1)) >> np.uint64(32))
        order[i], order[j] = order[j], order[i]
    return state


@inner
def _logistic_root(start, square, margin, upper, tolerance):
    """Minimize z log z + (C-z) log(C-z) + a/2 (z-start)² + margin (z-start) for 0 < z < C, where a is ``square`` and
    C is ``upper``. Return z and the absolute gradient at the first guess.
    """
    z = start
    sign = 1.0
    if 0.5 * square * (upper - 2.0 * start) + margin < 0:  # then the mirror image is closer to zero
        z = upper - start
        sign = -1.0
    old = z
    if upper - z < 0.5 * upper:
        z *= 0.1
    z = max(z, 1e-30)
    slope = square * (z - old) + sign * margin + math.log(z / (upper - z))
    first = abs(slope)
    for _ in range(100):
        if abs(slope) < tolerance:
            break
        step = z - slope / (square + upper / (upper - z) / z)
        z = step if step > 0 else z * 0.1
        z = min(z, upper * (1 - 1e-12))
        slope = square * (z - old) + sign * margin + math.log(z / (upper - z))
    return (z if sign > 0 else upper - z), first


class DualScratch(NamedTuple):
    """Zeroed scratch memory of the dual solver. Each array has sixteen columns, one per lane."""

    w: np.ndarray  # a row for each shared feature, for the bias, and for each dense feature
    alpha: np.ndarray  # dual variables, a row for each document
    signs: np.ndarray  # int8, signs of the labels, a row for each document
    cost: np.ndarray  # costs of the positives, a row for each document; a single row if all are 1


@kernel
def solve_dual(
    problem, in_match, nr_sparse_columns, dense, labels, positives, scratch, loss, settings, seed
):  # fmt: skip
    """Train ``labels`` (a queue) on a cluster's documents. Return their weight columns, in order of completion, and the
    number of passes for each. ``in_match`` marks the documents that are negatives of every label unless they are its
    positives. A label has converged when its largest and smallest projected gradients differ by at most ``eps``.
    """
    w, alpha, signs, cost = scratch
    # Numba compiles the use of an array faster than that of a tuple's field.
    rows, indptr, features, values = problem.rows, problem.indptr, problem.features, problem.values
    own, square = problem.own, problem.square
    cp, cn, bias, eps, max_iter, threshold, max_nonzeros = settings
    n, nr_sparse, nr_dense = len(rows), len(problem.names), dense.shape[1]
    bias_row, dense_row = nr_sparse, nr_sparse + 1
    far = (len(values) * 8 + (nr_sparse + 2 * n) * WIDTH * 4 + n * nr_dense * 4) > _NEAR_BYTES
    lane_label, lane_passes = np.empty(WIDTH, np.int64), np.empty(WIDTH, np.int64)
    for lane in range(WIDTH):
        lane_label[lane], lane_passes[lane] = -1, 0
    order = np.empty(n, np.int64)
    for i in range(n):
        order[i] = i
    state = np.uint64(seed)
    ranges = np.zeros((1, WIDTH), np.float32)
    scratch = np.zeros((3, WIDTH), np.float32)
    columns = new_columns(len(labels))
    passes = np.zeros(len(labels), np.int32)
    queued = 0
    for lane in range(WIDTH):
        if queued < len(labels):
            lane_label[lane] = labels[queued]
            open_lane(lane, labels[queued], positives, rows, in_match, signs, cost)
            queued += 1

    zero, minus_one = splat(0.0), splat(-1.0)
    positive_c, negative_c = splat(cp), splat(cn)
    half = splat(0.5 if loss == SQUARED_HINGE else 0.0)
    unbounded = splat(np.inf)
    bias_lanes = splat(bias)
    finished = 0
    while finished < len(labels):
        state = _shuffle(order, state)
        # Logistic gradients are absolute values: the largest decides.
        highest, lowest = splat(-1e30), splat(0.0 if loss == LOGISTIC else 1e30)
        bias_weight = load(w, bias_row)
        for s in range(n):
            if far:
                # Prefetch each array once its address is in the cache. The processor cannot predict a random order, and
                # a visit would wait for one address after the other: a third of all time in a large cluster.
                if s + _AHEAD_OWN < n:
                    i = order[s + _AHEAD_OWN]
                    prefetch(alpha, i)
                    prefetch_at(signs, i * WIDTH)
                    prefetch_at(indptr, i)
                    prefetch_at(rows, i)
                    prefetch_at(own, i)
                    prefetch_at(square, i)
                if s + _AHEAD_ENTRIES < n:
                    i = order[s + _AHEAD_ENTRIES]
                    for p in range(indptr[i], indptr[i + 1] + 15, 16):
                        prefetch_at(features, p)
                        prefetch_at(values, p)
                    first = np.int64(rows[i]) * nr_dense
                    for j in range(0, nr_dense, 16):
                        prefetch_at(dense, first + j)
                if s + 1 < n:
                    i = order[s + 1]
                    for p in range(indptr[i], indptr[i + 1]):
                        prefetch(w, at(features, p))
            i = order[s]
            start, stop = indptr[i], indptr[i + 1]
            margin, margin_2 = zero, zero
            for p in range(start, stop):
                margin = fma(splat(at(values, p)), load(w, at(features, p)), margin)
            first = np.int64(rows[i]) * nr_dense
            if nr_dense > 0:
                margin_3, margin_4 = zero, zero  # four chains of additions hide each other's latency
                whole = nr_dense - nr_dense % 4
                for j in range(0, whole, 4):
                    margin = fma(splat(at(dense, first + j)), load(w, dense_row + j), margin)
                    margin_2 = fma(splat(at(dense, first + j + 1)), load(w, dense_row + j + 1), margin_2)
                    margin_3 = fma(splat(at(dense, first + j + 2)), load(w, dense_row + j + 2), margin_3)
                    margin_4 = fma(splat(at(dense, first + j + 3)), load(w, dense_row + j + 3), margin_4)
                for j in range(whole, nr_dense):
                    margin = fma(splat(at(dense, first + j)), load(w, dense_row + j), margin)
                margin = (margin + margin_2) + (margin_3 + margin_4)
            margin = fma(bias_lanes, bias_weight, margin)

            sign = load_signs(signs, i)
            old = load(alpha, i)
            c = where_positive(sign, positive_c, negative_c)
            if len(cost) > 1:
                c = c * load(cost, i)
            if loss == LOGISTIC:
                store(scratch, 0, fma(sign, margin, splat(own[i]) * old))
                store(scratch, 1, old)
                store(scratch, 2, c)
                for lane in range(WIDTH):
                    if signs[i, lane] != 0:
                        scratch[1, lane], scratch[0, lane] = _logistic_root(
                            scratch[1, lane], square[i], scratch[0, lane], scratch[2, lane], 0.1 * eps
                        )
                    else:
                        scratch[0, lane] = 0.0
                new = load(scratch, 1)
                gradient = load(scratch, 0)
            else:
                diagonal = half / c
                upper = unbounded if loss == SQUARED_HINGE else c
                gradient = fma(sign, margin, fma(old, diagonal + splat(own[i]), minus_one))
                new = minimum(maximum(old - gradient / (splat(square[i]) + diagonal), zero), upper)
                # Projected gradient: at a bound, only the part that points inwards counts.
                gradient = where_positive(old, gradient, minimum(gradient, zero))
                gradient = where_positive(upper - old, gradient, maximum(gradient, zero))
            gradient = gradient * (sign * sign)
            highest, lowest = maximum(highest, gradient), minimum(lowest, gradient)
            store(alpha, i, new)
            step = (new - old) * sign
            bias_weight = fma(bias_lanes, step, bias_weight)
            for p in range(start, stop):
                feature = at(features, p)
                store(w, feature, fma(splat(at(values, p)), step, load(w, feature)))
            for j in range(nr_dense):
                store(w, dense_row + j, fma(splat(at(dense, first + j)), step, load(w, dense_row + j)))
        store(w, bias_row, bias_weight)
        store(ranges, 0, highest - lowest)

        for lane in range(WIDTH):
            if lane_label[lane] < 0:
                continue
            lane_passes[lane] += 1
            if ranges[0, lane] > eps and lane_passes[lane] < max_iter and n > 0:
                continue
            columns = emit_column(
                columns, lane_label[lane], lane, problem, nr_sparse_columns, nr_dense, w, alpha, signs,
                bias > 0, threshold, max_nonzeros,
            )  # fmt: skip
            passes[finished] = lane_passes[lane]
            finished += 1
            lane_label[lane] = -1
            lane_passes[lane] = 0
            for i in range(n):
                alpha[i, lane] = 0.0
            if queued < len(labels):
                lane_label[lane] = labels[queued]
                open_lane(lane, labels[queued], positives, rows, in_match, signs, cost)
                queued += 1
            else:
                for i in range(n):
                    signs[i, lane] = 0
    return columns, passes
