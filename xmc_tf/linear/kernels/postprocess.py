"""What becomes of a raw score: squashed, and chained with the parent's.

``noop`` forgets the parent; ``sigmoid`` and ``lp-hinge`` = exp(-max(1 - x, 0)^p) multiply along the path; their
``log-`` forms add.
"""

import math

import numpy as np

from xmc_tf.common.compiled import njit

NOOP, SIGMOID, LOG_SIGMOID, HINGE, LOG_HINGE = 0, 10, 20, 30, 40


@njit(cache=True, nogil=True)
def squash(code, raw):
    """The score of a node by itself."""
    if code == NOOP:
        return raw
    if code == SIGMOID:
        return 1.0 / (1.0 + math.exp(-raw))
    if code == LOG_SIGMOID:
        return -math.log1p(math.exp(-raw)) if raw > 0 else raw - math.log1p(math.exp(raw))
    gap = 1.0 - raw
    if gap <= 0.0:
        return 1.0 if code < LOG_HINGE else 0.0
    power = code % 10
    loss = gap
    for _ in range(power - 1):
        loss *= gap
    return math.exp(-loss) if code < LOG_HINGE else -loss


@njit(cache=True, nogil=True)
def least_raw(code, worst, parent):
    """A raw score below which a node's chained score is below ``worst``: most need not be squashed to be dropped.

    A little lower than it could be, so that rounding drops nothing that should stay: neither that of the score, which
    makes neighbours the same and leaves it to their numbers who stays, nor that of squashing.
    """
    if code == NOOP:
        return np.float64(worst)
    worst = worst - 1e-6 * abs(worst) - 1e-40
    if additive(code):
        own = worst - parent
        if own >= 0.0:
            return -math.inf
        share = math.exp(own) if code == LOG_SIGMOID else -own
    else:
        if parent <= 0.0 or worst <= 0.0 or worst >= parent:
            return -math.inf
        share = worst / parent
        if share < 1e-35:  # a share of so few bits says little about the raw score
            return -math.inf
        share = share if code == SIGMOID else -math.log(share)
    if code in (SIGMOID, LOG_SIGMOID):
        raw = math.log(share / (1.0 - share)) if share < 1.0 else -math.inf
    else:
        raw = 1.0 - share ** (1.0 / (code % 10))
    return raw - 1e-4 * (1.0 + abs(raw))


@njit(cache=True, nogil=True)
def additive(code):
    """Whether scores add along the path, as logarithms do."""
    return code == LOG_SIGMOID or code >= LOG_HINGE


@njit(cache=True, nogil=True)
def chain(code, own, parent):
    """The score of a node on its path from the root."""
    if code == NOOP:
        return own
    if additive(code):
        return own + parent
    return own * parent


@njit(cache=True, nogil=True)
def neutral(code):
    """What the root's score must be for :func:`chain` to leave its children's alone."""
    return 0.0 if additive(code) else 1.0
