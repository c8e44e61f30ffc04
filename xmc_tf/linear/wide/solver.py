"""Problems that are too wide for one thread: truncated Newton over documents in parts (L2-regularised squared hinge).

Dual coordinate descent goes over the documents one after the other. Where a cluster has hundreds of millions of entries
(the root's has those of all documents) that one task takes longer than all others together on many machines. So such a
problem is solved in the primal, which has the same minimum: all that Newton's method with conjugate gradients needs of
the documents are sums over them. The documents are dealt into parts, whose number depends on the problem's size and
on nothing else. Each member of a team has some of the parts, and some of the rows of every table: no other computes
anything about those. Where documents are looked at the table is made whole. The members walk through the same course
and come to the same numbers, bit for bit, however many they are.

What keeps the passes few:

* Second derivatives are summed over every fourth document, over more when a step falls short of its promise.
* Their diagonal is known beforehand, but for how many documents are inside the margin: it conditions the gradients.

Reference:
    Byrd, Chin, Neveitt, Nocedal, On the use of stochastic Hessian information in optimization methods for machine
    learning, SIAM J. Optim. 2011.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from xmc_tf.linear.kernels.lanes import WIDTH, aligned_zeros
from xmc_tf.linear.wide.kernels import combine, precondition

_CURVE_EVERY = 4
_LENGTHS = np.array([0.0, 0.0625, 0.125, 0.25, 0.5, 0.75, 1.0, 1.5], np.float32)
_CG_REDUCTION, _CG_MOST = 0.3, 25
_MOST_STEPS = 100
_ROUNDING = 1e-7  # of the objective: what a step may seem to bring or take by rounding alone


class Sums(Protocol):
    """What the course needs of the documents, summed over all of them, and of the rows of all members.

    Attributes:
        size: rows of a table.
        own: those of this member; what it has of a table it has in so many rows.
        diagonal: of the second derivatives, over all documents: the own rows.
    """

    size: int
    own: slice
    diagonal: np.ndarray

    def gradient(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The own rows of the loss's gradient, the loss, and the mean penalty of a document inside the margin."""

    def curve(self, v: np.ndarray, every: int, first: int) -> np.ndarray:
        """The second derivative's product with ``v``, own rows both, by every so many documents."""

    def along(self, direction: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The loss at several distances from where the gradient was taken."""

    def whole(self, own: np.ndarray) -> np.ndarray:
        """The table of which each member has its own rows, until the next call."""

    def products(self, *pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """The scalar products of pairs of tables, own rows given, lane by lane."""


class State:
    """Where a course stands: all that its next step depends on.

    Args:
        size: rows of the weights.
    """

    def __init__(self, size: int) -> None:
        self.w, self.step, self.every, self.done = aligned_zeros(size), 0, _CURVE_EVERY, False


def minimise(sums: Sums, state: State, active: int, tolerance: float, keep: Callable[[State], None]) -> np.ndarray:
    """The weights of up to sixteen labels, (size, 16).

    Args:
        sums: over the documents.
        state: where to begin.
        active: how many lanes are in use.
        tolerance: done when a step promises and brings a smaller share of the objective.
        keep: called after every step.
    """
    busy = np.arange(WIDTH) < active
    while not state.done and state.step < _MOST_STEPS:
        _step(sums, state, busy, tolerance)
        keep(state)
    return state.w


def _step(sums: Sums, state: State, busy: np.ndarray, tolerance: float) -> None:
    """One step of Newton's method."""
    w = state.w[sums.own]
    slope, loss, share = sums.gradient(state.w)
    combine(np.ones(WIDTH), slope, w, slope)
    direction = _direction(sums, slope, share, state, busy)
    fall, size, straight, bent = sums.products((slope, direction), (w, w), (w, direction), (direction, direction))
    promised, here = -0.5 * fall, loss + 0.5 * size
    far = _LENGTHS[:, None].astype(np.float64)
    direction = sums.whole(direction)
    values = sums.along(direction, _LENGTHS) + 0.5 * (size + 2 * far * straight + far * far * bent)
    best = np.where(busy, values.argmin(0), 0)
    brought = values[0] - values[best, np.arange(WIDTH)]
    combine(_LENGTHS[best].astype(np.float64), direction, state.w, state.w)
    state.step += 1
    least = max(tolerance, _ROUNDING) * np.maximum(here, 1e-30)
    if ((np.maximum(promised, brought) <= least) | ((best == 0) & (state.every == 1)) | ~busy).all():
        state.done = True
    elif (brought < 0.5 * promised)[busy].any():
        state.every = max(1, state.every // 2)


def _direction(sums: Sums, slope: np.ndarray, share: np.ndarray, state: State, busy: np.ndarray) -> np.ndarray:
    """The own rows of where Newton's step leads, by conjugate gradients."""
    direction, residual, search, scaled = (aligned_zeros(len(slope)) for _ in range(4))
    combine(np.full(WIDTH, -1.0), slope, direction, residual)
    precondition(residual, sums.diagonal, 2 * share, scaled)
    search[:] = scaled
    (rho,) = sums.products((residual, scaled))
    start, moving = rho, busy & (rho > 0)
    for _ in range(_CG_MOST):
        if not moving.any():
            break
        image = sums.curve(search, state.every, state.step % state.every)
        combine(np.ones(WIDTH), search, image, image)
        (bend,) = sums.products((search, image))
        length = np.where(moving & (bend > 0), rho / np.where(bend > 0, bend, 1), 0)
        combine(length, search, direction, direction)
        combine(-length, image, residual, residual)
        precondition(residual, sums.diagonal, 2 * share, scaled)
        (new,) = sums.products((residual, scaled))
        moving &= new > _CG_REDUCTION**2 * start
        combine(np.where(rho > 0, new / np.where(rho > 0, rho, 1), 0), search, scaled, search)
        rho = new
    return direction
