"""A Keras variable that represents a whole table, and raises an error where this is not possible."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf

from xmc_tf.collective.blocks import set_in_block
from xmc_tf.collective.checkpoints.shard_files import blocks, rows_per_block
from xmc_tf.collective.tables.table import ShardedTable, SomeRows, get_rows, not_replicated, row_type, set_rows
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.communicator import Communicator

# The bytes of rows that are sent at once.
BLOCK_BYTES = 64 << 20

_SAVING: ContextVar[tuple[Communicator, list[ShardedTable]] | None] = ContextVar("saving", default=None)


def rows_on_rank_0(
    table: ShardedTable, variable: tf.Variable | SomeRows, communicator: Communicator
) -> Iterator[tuple[int, np.ndarray | None]]:
    """Yield each block's first row number and, on rank 0, its rows (of a table or slot). All ranks must call it."""
    for rank in range(table.size):
        rows = rows_per_block((table.dim,), row_type(variable), BLOCK_BYTES)
        for low, high in blocks(*table.partition.range(rank), rows):
            block = None
            if communicator.rank == rank:
                block = get_rows(variable, low - table.start, high - table.start).numpy()
            gathered = communicator.gather(block) if rank else [block]
            yield low, gathered[rank] if gathered else None


def whole_rows(table: ShardedTable, slot: str | None = None) -> np.ndarray:
    """Return all rows of a table or a slot. All ranks must call it; in ``save_on_rank_0``, only rank 0 calls it."""
    own = table.variable if slot is None else table.slot(slot)
    if table.size == 1:
        return own.numpy()
    saving = _SAVING.get()
    if saving is None:
        return choose_communicator().allgather_array(get_rows(own, 0, table.local_rows).numpy())
    communicator, tables = saving
    communicator.broadcast((next(number for number, one in enumerate(tables) if one is table), slot or ""))
    whole = np.empty((table.rows, table.dim), np.float32)
    for low, rows in rows_on_rank_0(table, own, communicator):
        assert rows is not None
        whole[low : low + len(rows)] = rows
    return whole


def save_on_rank_0(communicator: Communicator, tables: list[ShardedTable], save: Callable[[], Any]) -> Any:
    """Call ``save`` on rank 0, where it can read all rows of ``tables``. If it fails, the other ranks raise OSError.
    All ranks must call it.
    """
    if communicator.rank == 0:
        token = _SAVING.set((communicator, tables))
        trouble = "an error"
        try:
            # Keras makes variables when it saves: an optimizer whose attributes it looks up. Callbacks that see this
            # rank's rows only, such as TensorBoard, save all.
            with not_replicated(), set_in_block(_OWN_ROWS, False):
                result, trouble = save(), ""
        except Exception as error:
            trouble = f"{type(error).__name__}: {error}"
            raise
        finally:
            _SAVING.reset(token)
            communicator.broadcast(trouble)
        return result
    nothing: Any = None
    while not isinstance(request := communicator.broadcast(nothing), str):
        table, slot = tables[request[0]], request[1]
        for _ in rows_on_rank_0(table, table.slot(slot) if slot else table.variable, communicator):
            continue
    if request:
        raise OSError(f"rank 0 could not save the model: {request}")
    return None


_OWN_ROWS: ContextVar[bool] = ContextVar("own_rows", default=False)


_OF_SAMPLES = (
    "all rows for sampled_softmax_loss or nce_loss",
    "look up the rows of the labels and of the sampled classes, layer(ids), and compute the loss from them; or compute "
    "the loss of all classes from TiedHead(layer)(x)",
)
_OF_STEP = (
    "an addition to its embeddings, as in sharpness-aware minimization (SAM)",
    "leave the variables of embeddings out, which have the attribute sharded_table; compute what is added to the "
    "others from the gradients of all ranks, tf.reduce_mean(strategy.gather(gradient[None])[0], 0)",
)
# What needs all rows, by the names of functions or classes on the way: received, and what to do instead.
_USES = {
    "BruteForceRetrieval": (
        "a copy for BruteForceRetrieval",
        "use the layer TopK(layer, k), which searches the rows of all ranks; or pass a copy, layer.get_weights()[0], "
        "which all ranks must call",
    ),
    "sampled_softmax_loss": _OF_SAMPLES,
    "nce_loss": _OF_SAMPLES,
    "Variable.__add__": _OF_STEP,
    "Variable.__sub__": _OF_STEP,
    "": (
        "its embeddings as a tensor",
        "for the scores of all rows (a tied head), TiedHead(layer)(x); for the best rows, strategy.top_k(layer, "
        "queries, k) or the layer TopK(layer, k); for a copy, layer.get_weights() on all ranks; or create the layer "
        "outside embedding_scope()",
    ),
}


class _AllRows:
    """A placeholder for all rows of a sharded table. It raises InputError when it is used as a tensor."""

    def __init__(self, table: ShardedTable) -> None:
        self._table = table
        # Gradient tapes and optimizers identify the variable by these.
        self.handle, self._unique_id = table.variable.handle, table.variable._unique_id

    def refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        frame: Any = inspect.currentframe()
        callers = ""
        while frame is not None:
            frame, callers = frame.f_back, f"{callers} {frame.f_code.co_qualname}"
        received, fix = next(use for name, use in _USES.items() if name in callers)
        raise InputError(
            f"table {self._table.name!r} is sharded over {self._table.size} ranks, and this use needs all of its rows",
            expected="a lookup (call the layer with ids), or an operation over the ranks",
            received=received,
            fix=fix,
        )

    __tf_tensor__ = __array__ = __getitem__ = refuse


class TableVariable(keras.Variable):
    def __init__(self, table: ShardedTable) -> None:
        self.sharded_table = table
        rows, dim = self._own_shape()  # of a growing table, the room when the layer is built: Keras needs a number
        shape, dtype = (table.rows if table.has_row_numbers else rows, dim), table.variable.dtype.name
        name, trainable = table.name.replace("/", "_"), table.variable.trainable
        super().__init__("zeros", shape, dtype, trainable=trainable, autocast=False, name=name)

    def _own_shape(self) -> list[int]:
        with tf.init_scope():
            return [int(size) for size in tf.raw_ops.VariableShape(input=self.sharded_table.variable.handle)]

    @property
    def shape(self) -> tf.TensorShape:
        return tf.TensorShape(self._own_shape()) if _OWN_ROWS.get() else super().shape

    def _initialize_with_initializer(self, initializer: Any) -> None:
        self._value = self.sharded_table.variable

    @property
    def value(self) -> "tf.Variable | _AllRows":
        """The variable with all rows or, if the table is sharded, a placeholder."""
        return super().value if self.sharded_table.size == 1 or _OWN_ROWS.get() else _AllRows(self.sharded_table)

    def numpy(self) -> np.ndarray:
        """Return a copy of the whole table. All ranks must call it; in ``save_on_rank_0``, only rank 0 calls it."""
        table = self.sharded_table
        if table.size == 1 or _OWN_ROWS.get():
            return table.variable.numpy()
        if not table.has_row_numbers:
            _AllRows(table).refuse()
        return whole_rows(table)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)

    def assign(self, value: Any) -> Any:
        """Set this rank's rows from the whole table. All ranks must pass the same table."""
        table = self.sharded_table
        if table.size == 1 or _OWN_ROWS.get():
            return super().assign(value)
        if not table.has_row_numbers:
            _AllRows(table).refuse()
        load_rows(table, value)
        return value

    def __repr__(self) -> str:
        table = self.sharded_table
        where = f"rows {table.start} to {table.start + table.local_rows - 1} on this rank"
        return f"<Variable path={self.path}, shape={tuple(self.shape)}, dtype={self.dtype}, {where}>"

    def _serialize_to_tensors(self) -> Any:
        self._refuse_partial_file("tf.train.Checkpoint")
        return super()._serialize_to_tensors()

    def _restore_from_tensors(self, restored_tensors: Any) -> Any:
        self._refuse_partial_file("tf.train.Checkpoint")
        return super()._restore_from_tensors(restored_tensors)

    def _export_to_saved_model_graph(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse_partial_file("tf.saved_model.save")
        return super()._export_to_saved_model_graph(*args, **kwargs)

    def _refuse_partial_file(self, what: str) -> None:
        if self.sharded_table.size > 1:
            raise InputError(
                f"table {self.sharded_table.name!r} is sharded, and {what} handles only this rank's rows",
                expected="a file with the rows of all ranks",
                received=what,
                fix="strategy.export_saved_model(folder, model) to serve it; save_training(folder, model, "
                "strategy.communicator) or model.save('model.keras') to continue training",
            )

    @property
    def overwrite_with_gradient(self) -> bool:
        """Whether an optimizer replaces the value by the gradient: always False; see ``table.mark_rows``."""
        return bool(self.sharded_table.variable.overwrite_with_gradient)


@contextmanager
def own_rows() -> Iterator[None]:
    """In the block, make table variables stand for this rank's rows only, for optimizers and for restoring weights."""
    with set_in_block(_OWN_ROWS, True):
        yield


def load_rows(table: ShardedTable, whole: Any, slot: str | None = None) -> None:
    """Set this rank's rows of a table or a slot from all rows: an array, a tensor, or an array in a file."""
    if tuple(whole.shape) != (table.rows, table.dim):
        raise InputError(
            f"table {table.name!r}: the rows have the wrong shape",
            expected=f"shape ({table.rows}, {table.dim})",
            received=f"shape {tuple(whole.shape)}",
        )
    target = table.variable if slot is None else table.slot(slot)
    own = np.asarray(whole[table.start : table.start + table.local_rows], np.float32)
    set_rows(target, 0, own)


def plain_variable(variable: tf.Variable | keras.Variable) -> tf.Variable:
    """Return the TensorFlow variable of a Keras variable. Other variables are returned unchanged."""
    return variable._value if isinstance(variable, keras.Variable) else variable


def name_of(variable: tf.Variable | keras.Variable) -> str:
    """Return the variable's path in its model, if it has one, or else its name."""
    return getattr(variable, "path", variable.name)
