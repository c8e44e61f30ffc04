import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, NoReturn

import keras
import numpy as np
import tensorflow as tf

from xmc_tf.collective.blocks import patched, set_in_block
from xmc_tf.collective.heads.layers import scores_of_rows
from xmc_tf.collective.keras_2 import keras_2_refused
from xmc_tf.collective.tables.initial_values import FunctionInitializer, Initializer
from xmc_tf.collective.tables.lookup import lookup
from xmc_tf.collective.tables.row_exchange import WireFormat
from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.collective.tables.table_variable import TableVariable
from xmc_tf.common.errors import InputError

logger = logging.getLogger(__name__)

# name, rows, dim, initializer, trainable -> table
MakeTable = Callable[[str, int, int, Initializer, bool], ShardedTable]


class EmbeddingScope(NamedTuple):
    make: MakeTable
    wants: Callable[[int, int], bool]  # whether an embedding of so many rows and columns is sharded
    wire: WireFormat
    make_growing: Callable[[Any], Any]


_SCOPE: ContextVar[EmbeddingScope | None] = ContextVar("embedding_scope", default=None)


def embedding_scope_of(layer: str, fix: str) -> EmbeddingScope:
    """Return the current embedding scope. Outside of one, raise InputError."""
    if (scope := _SCOPE.get()) is None:
        raise InputError(f"{layer} is outside strategy.embedding_scope()", expected="a layer made inside it", fix=fix)
    return scope


class ShardedEmbedding(keras.layers.Embedding):
    """An Embedding that keeps this rank's rows in ``table``. With few rows, it behaves like a plain Embedding."""

    built: bool
    table: ShardedTable
    _make_table: MakeTable | None = None
    _first_rows: np.ndarray | None = None

    def __init__(self, input_dim: int, output_dim: int, *args: Any, weights: Any = None, **kwargs: Any) -> None:
        scope = embedding_scope_of(
            "a sharded Embedding", "make, load or clone it inside `with strategy.embedding_scope():`"
        )
        if not scope.wants(input_dim, output_dim):
            super().__init__(input_dim, output_dim, *args, weights=weights, **kwargs)
            return
        super().__init__(input_dim, output_dim, *args, **kwargs)
        self.supports_jit = False
        self._make_table, self._wire = scope.make, scope.wire
        unsupported = ("embeddings_regularizer", "embeddings_constraint", "activity_regularizer", "lora_rank")
        for option in (*unsupported, "quantization_mode"):
            if getattr(self, option):
                self._refuse(option, "an Embedding without it (for weight decay, use the optimizer)")
        if weights is not None:
            self._first_rows = np.asarray(weights[0] if isinstance(weights, list) else weights, np.float32)
            self.build()

    @property
    def is_sharded(self) -> bool:
        """Whether the Embedding is large enough to be sharded."""
        return self._make_table is not None

    def _refuse(self, what: str, expected: str) -> NoReturn:
        raise InputError(
            f"embedding {self.name!r}: {what} is not supported for sharded embeddings",
            expected=expected,
            fix="leave it out, or create the layer outside embedding_scope()",
        )

    def build(self, input_shape: Any = None) -> None:
        if self._make_table is None:
            super().build(input_shape)
            return
        if self.built:
            return
        first = self.embeddings_initializer if self._first_rows is None else self._first_rows
        if not isinstance(first, np.ndarray | keras.initializers.Initializer):
            first = FunctionInitializer(first)
        self.table = self._make_table(self.name, self.input_dim, self.output_dim, first, self.trainable)
        self._first_rows = None
        self._embeddings = TableVariable(self.table)
        self.built = True

    def call(self, inputs: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
        if self._make_table is None:
            return super().call(inputs)
        if isinstance(inputs, tf.SparseTensor):
            # As in Keras, each element that has no id gives row 0.
            inputs = tf.sparse.to_dense(inputs, validate_indices=False)
        ids = inputs if inputs.dtype in (tf.int32, tf.int64) else tf.cast(inputs, tf.int64)
        rows = lookup(self.table, ids, wire=self._wire)
        return rows if rows.dtype == self.compute_dtype else tf.cast(rows, self.compute_dtype)

    def enable_lora(self, *args: Any, **kwargs: Any) -> None:
        """Raise InputError if sharded, because the LoRA factors would belong to the rows of all ranks."""
        if self.is_sharded:
            self._refuse("enable_lora", "an Embedding whose rows are trained")
        super().enable_lora(*args, **kwargs)

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        """Raise InputError if sharded, because quantization reads and replaces all rows."""
        if self.is_sharded:
            self._refuse("quantize", "an Embedding in float32")
        super().quantize(*args, **kwargs)


class _Reversing:
    def call(self: Any, inputs: tf.Tensor, reverse: bool = False) -> tf.Tensor:
        """Return the rows of ids or, with ``reverse``, the scores of all rows for vectors. All ranks must call it."""
        table = getattr(self, "table", None)
        if not reverse or not self.tie_weights or table is None:
            return super().call(inputs, reverse=reverse)  # type: ignore[misc]
        scores = scores_of_rows(table, inputs, self._wire)
        scores = tf.cast(scores, self.reverse_dtype or self.compute_dtype)
        cap = self.logit_soft_cap
        return scores if cap is None else tf.tanh(scores / cap) * cap

    def quantize(self: Any, *args: Any, **kwargs: Any) -> None:
        """Raise InputError if sharded. Keras's method refuses all classes but the one whose name this class has."""
        if self.is_sharded:
            self._refuse("quantize", "an Embedding in float32")
        is_theirs = type(self) is sharded_form(keras.layers.ReversibleEmbedding)
        super().quantize(*args, **{"type_check": not is_theirs} | kwargs)  # type: ignore[misc]


@functools.cache
def sharded_form(cls: Any) -> Any:
    """Return a class with sharded rows that keeps the name and methods of ``cls``, an Embedding class."""
    if cls is keras.layers.Embedding:
        return ShardedEmbedding
    if cls is getattr(keras.layers, "ReversibleEmbedding", None):
        bases: Any = (_Reversing, cls, ShardedEmbedding)
    else:
        parent = next(one for one in cls.__mro__[1:] if issubclass(one, keras.layers.Embedding))
        bases = (cls, sharded_form(parent))
    form = type(cls.__name__, bases, {"__module__": cls.__module__, "__qualname__": cls.__qualname__})
    _save_as(form, cls)
    return form


def _save_as(form: type, cls: type) -> None:
    """Make saved models refer to ``cls`` instead of ``form``, so that a plain process can load them."""
    # Tested by check_saved_models_are_whole of tests/collective/world_keras.py.
    form.__name__ = cls.__name__
    if getattr(keras.layers, cls.__name__, None) is cls:
        form.__module__ = "keras.layers"  # by which Keras finds the classes that it has registered itself
    package, _, name = keras.saving.get_registered_name(cls).rpartition(">")
    for one in (form, cls) if package else ():  # the last one is found by the name
        keras.saving.register_keras_serializable(package, name)(one)


_save_as(ShardedEmbedding, keras.layers.Embedding)


@contextmanager
def shard_embeddings(scope: EmbeddingScope) -> Iterator[None]:
    """Shard large Embeddings created in the block, including subclasses and those that Keras loads or builds later."""
    original = keras.layers.Embedding.__new__

    def new(cls: Any, *args: Any, **kwargs: Any) -> keras.layers.Embedding:
        if issubclass(cls, ShardedEmbedding):
            return original(cls, *args, **kwargs)
        if cls is not keras.layers.Embedding:  # a subclass may have other arguments, so its form decides
            return original(sharded_form(cls), *args, **kwargs)
        named = [kwargs[name] for name in ("input_dim", "output_dim")[len(args) :] if name in kwargs]
        rows, dim = [*args, *named, None, None][:2]
        if scope.wants(rows, dim):
            return original(ShardedEmbedding, *args, **kwargs)
        logger.info("an embedding of %d rows is small and stays replicated", rows)
        return original(cls, *args, **kwargs)

    with (
        set_in_block(_SCOPE, scope),
        patched(keras.layers.Embedding, __new__=new),
        keras_2_refused("layers.Embedding", "__init__", "an Embedding inside embedding_scope()"),
    ):
        yield
