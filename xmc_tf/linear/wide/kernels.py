"""Sums over the documents of one part of a wide problem (L2-regularised squared hinge, sixteen labels at once).

The solver in ``linear/wide/solver.py`` needs only these sums, so the parts may be on several threads and machines.
"""

import numpy as np

from xmc_tf.common.compiled import inner, kernel
from xmc_tf.linear.kernels.lanes import (
    WIDTH,
    fma,
    load,
    load_signs,
    maximum,
    prefetch,
    splat,
    store,
    where_positive,
)
from xmc_tf.linear.kernels.task import open_lane

_BLOCK = 256  # sums of this many numbers are in single precision; they are added in double precision


@kernel
def open_lanes(problem, in_match, labels, positives, signs, cost, cp, cn, penalty):
    """Set signs and penalties of up to sixteen labels; ``cost`` has a single row if all costs are 1."""
    signs[:] = 0
    for lane in range(len(labels)):
        open_lane(lane, labels[lane], positives, problem.rows, in_match, signs, cost)
    for i in range(len(problem.rows)):
        sign = load_signs(signs, i)
        c = where_positive(sign, splat(cp), splat(cn)) * sign * sign
        store(penalty, i, c * load(cost, i) if len(cost) > 1 else c)


@inner
def _margin(problem, dense, bias_lanes, i, w):
    """Return x · w of one document, for all lanes."""
    shared = len(problem.names)
    total = bias_lanes * load(w, shared)
    for p in range(problem.indptr[i], problem.indptr[i + 1]):
        total = fma(splat(problem.values[p]), load(w, problem.features[p]), total)
    for j in range(dense.shape[1]):
        total = fma(splat(dense[problem.rows[i], j]), load(w, shared + 1 + j), total)
    return total


@inner
def _add(problem, dense, bias_lanes, i, step, out):
    """Add step * x to ``out``, for all lanes."""
    shared = len(problem.names)
    for p in range(problem.indptr[i], problem.indptr[i + 1]):
        feature = problem.features[p]
        store(out, feature, fma(splat(problem.values[p]), step, load(out, feature)))
    for j in range(dense.shape[1]):
        row = shared + 1 + j
        store(out, row, fma(splat(dense[problem.rows[i], j]), step, load(out, row)))
    store(out, shared, fma(bias_lanes, step, load(out, shared)))


@inner
def _prefetch_document(problem, i, w, out):
    """Prefetch the rows that document ``i`` will need."""
    if i < len(problem.rows):
        for p in range(problem.indptr[i], problem.indptr[i + 1]):
            prefetch(w, problem.features[p])
            prefetch(out, problem.features[p])


@kernel
def gradient(problem, dense, bias, signs, penalty, w, out, inside, margins, total):
    """Add the loss's gradient at ``w`` to ``out``.

    Args:
        problem: documents of the part, a :class:`~xmc_tf.linear.kernels.gather.ClusterProblem`.
        dense: dense features of all documents.
        bias: value of the constant feature.
        signs: signs of the labels.
        penalty: penalty of each document.
        w: weights.
        out: receives the sum.
        inside: receives the penalty of each document inside its margin, 0 for others.
        margins: receives x · w.
        total: (1, 16) float64; receives the loss.
    """
    bias_lanes, one, zero = splat(bias), splat(1.0), splat(0.0)
    part = np.zeros((1, WIDTH), np.float32)
    for i in range(len(problem.rows)):
        _prefetch_document(problem, i + 1, w, out)
        sign, c = load_signs(signs, i), load(penalty, i)
        margin = _margin(problem, dense, bias_lanes, i, w)
        slack = maximum(one - sign * margin, zero)
        store(margins, i, margin)
        store(inside, i, where_positive(slack, c, zero))
        step = c * sign * slack
        store(part, 0, fma(c * slack, slack, load(part, 0)))
        _add(problem, dense, bias_lanes, i, splat(-2.0) * step, out)
        if i % _BLOCK == _BLOCK - 1:
            total[0] += part[0]
            part[:] = 0.0
    total[0] += part[0]


@kernel
def curve(problem, dense, bias, inside, every, first, v, out):
    """Add (second derivative of the loss) v to ``out``, from every ``every``-th document, multiplied by ``every``."""
    bias_lanes, two = splat(bias), splat(2.0 * every)
    for i in range(first, len(problem.rows), every):
        _prefetch_document(problem, i + every, v, out)
        step = two * load(inside, i) * _margin(problem, dense, bias_lanes, i, v)
        _add(problem, dense, bias_lanes, i, step, out)


@kernel
def along(problem, dense, bias, signs, penalty, margins, direction, lengths, totals):
    """Set ``totals[k]`` to the loss at margins + lengths[k] * (x · direction)."""
    bias_lanes, one, zero = splat(bias), splat(1.0), splat(0.0)
    part = np.zeros((len(lengths), WIDTH), np.float32)
    for i in range(len(problem.rows)):
        _prefetch_document(problem, i + 1, direction, direction)
        move, here = _margin(problem, dense, bias_lanes, i, direction), load(margins, i)
        sign, c = load_signs(signs, i), load(penalty, i)
        for k in range(len(lengths)):
            slack = maximum(one - sign * fma(splat(lengths[k]), move, here), zero)
            store(part, k, fma(c * slack, slack, load(part, k)))
        if i % _BLOCK == _BLOCK - 1:
            totals += part
            part[:] = 0.0
    totals += part


@kernel
def squares(problem, dense, out):
    """Add the sum of squares of each sparse and dense column to ``out``."""
    shared = len(problem.names)
    for i in range(len(problem.rows)):
        for p in range(problem.indptr[i], problem.indptr[i + 1]):
            out[problem.features[p]] += problem.values[p] * problem.values[p]
        for j in range(dense.shape[1]):
            out[shared + 1 + j] += dense[problem.rows[i], j] * dense[problem.rows[i], j]


@kernel
def products(a, b):
    """Return the scalar product of each lane's columns, in double precision."""
    out, part = np.zeros(WIDTH), np.zeros((1, WIDTH), np.float32)
    for r in range(len(a)):
        store(part, 0, fma(load(a, r), load(b, r), load(part, 0)))
        if r % _BLOCK == _BLOCK - 1:
            out += part[0]
            part[:] = 0.0
    return out + part[0]


@kernel
def combine(a, x, y, out):
    """Set out = a x + y, with a factor per lane."""
    factor = np.zeros((1, WIDTH), np.float32)
    factor[0] = a
    lanes = load(factor, 0)
    for r in range(len(x)):
        store(out, r, fma(lanes, load(x, r), load(y, r)))


@kernel
def precondition(r, diagonal, share, out):
    """Set out = r / (1 + share * diagonal), with a share per lane."""
    factor = np.zeros((1, WIDTH), np.float32)
    factor[0] = share
    lanes, one = load(factor, 0), splat(1.0)
    for row in range(len(r)):
        store(out, row, load(r, row) / fma(lanes, splat(diagonal[row]), one))
