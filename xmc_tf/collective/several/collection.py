"""A Keras layer that looks up many features in many tables, with one exchange for all tables of the same width."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from xmc_tf.collective.several.embedding_table import EmbeddingTable, partition_of
from xmc_tf.collective.several.planner import Plan
from xmc_tf.collective.several.stacks import Stack, TableRows, make_stack
from xmc_tf.collective.tables.bags import Bags, Combiner, bags, combine, flat_ids
from xmc_tf.collective.tables.lookup import fetch, lookup
from xmc_tf.collective.tables.row_requests import RowRequest, check_ids_of_all_ranks, request_rows
from xmc_tf.collective.tables.serving_tables import serving_or_sharded
from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.collective.tables.table_variable import TableVariable
from xmc_tf.collective.tables.wire import WireFormat
from xmc_tf.common.errors import InputError

Features = Mapping[str, tf.Tensor | tf.RaggedTensor | tf.SparseTensor]


class _Slot(NamedTuple):
    """A feature, and the stack in which its table is."""

    feature: str
    table: EmbeddingTable
    stack: int
    number: int  # of the table in the stack


class EmbeddingCollection(keras.layers.Layer):
    """A layer of several embedding tables: it takes the ids of all features and returns their embeddings; collective.

    With ``joint``, tables of the same width share each exchange. Initial values do not depend on placements and ranks.
    """

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
                raise InputError(f"two tables have the {what} {twice[0]!r}", expected=f"each {what} once")
        groups = _groups(plan, joint)
        self.stacks: list[Stack] = [
            make_stack(f"{name}/{key}", parts, 0 if parts[0].partition.size == 1 else rank, seed, each_id)
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
        """The tables, as checkpoints and exports see them."""
        return [member for stack in self.stacks for member in stack.table.members]

    def call(self, inputs: Features, weights: Features | None = None) -> dict[str, tf.Tensor | tf.RaggedTensor]:
        """Return each feature's embeddings, combined over the last dimension of ids with two dimensions; collective."""
        return self._looked_up(inputs, weights or {})

    @tf.autograph.experimental.do_not_convert
    def _looked_up(self, inputs: Features, weights: Features) -> dict[str, tf.Tensor | tf.RaggedTensor]:
        features = self._bags(inputs, weights)
        if any(serving_or_sharded(table) is not table for table in self.tables):
            return self._served(features)
        requests = self._requests_of(features)
        rows = [fetch(stack.table, request, self.wire) for stack, request in zip(self.stacks, requests, strict=True)]
        return self._found(features, rows, requests)

    def _found(
        self, features: Mapping[str, Bags], rows: Sequence[tf.Tensor], requests: Sequence[RowRequest]
    ) -> dict[str, tf.Tensor | tf.RaggedTensor]:
        """Return the embeddings of each feature, given the different rows of each stack."""
        found: dict[str, tf.Tensor | tf.RaggedTensor] = {}
        for number, stack in enumerate(self.stacks):
            slots = self._slots_of(number)
            wanted = [features[slot.feature] for slot in slots]
            combined = combine(rows[number], requests[number].positions, wanted, stack.table.dim)
            found |= {slot.feature: self._cast(part) for slot, part in zip(slots, combined, strict=True)}
        return {name: found[name] for name in self._features}

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
        """Refuse: the placement of the tables depends on the ranks."""
        raise InputError(
            f"{self.name!r} has several tables, which Keras cannot save",
            fix="save_training(folder, model, strategy.communicator), or strategy.export_saved_model(folder, model)",
        )

    def get_config(self) -> dict[str, Any]:
        """Refuse: a collection belongs to its strategy."""
        raise NotImplementedError("an EmbeddingCollection is saved by save_training and exported by export_saved_model")

    def _slots_of(self, stack: int) -> list[_Slot]:
        return [slot for slot in self._slots if slot.stack == stack]

    def _bags(self, inputs: Features, weights: Features) -> dict[str, Bags]:
        if missing := [name for name in self._features if name not in inputs]:
            raise InputError(
                f"{self.name}: no ids for feature {missing[0]!r}",
                expected=f"ids for {', '.join(self._features)}",
                received=", ".join(inputs) or "none",
            )
        combiners = {slot.feature: slot.table.combiner for slot in self._slots}
        if unknown := sorted(set(weights) - set(combiners)):
            raise InputError(f"{self.name}: weights of an unknown feature {unknown[0]!r}")
        return {name: _bags(name, inputs[name], combiners[name], weights.get(name)) for name in self._features}

    def _requests_of(self, features: Mapping[str, Bags]) -> list[RowRequest]:
        ids = []
        for number, stack in enumerate(self.stacks):
            slots = self._slots_of(number)
            flat = [flat_ids(features[slot.feature].ids) for slot in slots]
            ids.append(stack.rows_of([slot.number for slot in slots], flat))
        with tf.control_dependencies(self._checks_of_replicated(ids)):
            return [request_rows(stack.table, of_stack) for stack, of_stack in zip(self.stacks, ids, strict=True)]

    def _checks_of_replicated(self, ids: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Check the ids for replicated tables, so that all ranks raise an error and none waits."""
        replicated = [number for number, stack in enumerate(self.stacks) if stack.table.size < self.plan.size]
        if not replicated:
            return []
        tables = [self.stacks[number].table for number in replicated]
        return [
            check_ids_of_all_ranks(tables, [ids[n] for n in replicated], self.plan.size, f"{self.name}/replicated_ids")
        ]

    def _served(self, features: Mapping[str, Bags]) -> dict[str, tf.Tensor | tf.RaggedTensor]:
        """Return the embeddings from the whole tables of a server."""
        found = {}
        for slot in self._slots:
            member, one = self.stacks[slot.stack].table.members[slot.number], features[slot.feature]
            found[slot.feature] = self._cast(lookup(member, one.ids, one.combiner, weights=one.weights))
        return {name: found[name] for name in self._features}

    def _cast(self, rows: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
        return rows if rows.dtype == self.compute_dtype else tf.cast(rows, self.compute_dtype)


def _bags(name: str, ids: Any, combiner: Combiner, weights: Any) -> Bags:
    """Return the ids of a feature; one dimension is one id for each example."""
    found = bags(f"ids of feature {name!r}", ids, combiner, weights)
    if combiner is None or isinstance(found.ids, tf.RaggedTensor) or found.ids.shape.rank != 1:
        return found
    return Bags(found.ids[:, None], combiner, None if weights is None else tf.reshape(weights, [-1, 1]))


def _groups(plan: Plan, joint: bool) -> dict[str, list[TableRows]]:
    """Return the tables of each stack, by the stack's name."""
    groups: dict[str, list[TableRows]] = {}
    for one in plan.decisions:
        table = TableRows(one.table, partition_of(one.table, one.placement, plan.size))
        key = f"width_{one.table.dim}" if joint else one.table.name
        if table.partition.size < plan.size:
            key += "/replicated"
        groups.setdefault(key, []).append(table)
    return groups
