"""Truncated Newton for sixteen sibling labels at once (L2-regularised squared hinge, in the primal).

Each lane minimizes f(w) = |w|²/2 + sum C max(0, 1 - y w·x)² by Newton steps: conjugate gradients compute the direction,
a backtracking line search the length. The lanes take their steps together; one that is done no longer moves.

Reference:
    Lin, Weng, Keerthi, Trust region Newton method for large-scale logistic regression, JMLR 2008.
"""

import numpy as np

from xmc_tf.common.compiled import inner, kernel
from xmc_tf.rankers.kernels.emit import emit_column, new_columns
from xmc_tf.rankers.kernels.lanes import (
    WIDTH,
    aligned_in_kernel,
    fma,
    load,
    load_signs,
    maximum,
    splat,
    store,
    where_positive,
)
from xmc_tf.rankers.kernels.task import open_lane

_CG_REDUCTION = 0.1  # conjugate gradients stop when the residual is this share of the first
_CG_MOST = 50
_SUFFICIENT = 0.01  # share of the predicted decrease that a step must reach


@inner
def _forward(problem, dense, bias, v, out):
    """Set out = X v, for all lanes."""
    shared, nr_dense = len(problem.names), dense.shape[1]
    for i in range(len(problem.rows)):
        total = splat(bias) * load(v, shared)
        for p in range(problem.indptr[i], problem.indptr[i + 1]):
            total = fma(splat(problem.values[p]), load(v, problem.features[p]), total)
        for j in range(nr_dense):
            total = fma(splat(dense[problem.rows[i], j]), load(v, shared + 1 + j), total)
        store(out, i, total)


@inner
def _backward(problem, dense, bias, z, out):
    """Add X' z to ``out``, for all lanes."""
    shared, nr_dense = len(problem.names), dense.shape[1]
    for i in range(len(problem.rows)):
        step = load(z, i)
        for p in range(problem.indptr[i], problem.indptr[i + 1]):
            feature = problem.features[p]
            store(out, feature, fma(splat(problem.values[p]), step, load(out, feature)))
        for j in range(nr_dense):
            row = shared + 1 + j
            store(out, row, fma(splat(dense[problem.rows[i], j]), step, load(out, row)))
        store(out, shared, fma(splat(bias), step, load(out, shared)))


@inner
def _dot(a, b, out):
    """Set ``out[0]`` to the scalar product of each lane's columns of ``a`` and ``b``."""
    total = splat(0.0)
    for r in range(len(a)):
        total = fma(load(a, r), load(b, r), total)
    store(out, 0, total)


@inner
def _loss(problem, signs, margins, move, length, penalty, out):
    """Set ``out[0]`` to each lane's sum of C max(0, 1 - y (margin + length * move))²."""
    total, zero, one = splat(0.0), splat(0.0), splat(1.0)
    t = load(length, 0)
    for i in range(len(problem.rows)):
        slack = maximum(one - load_signs(signs, i) * fma(t, load(move, i), load(margins, i)), zero)
        total = fma(load(penalty, i) * slack, slack, total)
    store(out, 0, total)


@kernel
def solve_primal(
    problem, in_match, nr_sparse_columns, dense, labels, positives, signs, cost, settings
):  # fmt: skip
    """Train ``labels`` on the documents of one cluster, sixteen at a time.

    The arguments are those of ``solve_dual``, with ``signs`` and ``cost`` as in ``DualScratch``. A label is done when
    the length of its gradient is ``eps`` times that of its first gradient.
    """
    cp, cn, bias, newton_eps, max_iter, threshold, max_nonzeros = settings
    n = len(problem.rows)
    size = len(problem.names) + 1 + dense.shape[1]
    columns = new_columns(len(labels))
    passes = np.zeros(len(labels), np.int32)
    w, gradient = aligned_in_kernel(size), aligned_in_kernel(size)
    direction, residual, search, image = (
        aligned_in_kernel(size), aligned_in_kernel(size), aligned_in_kernel(size), aligned_in_kernel(size)
    )  # fmt: skip
    margins, move, work, penalty = (
        aligned_in_kernel(n), aligned_in_kernel(n), aligned_in_kernel(n), aligned_in_kernel(n)
    )  # fmt: skip
    no_alpha = aligned_in_kernel(n)
    s = np.zeros((12, WIDTH), np.float32)  # scalars of the lanes; each row is explained where it is used
    zero, one, two = splat(0.0), splat(1.0), splat(2.0)

    for begin in range(0, len(labels), WIDTH):
        here = labels[begin : begin + WIDTH]
        signs[:] = 0
        for lane in range(len(here)):
            open_lane(lane, here[lane], positives, problem.rows, in_match, signs, cost)
        for i in range(n):
            sign = load_signs(signs, i)
            c = where_positive(sign, splat(cp), splat(cn)) * sign * sign
            store(penalty, i, c * load(cost, i) if len(cost) > 1 else c)
        w[:], margins[:], move[:], s[:] = 0.0, 0.0, 0.0, 0.0
        active = np.zeros(WIDTH, np.bool_)
        active[: len(here)] = True
        for iteration in range(max_iter):
            # Gradient: w - 2 X' (C y slack).
            gradient[:] = w
            for i in range(n):
                sign = load_signs(signs, i)
                slack = maximum(one - sign * load(margins, i), zero)
                store(work, i, splat(-2.0) * load(penalty, i) * sign * slack)
            _backward(problem, dense, bias, work, gradient)
            _dot(gradient, gradient, s[1:2])
            if iteration == 0:
                s[2] = s[1]
            for lane in range(len(here)):
                if active[lane]:
                    passes[begin + lane] = iteration
                    active[lane] = s[1, lane] > newton_eps * newton_eps * s[2, lane] and s[1, lane] > 1e-12
            if not active.any():
                break
            # Conjugate gradients for H d = -g, H = I + 2 X' D X over the documents inside the margin.
            direction[:] = 0.0
            for r in range(size):
                store(residual, r, zero - load(gradient, r))
            search[:] = residual
            s[3] = s[1]
            busy = active.copy()
            for _ in range(_CG_MOST):
                _forward(problem, dense, bias, search, work)
                for i in range(n):
                    inside = where_positive(one - load_signs(signs, i) * load(margins, i), load(penalty, i), zero)
                    store(work, i, two * inside * load(work, i))
                image[:] = search
                _backward(problem, dense, bias, work, image)
                _dot(search, image, s[4:5])
                for lane in range(WIDTH):
                    s[5, lane] = s[3, lane] / s[4, lane] if busy[lane] and s[4, lane] > 0 else 0.0
                step = load(s, 5)
                for r in range(size):
                    store(direction, r, fma(step, load(search, r), load(direction, r)))
                    store(residual, r, load(residual, r) - step * load(image, r))
                _dot(residual, residual, s[6:7])
                for lane in range(WIDTH):
                    s[7, lane] = s[6, lane] / s[3, lane] if busy[lane] and s[3, lane] > 0 else 0.0
                    busy[lane] = busy[lane] and s[6, lane] > _CG_REDUCTION * _CG_REDUCTION * s[1, lane]
                    s[3, lane] = s[6, lane]
                if not busy.any():
                    break
                factor = load(s, 7)
                for r in range(size):
                    store(search, r, fma(factor, load(search, r), load(residual, r)))
            # Line search: halve the step until the decrease is a sufficient share of the predicted one.
            _forward(problem, dense, bias, direction, move)
            _dot(gradient, direction, s[4:5])
            _dot(w, direction, s[5:6])
            _dot(direction, direction, s[6:7])
            s[8] = 0.0
            _loss(problem, signs, margins, move, s[8:9], penalty, s[9:10])
            for lane in range(WIDTH):
                s[8, lane] = 1.0 if active[lane] else 0.0
            for _ in range(20):
                _loss(problem, signs, margins, move, s[8:9], penalty, s[10:11])
                short = True
                for lane in range(WIDTH):
                    t = s[8, lane]
                    gain = s[10, lane] - s[9, lane] + t * s[5, lane] + 0.5 * t * t * s[6, lane]
                    if t > 0 and gain > _SUFFICIENT * t * s[4, lane] + 1e-6 * abs(s[9, lane]):
                        s[8, lane] = 0.5 * t
                        short = False
                if short:
                    break
            length = load(s, 8)
            for r in range(size):
                store(w, r, fma(length, load(direction, r), load(w, r)))
            for i in range(n):
                store(margins, i, fma(length, load(move, i), load(margins, i)))
        for lane in range(len(here)):
            columns = emit_column(
                columns, here[lane], lane, problem, nr_sparse_columns, dense.shape[1], w, no_alpha, signs,
                bias > 0, threshold, max_nonzeros,
            )  # fmt: skip
    return columns, passes
