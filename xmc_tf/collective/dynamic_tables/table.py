"""A table indexed by hashes of ids, in which only known ids take memory. Each rank owns a range of hashes and keeps
their rows in one variable with spare room. Row 0 stays zero and stands for ids without a row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from scipy.special import ndtr, ndtri

from xmc_tf.collective.dynamic_tables import kernels
from xmc_tf.collective.dynamic_tables.eviction import (
    LeastFrequent,
    OlderThan,
    Rule,
    keys_of,
    kind_of,
    limit_of,
    rules_of,
)
from xmc_tf.collective.dynamic_tables.index import HASHES, NO_ROW, IdIndex, IndexedIds
from xmc_tf.collective.tables.initial_values import table_seed
from xmc_tf.collective.tables.table import ShardedTable, mark_rows, not_replicated
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.partition import even_rows

# Hashes of ids -> their rows.
InitialRows = Callable[[np.ndarray], np.ndarray]


def initial_rows(initializer: str | keras.initializers.Initializer, name: str, dim: int, seed: int) -> InitialRows:
    """Return a function from hashes to initial rows, which depend only on the hash, the table's name, and the seed."""
    made = keras.initializers.get(initializer)
    transform = _transform(made, name)
    own = np.uint64(table_seed(name, seed, made))

    def rows(hashes: np.ndarray) -> np.ndarray:
        drawn = np.empty((len(hashes), dim), np.float64)
        kernels.draw(hashes, own, drawn)
        return transform(drawn).astype(np.float32)

    return rows


def _transform(initializer: keras.initializers.Initializer, name: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that converts uniform numbers between 0 and 1 to the initializer's distribution."""
    config = initializer.get_config()
    if isinstance(initializer, keras.initializers.Zeros):
        return np.zeros_like
    if isinstance(initializer, keras.initializers.Ones):
        return np.ones_like
    if isinstance(initializer, keras.initializers.Constant):
        return lambda drawn: np.full_like(drawn, initializer.value)
    if isinstance(initializer, keras.initializers.RandomUniform):
        return lambda drawn: config["minval"] + drawn * (config["maxval"] - config["minval"])
    if isinstance(initializer, keras.initializers.RandomNormal):
        return lambda drawn: config["mean"] + config["stddev"] * ndtri(drawn)
    if isinstance(initializer, keras.initializers.TruncatedNormal):  # at two standard deviations
        low, high = ndtr(-2.0), ndtr(2.0)
        return lambda drawn: config["mean"] + config["stddev"] * ndtri(low + drawn * (high - low))
    raise InputError(
        f"growing table {name!r} does not support this initializer, because the number of rows is not known",
        expected="RandomUniform, RandomNormal, TruncatedNormal, Zeros, Ones or Constant of keras",
        received=type(initializer).__name__,
    )


# The number of rows for which there is room at first, and the factor by which it grows.
_FIRST_ROOM, _GROWTH = 1024, 1.5


@dataclass(frozen=True, eq=False)
class GrowingTable(ShardedTable):
    index: IdIndex = field(kw_only=True)
    initial: InitialRows = field(kw_only=True)
    rules: tuple[Rule, ...] = field(kw_only=True)
    step: tf.Variable = field(kw_only=True)  # the number of steps made
    slot_values: dict[str, float] = field(default_factory=dict, kw_only=True)  # initial ones
    lock: Lock = field(default_factory=Lock, kw_only=True)  # held while ids are looked up or evicted

    @property
    def local_rows(self) -> int:
        return self.index.rows

    @property
    def has_row_numbers(self) -> bool:
        """Always False: ids are strings or arbitrary numbers, and their rows can be evicted."""
        return False

    @property
    def room(self) -> int:
        return int(tf.raw_ops.VariableShape(input=self.variable.handle)[0])  # without a copy, unlike tf.shape

    def slot(self, name: str, value: float = 0.0) -> tf.Variable:
        """Return the slot with this name. The first call creates it, filled with ``value``."""
        if name not in self.slots:
            self.slot_values[name] = value
            with tf.init_scope():
                self.slots[name] = _variable(f"{self.name}/{name}", self.room, self.dim, value, trainable=False)
        return self.slots[name]

    def gather(self, local: tf.Tensor) -> tf.Tensor:
        """Return the local rows. Ids without a row give zeros and receive no gradient."""
        rows = super().gather(local)
        if self.index.admit_after == 1:  # then each id that is trained has a row
            return rows
        return tf.where((local != NO_ROW)[:, None], rows, tf.zeros_like(rows))

    def rows_of(self, hashes: tf.Tensor, training: bool) -> tf.Tensor:
        """Return the local row numbers of this rank's hashes (1-D). In training, add ids and give admitted ids rows."""

        def see(given: np.ndarray, step: np.ndarray) -> np.ndarray:
            with self.lock:
                if not training:
                    return self.index.find(given)
                found = self.index.see(given, int(step))
                if len(found.new_rows):
                    self._reserve(self.index.next_row)
                    values = tf.constant(self.initial(found.new_hashes))
                    self.variable.scatter_update(tf.IndexedSlices(values, tf.constant(found.new_rows)))
                return found.rows

        # Reading the step also makes a lookup wait for the end of the step before it.
        rows = tf.numpy_function(see, [hashes, self.step], tf.int64)
        return tf.ensure_shape(rows, hashes.shape)

    def finish_step(self, step: tf.Tensor) -> None:
        """Record the number of a finished step, and evict ids if the check of a rule is due. All ranks must call it."""
        step = tf.cast(step, tf.int64)
        updated = [tf.gather(variable, [NO_ROW]) for variable in (self.variable, *self.slots.values())]
        done: list[tf.Tensor] = []
        with tf.control_dependencies(updated):
            for rule in self.rules:
                with tf.control_dependencies(done):
                    due, nothing = tf.equal(step % rule.every, 0), partial(tf.constant, 0, tf.int64)
                    done.append(tf.cond(due, partial(self._apply, rule, step), nothing))
        with tf.control_dependencies([*updated, *done]):
            self.step.assign(step)
            if self.index.admit_after == 1:
                # A loop that trains on a lookup with training=False has changed row 0.
                self.variable.scatter_update(tf.IndexedSlices(tf.zeros([1, self.dim]), [NO_ROW]))
                self._reset_slots(np.array([NO_ROW]))

    def restore(self, entries: IndexedIds, step: int) -> None:
        """Replace all ids by ``entries``, whose rows are numbered from 1. The caller must then write the rows."""
        with self.lock:
            self.index.replace(entries)
            self._reserve(self.index.next_row)
            for name, variable in self.slots.items():
                variable.assign(tf.fill([self.room, self.dim], tf.constant(self.slot_values[name], tf.float32)))
        self.step.assign(step)

    def _apply(self, rule: Rule, step: tf.Tensor) -> tf.Tensor:
        """Evict ids by a rule, and return how many this rank evicted."""
        limits = [tf.constant(-1, tf.int64)] * 2
        if isinstance(rule, LeastFrequent):
            for admitted in (True, False) if self.index.admit_after > 1 else (True,):
                limits[admitted] = limit_of(self.index, admitted, rule.max_rows, self.size, self.name)

        def evict(step: np.ndarray, candidates: np.ndarray, rows: np.ndarray) -> np.ndarray:
            with self.lock:
                entries = self.index.entries
                if isinstance(rule, OlderThan):
                    gone = entries.last < int(step) - rule.steps
                else:
                    gone = keys_of(entries) <= np.where(kind_of(entries, True), rows, candidates)
                if gone.any():
                    self._reset_slots(self.index.keep(~gone))
                return np.asarray(gone.sum(), np.int64)

        return tf.ensure_shape(tf.numpy_function(evict, [step, *limits], tf.int64), [])

    def _reserve(self, rows: int) -> None:
        """Make room for this many local rows. Room grows by a constant factor, so that rows are rarely copied."""
        room = self.room
        if rows <= room:
            return
        larger = max(rows, int(_GROWTH * room))
        for variable in (self.variable, *self.slots.values()):
            # In one copy. Row 0 has the values that a new row has: zeros, and the initial values of slots.
            numbers = np.concatenate([np.arange(room, dtype=np.int32), np.full(larger - room, NO_ROW, np.int32)])
            variable.assign(tf.gather(variable, numbers))

    def _reset_slots(self, rows: np.ndarray) -> None:
        for name, variable in self.slots.items():
            fresh = tf.fill([len(rows), self.dim], tf.constant(self.slot_values[name], tf.float32))
            variable.scatter_update(tf.IndexedSlices(fresh, tf.constant(rows)))


def make_growing_table(
    name: str,
    dim: int,
    *,
    size: int = 1,
    rank: int = 0,
    initializer: str | keras.initializers.Initializer = "uniform",
    admit_after: int = 1,
    evict: Rule | Sequence[Rule] | None = None,
    seed: int = 0,
    trainable: bool = True,
) -> GrowingTable:
    """Create this rank's part of a growing table. ``strategy.growing_table`` describes the arguments."""
    for what, number in (("columns (dim)", dim), ("steps in which an id must be seen (admit_after)", admit_after)):
        if number < 1:
            raise InputError(f"growing table {name!r}: too few {what}", expected="1 or more", received=str(number))
    initial, rules = initial_rows(initializer, name, dim, seed), rules_of(evict)
    with tf.init_scope(), not_replicated():
        variable = _variable(name, _FIRST_ROOM, dim, 0.0, trainable)
        step = tf.Variable(0, dtype=tf.int64, trainable=False, name=f"{name}/step")
    options: dict[str, Any] = {"index": IdIndex(admit_after), "initial": initial, "rules": rules, "step": step}
    table = GrowingTable(name, HASHES, dim, even_rows(HASHES, size), rank, variable, **options)
    mark_rows(variable, table)
    return table


def _variable(name: str, rows: int, dim: int, value: float, trainable: bool) -> tf.Variable:
    """Return a variable whose number of rows can change."""
    with not_replicated():
        filled = tf.fill([rows, dim], tf.constant(value, tf.float32))
        return tf.Variable(filled, shape=[None, dim], trainable=trainable, name=name)
