"""Keras layers that multiply by all rows of an Embedding, sharded or not: a tied head, and the best rows."""

from typing import Any, Self

import keras
import tensorflow as tf

from xmc_tf.collective.heads.products import scores_of_rows, top_rows
from xmc_tf.collective.tables.table import ShardedTable, table_of
from xmc_tf.collective.tables.table_variable import plain_variable
from xmc_tf.collective.tables.wire import WireFormat
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.partition import even_rows


def table_of_all_rows(owner: Any) -> ShardedTable:
    """Return the table of an Embedding, of its variable, or of a result of ``strategy.variable``.

    An Embedding that is not sharded is a table of one rank.
    """
    variable = owner
    if isinstance(owner, keras.layers.Embedding):
        if not owner.built:
            owner.build(None)
        variable = owner.embeddings
    variable = table_of(variable) or variable
    if isinstance(variable, ShardedTable) and variable.has_row_numbers:
        return variable
    if isinstance(variable, keras.Variable | tf.Variable | tf.Tensor) and len(variable.shape) == 2:
        rows, dim = variable.shape
        return ShardedTable("embeddings", rows, dim, even_rows(rows, 1), 0, plain_variable(variable))
    raise InputError(
        "all rows of an embedding",
        expected="a keras.layers.Embedding, or a result of strategy.variable with two dimensions",
        received=type(owner).__name__,
        fix="make a keras.layers.Embedding inside embedding_scope() for the rows that are candidates",
    )


class _OfAllRows(keras.layers.Layer):
    """A layer that multiplies by all rows of an Embedding, which it owns too."""

    def __init__(self, embedding: keras.layers.Embedding, **options: Any) -> None:
        super().__init__(**options)
        self.supports_jit = False
        self.embedding = embedding

    @property
    def _wire(self) -> WireFormat:
        return getattr(self.embedding, "_wire", "fp32")

    def get_config(self) -> dict[str, Any]:
        """Return the configuration."""
        return {**super().get_config(), "embedding": keras.saving.serialize_keras_object(self.embedding)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return the layer of a configuration.

        Args:
            config: the configuration.
        """
        return cls(**{**config, "embedding": keras.saving.deserialize_keras_object(config["embedding"])})


@keras.saving.register_keras_serializable(package="xmc_tf")
class TiedHead(_OfAllRows):
    """The scores of all rows of an Embedding: ``inputs @ embeddings.T``, such as a language model's tied head.

    Every rank multiplies the inputs of all ranks by its own rows. As in one process, scores and gradients have one
    column for each row. The Embedding may be sharded or not.

    Example:
        >>> items = keras.layers.Embedding(10_000, 64)
        >>> head = TiedHead(items)
        >>> head(tf.zeros([2, 5, 64])).shape
        TensorShape([2, 5, 10000])

    Args:
        embedding: the Embedding, whose rows are shared.
        use_bias: whether to add a number for each row.
        **options: further arguments of Keras' layers, such as ``name``.
    """

    def __init__(self, embedding: keras.layers.Embedding, *, use_bias: bool = False, **options: Any) -> None:
        super().__init__(embedding, **options)
        self.use_bias = use_bias

    def build(self, input_shape: Any = None) -> None:
        """Create the bias.

        Args:
            input_shape: not used.
        """
        table = table_of_all_rows(self.embedding)
        if self.use_bias:
            self.bias = self.add_weight(shape=(table.rows,), initializer="zeros", name="bias")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the scores of all rows, ``[..., rows]``; collective.

        Args:
            inputs: ``[..., width of a row]``.
        """
        scores = tf.cast(scores_of_rows(table_of_all_rows(self.embedding), inputs, self._wire), self.compute_dtype)
        return scores + tf.cast(tf.convert_to_tensor(self.bias), scores.dtype) if self.use_bias else scores

    def get_config(self) -> dict[str, Any]:
        """Return the configuration."""
        return {**super().get_config(), "use_bias": self.use_bias}


@keras.saving.register_keras_serializable(package="xmc_tf")
class TopK(_OfAllRows):
    """The k best rows of an Embedding for each query, by dot product: exact retrieval of candidates.

    Every rank finds the best of its own rows for the queries of all ranks. The Embedding may be sharded or not.

    Example:
        >>> movies = keras.layers.Embedding(10_000, 64)
        >>> scores, ids = TopK(movies, k=10)(tf.zeros([2, 64]))
        >>> ids.shape
        TensorShape([2, 10])

    Args:
        embedding: the Embedding, whose rows are the candidates.
        k: the number of rows for each query.
        **options: further arguments of Keras' layers, such as ``name``.
    """

    def __init__(self, embedding: keras.layers.Embedding, k: int, **options: Any) -> None:
        super().__init__(embedding, **options)
        self.k = k
        self.built = True  # it has no weights of its own

    def call(self, inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the scores of the best rows, from the largest, and their ids, both ``[..., k]``; collective.

        Args:
            inputs: the queries, ``[..., width of a row]``.
        """
        scores, ids = top_rows(table_of_all_rows(self.embedding), inputs, self.k, self._wire)
        return tf.cast(scores, self.compute_dtype), ids

    def get_config(self) -> dict[str, Any]:
        """Return the configuration."""
        return {**super().get_config(), "k": self.k}
