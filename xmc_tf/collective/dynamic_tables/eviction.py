from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from xmc_tf.collective.dynamic_tables.index import NO_ROW, IdIndex, IndexedIds
from xmc_tf.collective.engines import operations
from xmc_tf.common.errors import InputError

# Ids are evicted in the order of a key of 63 bits: the count, the last step, and the first bits of the hash.
_COUNT_BITS, _STEP_BITS, _HASH_BITS = 17, 30, 16
# The limit is found digit by digit: the ranks add up how many keys have each digit.
_DIGIT_BITS, _DIGITS = 16, 4


@dataclass(frozen=True)
class OlderThan:
    """Evict ids that were not seen in the last ``steps`` steps.

    Example:
        >>> table = strategy.growing_table("items", 64, evict=OlderThan(steps=10_000))

    Args:
        steps: the number of steps after which an unseen id is evicted. Larger values keep more ids.
        every: the number of steps between two checks. Until the next check, older ids may remain.
    """

    steps: int
    every: int = 100

    def __post_init__(self) -> None:
        _check("OlderThan", steps=self.steps, every=self.every)


@dataclass(frozen=True)
class LeastFrequent:
    """Evict the ids that were seen in the fewest steps until at most ``max_rows`` rows remain.

    Among ids that were seen equally often, those not seen for the longest time are evicted first. At most ``max_rows``
    ids that are not admitted yet, and therefore have no row, are kept as well.

    Example:
        >>> table = strategy.growing_table("items", 64, evict=LeastFrequent(max_rows=1_000_000))

    Args:
        max_rows: the maximum number of rows over all ranks.
        every: the number of steps between two checks. Until the next check, there may be more rows.
    """

    max_rows: int
    every: int = 100

    def __post_init__(self) -> None:
        _check("LeastFrequent", max_rows=self.max_rows, every=self.every)


Rule: TypeAlias = OlderThan | LeastFrequent


def rules_of(evict: "Rule | Sequence[Rule] | None") -> tuple[Rule, ...]:
    rules = () if evict is None else (evict,) if isinstance(evict, OlderThan | LeastFrequent) else tuple(evict)
    for rule in rules:
        if not isinstance(rule, OlderThan | LeastFrequent):
            raise InputError(
                "evict is not a rule or a list of rules",
                expected="OlderThan(steps=…), LeastFrequent(max_rows=…), or a list of them",
                received=repr(rule),
            )
    return rules


def keys_of(entries: IndexedIds) -> np.ndarray:
    """Return a sort key for each id. Ids with lower keys are evicted first."""
    counts = np.minimum(entries.counts, 2**_COUNT_BITS - 1)
    steps = np.clip(entries.last, 0, 2**_STEP_BITS - 1)
    return (counts << (_STEP_BITS + _HASH_BITS)) | (steps << _HASH_BITS) | (entries.hashes >> (63 - _HASH_BITS))


def kind_of(entries: IndexedIds, admitted: bool) -> np.ndarray:
    """Return a mask of the ids that are admitted, or of those that are not, depending on ``admitted``."""
    return (entries.rows != NO_ROW) == admitted


def limit_of(index: IdIndex, admitted: bool, most: int, size: int, name: str) -> tf.Tensor:
    """Return the highest key to evict (-1: none) to keep at most ``most`` ids of a kind. All ranks must call it."""

    def keys() -> np.ndarray:
        entries = index.entries
        return keys_of(entries)[kind_of(entries, admitted)]

    def counted_here(prefix: np.ndarray, digit: np.ndarray) -> np.ndarray:
        upper = keys() >> (_DIGIT_BITS * (_DIGITS - 1 - int(digit)))
        lowest = upper[upper >> _DIGIT_BITS == prefix] & (2**_DIGIT_BITS - 1)
        return np.bincount(lowest, minlength=2**_DIGIT_BITS)

    def summed(here: tf.Tensor, shape: list[int], what: str) -> tf.Tensor:
        here = tf.ensure_shape(here, shape)
        return here if size == 1 else operations.allreduce_sum(here, f"{name}/{what}")

    def choose_digit(digit: tf.Tensor, prefix: tf.Tensor, left: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        here = tf.numpy_function(counted_here, [prefix, digit], tf.int64)
        sums = tf.cumsum(summed(here, [2**_DIGIT_BITS], "digits"))
        chosen = tf.searchsorted(sums, left[None], out_type=tf.int64)[0]  # the first up to which there are enough keys
        left -= tf.where(chosen > 0, tf.gather(sums, tf.maximum(chosen - 1, 0)), 0)
        return digit + 1, prefix * 2**_DIGIT_BITS + chosen, left

    def select() -> tf.Tensor:
        start = [tf.constant(0, tf.int64), tf.constant(0, tf.int64), total - most]
        return tf.while_loop(lambda digit, *_: digit < _DIGITS, choose_digit, start)[1]

    total = summed(tf.numpy_function(lambda: np.asarray([len(keys())], np.int64), [], tf.int64), [1], "number")[0]
    return tf.cond(total > most, select, lambda: tf.constant(-1, tf.int64))


def _check(rule: str, **numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise InputError(f"{rule}({name}=…) is too small", expected="1 or more", received=str(number))
