"""Problems that are too wide for one thread: truncated Newton over documents in parts (L2-regularised squared hinge).

Dual coordinate descent visits the documents one after the other. If a cluster has hundreds of millions of entries (the
root's has those of all documents), this one task takes longer than all others on many machines. So such a problem is
solved in the primal, which has the same minimum: Newton's method with conjugate gradients needs only sums over the
documents. The documents are split into parts, whose number depends on the problem's size alone. Each member of a team
has some of the parts, and some of the rows of every table, which no other member computes. Before a pass over the
documents, the table is gathered from all members. All members take the same steps and get the same numbers, bit for
bit, whatever the size of the team.

Two things reduce the number of passes:

* Second derivatives are summed over every fourth document, and over more when a step falls short of its prediction.
* Their diagonal is known beforehand, except for the share of documents inside the margin: it preconditions the
  gradients.

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
_ROUNDING = 1e-7  # share of the objective that rounding can change


class Sums(Protocol):
    """Sums over all documents, and over the rows of all members.

    Attributes:
        size: number of rows of a table.
        own: rows of this member.
        diagonal: own rows of the diagonal of the second derivatives, over all documents.
    """

    size: int
    own: slice
    diagonal: np.ndarray

    def gradient(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the own rows of the gradient, the loss, and the mean penalty of documents inside the margin."""

    def curve(self, v: np.ndarray, every: int, first: int) -> np.ndarray:
        """Return the product of the second derivative and ``v``, own rows both, by every ``every``-th document."""

    def along(self, direction: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the loss at several distances from the point of the last gradient."""

    def whole(self, own: np.ndarray) -> np.ndarray:
        """Return the whole table, gathered from all members' rows, in memory that the next call overwrites."""

    def products(self, *pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Return the scalar products of pairs of tables, of which each member passes its rows, lane by lane."""


class State:
    """The state of a solution: everything that its next step depends on.

    Args:
        size: number of rows of the weights.
    """

    def __init__(self, size: int) -> None:
        self.w, self.step, self.every, self.done = aligned_zeros(size), 0, _CURVE_EVERY, False


def minimize(sums: Sums, state: State, active: int, tolerance: float, keep: Callable[[State], None]) -> np.ndarray:
    """Return the weights of up to sixteen labels, (size, 16).

    Args:
        sums: sums over the documents.
        state: state to begin with; it is updated.
        active: number of lanes in use.
        tolerance: the solution is done when predicted and actual decrease are smaller shares of the objective.
        keep: called after every step.
    """
    busy = np.arange(WIDTH) < active
    while not state.done and state.step < _MOST_STEPS:
        _step(sums, state, busy, tolerance)
        keep(state)
    return state.w


def _step(sums: Sums, state: State, busy: np.ndarray, tolerance: float) -> None:
    """Take one step of Newton's method."""
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
    """Return the own rows of the direction of Newton's step, by conjugate gradients."""
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
