"""Post-processors turn a node's raw score into its score and combine it with the parent's: ``noop`` ignores the
parent's score, ``sigmoid`` and ``lp-hinge`` = exp(-max(1 - x, 0)^p) multiply by it, and their ``log-`` forms add it.
"""

import math
from functools import lru_cache

import numpy as np

from xmc_tf.common.compiled import inner
from xmc_tf.common.errors import InputError
from xmc_tf.params import choices

NOOP, SIGMOID, LOG_SIGMOID, HINGE, LOG_HINGE = 0, 10, 20, 30, 40


@inner
def squash(code, raw):
    """Return the score of a node before it is combined with its parent's."""
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


@inner
def least_raw(code, worst, parent):
    """Return a raw score below which a node's combined score is below ``worst``, so that most nodes can be dropped
    early. The result is slightly too low, so that rounding never drops a node by mistake.
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
        if share < 1e-35:  # a share of so few bits is not precise enough
            return -math.inf
        share = share if code == SIGMOID else -math.log(share)
    if code in (SIGMOID, LOG_SIGMOID):
        raw = math.log(share / (1.0 - share)) if share < 1.0 else -math.inf
    else:
        raw = 1.0 - share ** (1.0 / (code % 10))
    return raw - 1e-4 * (1.0 + abs(raw))


@inner
def additive(code):
    """Return True if scores are added along the path, as logarithms are."""
    return code == LOG_SIGMOID or code >= LOG_HINGE


@inner
def chain(code, own, parent):
    """Return the score of a node combined with its parent's score."""
    if code == NOOP:
        return own
    if additive(code):
        return own + parent
    return own * parent


@inner
def neutral(code):
    """Return the root's score, which does not change its children's scores in :func:`chain`."""
    return 0.0 if additive(code) else 1.0


@lru_cache
def post_processor_code(name: str) -> int:
    """Return the number of a post-processor for the kernels. For a hinge, the last digit is its power."""
    if name not in choices.POST_PROCESSORS:
        raise InputError(f"unknown post-processor {name!r}", expected=", ".join(choices.POST_PROCESSORS), received=name)
    if name.endswith("-hinge"):
        power = int(name.removesuffix("-hinge")[-1])
        return (LOG_HINGE if name.startswith("log-") else HINGE) + power
    return {"noop": NOOP, "sigmoid": SIGMOID, "log-sigmoid": LOG_SIGMOID}[name]
