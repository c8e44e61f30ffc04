"""A Keras layer that looks up many features in many tables. Tables of the same width share one exchange."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from xmc_tf.collective.embedding_collection.planner import EmbeddingTable, Plan, partition_of
from xmc_tf.collective.tables.bags import Bags, DenseOrRagged, bags, combine, flat_ids
from xmc_tf.collective.tables.initial_values import first_values
from xmc_tf.collective.tables.lookup import check_ids_of_all_ranks, fetch, lookup, request_rows
from xmc_tf.collective.tables.row_exchange import WireFormat
from xmc_tf.collective.tables.table import ShardedTable, SomeRows, make_table, serving_or_sharded
from xmc_tf.collective.tables.table_variable import TableVariable
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.partition import Partition


class TableRows(NamedTuple):
    """A table and its partition over the ranks. The partition has one part if all ranks hold all rows."""

    table: EmbeddingTable
    partition: Partition


class StackedTable(ShardedTable):
    """A table within a stack, as checkpoints and exports see it. Its rows and slots are ranges of the stack's."""

    stack: ShardedTable

    def __init__(self, stack: ShardedTable, one: TableRows, rank: int, offset: int) -> None:
        start, stop = one.partition.range(rank)
        rows = SomeRows(stack.variable, range(offset, offset + stop - start))
        attributes = {"name": one.table.name, "rows": one.table.rows, "dim": one.table.dim, "partition": one.partition}
        attributes |= {"rank": rank, "variable": rows, "members": [], "stack": stack}
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    @property
    def slots(self) -> dict[str, SomeRows]:
        return {name: self._range_of(slot) for name, slot in self.stack.slots.items()}

    def slot(self, name: str, value: float = 0.0) -> SomeRows:
        """Return this table's part of the slot with this name. The first call creates the slot for the whole stack."""
        return self._range_of(self.stack.slot(name, value))

    def _range_of(self, slot: tf.Variable) -> SomeRows:
        return SomeRows(slot, self.variable.order)


class Stack:
    """Tables of the same width, joined into one sharded table so that one lookup serves them all. Either all of them
    are replicated or none. Each rank holds its rows of the first table, followed by its rows of the next. ``rank`` is 0
    if all ranks hold all rows.
    """

    def __init__(self, name: str, parts: Sequence[TableRows], rank: int, seed: int, each_id: bool = False) -> None:
        self.parts = parts
        begins, rows = _begins(parts), sum(one.table.rows for one in parts)
        partition = Partition(np.concatenate([begins[:, 0], [rows]]))
        options: dict[str, Any] = {"initializer": _initial_values(parts, seed), "each_id": each_id}
        self.table = make_table(name, rows, parts[0].table.dim, partition=partition, rank=rank, **options)
        offsets = (begins[rank] - begins[rank, 0]).tolist()
        self.table.members.extend(
            StackedTable(self.table, one, rank, offset) for one, offset in zip(parts, offsets, strict=True)
        )

    def rows_of(self, numbers: Sequence[int], ids: Sequence[tf.Tensor]) -> tf.Tensor:
        """Convert ids of the tables ``numbers`` to rows of the stack. An invalid id of table n becomes ``-1 - n``."""
        flat = tf.concat([tf.cast(one, tf.int64) for one in ids], axis=0)
        if len(self.parts) == 1:
            return tf.where((flat >= 0) & (flat < self.table.rows), flat, -1)
        number = tf.repeat(tf.constant(numbers, tf.int64), tf.stack([tf.size(one) for one in ids]))
        rows = np.array([one.table.rows for one in self.parts], np.int64)
        # Numbers of the rows of all tables, table by table: each rank has a range of them for each table.
        bases = np.concatenate([[0], np.cumsum(rows)])[:-1]
        starts = np.concatenate([base + one.partition.bounds[:-1] for base, one in zip(bases, self.parts, strict=True)])
        shift = (_begins(self.parts).T - starts.reshape(len(rows), -1)).reshape(-1)
        valid = (flat >= 0) & (flat < tf.gather(tf.constant(rows), number))
        global_row = tf.where(valid, flat + tf.gather(tf.constant(bases), number), 0)
        at = tf.searchsorted(tf.constant(starts), global_row, side="right") - 1
        return tf.where(valid, global_row + tf.gather(tf.constant(shift), at), -1 - number)


def _begins(parts: Sequence[TableRows]) -> np.ndarray:
    """Return a matrix of ranks × tables: the first row in the stack of each rank's part of each table."""
    counts = np.stack([np.diff(one.partition.bounds) for one in parts], axis=1)
    return (np.cumsum(counts) - counts.reshape(-1)).reshape(counts.shape)


def _initial_values(parts: Sequence[TableRows], seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that maps consecutive row numbers of the stack to initial values."""
    begins = _begins(parts).reshape(-1)
    of_table = [
        first_values(one.table.initializer, one.table.name, one.table.rows, one.table.dim, seed) for one in parts
    ]
    starts = np.stack([one.partition.bounds[:-1] for one in parts], axis=1).reshape(-1)

    def values(rows: np.ndarray) -> np.ndarray:
        out = np.zeros([len(rows), parts[0].table.dim], np.float32)
        at, stop = int(rows[0]), int(rows[-1]) + 1
        while at < stop:
            block = int(np.searchsorted(begins, at, side="right")) - 1
            end = min(stop, int(begins[block + 1])) if block + 1 < len(begins) else stop
            low = int(starts[block]) + at - int(begins[block])
            if (draw := of_table[block % len(parts)]) is not None:
                out[at - rows[0] : end - rows[0]] = np.asarray(draw(low, low + end - at))
            at = end
        return out

    return values


Features = Mapping[str, DenseOrRagged | tf.SparseTensor]


class _Slot(NamedTuple):
    feature: str
    table: EmbeddingTable
    stack: int
    number: int  # of the table in the stack


class EmbeddingCollection(keras.layers.Layer):
    """A layer that looks up features in several tables. With ``joint``, tables of the same width share exchanges."""

    def __init__(
        self,
        plan: Plan,
        rank: int,
        *,
        seed: int = 0,
        wire: WireFormat = "fp32",
        joint: bool = True,
        name: str,
        each_id: bool = False,
    ) -> None:
        super().__init__(name=name, autocast=False)
        self.supports_jit = False
        self.plan, self.wire = plan, wire
        features = [feature for one in plan.decisions for feature in one.table.features]
        for what, names in (("table", [one.table.name for one in plan.decisions]), ("feature", features)):
            if twice := sorted({one for one in names if names.count(one) > 1}):
                raise InputError(f"the {what} {twice[0]!r} occurs twice", expected=f"each {what} once")
        groups: dict[str, list[TableRows]] = {}  # by the name of their stack
        for one in plan.decisions:
            table = TableRows(one.table, partition_of(one.table, one.placement, plan.size))
            key = f"width_{one.table.dim}" if joint else one.table.name
            if table.partition.size < plan.size:
                key += "/replicated"
            groups.setdefault(key, []).append(table)
        self.stacks: list[Stack] = [
            Stack(f"{name}/{key}", parts, 0 if parts[0].partition.size == 1 else rank, seed, each_id)
            for key, parts in groups.items()
        ]
        self._slots = [
            _Slot(feature, one.table, number, position)
            for number, stack in enumerate(self.stacks)
            for position, one in enumerate(stack.parts)
            for feature in one.table.features
        ]
        self._features = features
        self.embeddings = [TableVariable(stack.table) for stack in self.stacks]  # tracked by Keras
        self.built = True

    @property
    def tables(self) -> list[ShardedTable]:
        """The individual tables, as checkpoints and exports see them."""
        return [member for stack in self.stacks for member in stack.table.members]

    @tf.autograph.experimental.do_not_convert
    def call(self, inputs: Features, weights: Features | None = None) -> dict[str, DenseOrRagged]:
        """Return each feature's embeddings, combined per bag if its table has a combiner. All ranks must call it."""
        features = self._bags(inputs, weights or {})
        found: dict[str, DenseOrRagged] = {}
        if any(serving_or_sharded(table) is not table for table in self.tables):
            for slot in self._slots:
                member, one = self.stacks[slot.stack].table.members[slot.number], features[slot.feature]
                found[slot.feature] = lookup(member, one.ids, one.combiner, weights=one.weights)
            return {name: tf.cast(found[name], self.compute_dtype) for name in self._features}
        slots = [[slot for slot in self._slots if slot.stack == number] for number in range(len(self.stacks))]
        ids = [
            stack.rows_of([slot.number for slot in own], [flat_ids(features[slot.feature].ids) for slot in own])
            for stack, own in zip(self.stacks, slots, strict=True)
        ]
        tables, checks = [stack.table for stack in self.stacks], []
        replicated = [number for number, table in enumerate(tables) if table.size < self.plan.size]
        if replicated:  # their ids are checked so that all ranks raise an error and none waits
            own_tables, own_ids = [tables[number] for number in replicated], [ids[number] for number in replicated]
            checks = [check_ids_of_all_ranks(own_tables, own_ids, self.plan.size, f"{self.name}/replicated_ids")]
        with tf.control_dependencies(checks):
            requests = [request_rows(table, of_table) for table, of_table in zip(tables, ids, strict=True)]
        rows = [fetch(table, request, self.wire) for table, request in zip(tables, requests, strict=True)]
        for number, own in enumerate(slots):
            wanted = [features[slot.feature] for slot in own]
            combined = combine(rows[number], requests[number].positions, wanted, tables[number].dim)
            found |= {slot.feature: part for slot, part in zip(own, combined, strict=True)}
        return {name: tf.cast(found[name], self.compute_dtype) for name in self._features}

    def compute_output_spec(self, inputs: Mapping[str, Any], weights: Any = None) -> dict[str, keras.KerasTensor]:
        found = {}
        for table in (one.table for one in self.plan.decisions):
            for feature in table.features:
                ids = inputs[feature]
                whole = table.combiner is None or len(ids.shape) == 1
                ragged = bool(getattr(ids, "ragged", False)) and table.combiner is None
                shape = (*(ids.shape if whole else ids.shape[:-1]), table.dim)
                found[feature] = keras.KerasTensor(shape, dtype=self.compute_dtype, ragged=ragged)
        return {feature: found[feature] for feature in self._features}

    def save_own_variables(self, store: Any) -> None:
        """Raise InputError, because the placement of the tables depends on the number of ranks."""
        raise InputError(
            f"{self.name!r} has several tables, which Keras cannot save",
            fix="save_training(folder, model, strategy.communicator), or strategy.export_saved_model(folder, model)",
        )

    def get_config(self) -> dict[str, Any]:
        """Raise NotImplementedError, because a collection belongs to its strategy."""
        raise NotImplementedError("an EmbeddingCollection is saved by save_training and exported by export_saved_model")

    def _bags(self, inputs: Features, weights: Features) -> dict[str, Bags]:
        if missing := [name for name in self._features if name not in inputs]:
            raise InputError(
                f"{self.name}: no ids for feature {missing[0]!r}",
                expected=f"ids for {', '.join(self._features)}",
                received=", ".join(inputs) or "none",
            )
        combiners = {slot.feature: slot.table.combiner for slot in self._slots}
        if unknown := sorted(set(weights) - set(combiners)):
            raise InputError(f"{self.name}: no table has feature {unknown[0]!r}", fix="leave out its weights")
        found = {}
        for name in self._features:
            one = bags(f"ids of feature {name!r}", inputs[name], combiners[name], weights.get(name))
            # One dimension is one id for each example.
            if one.combiner is not None and not isinstance(one.ids, tf.RaggedTensor) and one.ids.shape.rank == 1:
                factors = None if one.weights is None else tf.reshape(one.weights, [-1, 1])
                one = Bags(one.ids[:, None], one.combiner, factors)
            found[name] = one
        return found
