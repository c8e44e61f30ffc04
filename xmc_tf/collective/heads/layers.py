"""Products of vectors with all rows of a table. Each rank multiplies the vectors of all ranks by its own rows."""

from typing import Any, Self

import keras
import tensorflow as tf

from xmc_tf.collective.engines import operations
from xmc_tf.collective.tables.row_exchange import WireFormat, exchange_of
from xmc_tf.collective.tables.table import ShardedTable, serving_or_sharded, table_of
from xmc_tf.collective.tables.table_variable import plain_variable
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.partition import even_rows


@tf.autograph.experimental.do_not_convert
def scores_of_rows(table: ShardedTable, vectors: tf.Tensor, wire: WireFormat = "fp32") -> tf.Tensor:
    """Return the scores ``vectors @ table.T`` of this rank's vectors, ``[..., rows]``. All ranks must call it."""
    table, flat, leading = serving_or_sharded(table), *_flat(table, vectors)
    if table.size == 1:
        scores = _scores_here(table, flat)
    else:
        everyone, sent, received = _gathered(table, flat, wire)
        local, widest = _scores_here(table, everyone), max(_sizes(table))
        # Rows of an exchange have one width, but ranks may differ in their number of rows.
        padded = tf.pad(local, [[0, 0], [0, widest - table.local_rows]])
        back = exchange_of(table, padded, received, sent, "scores")
        parts = tf.unstack(tf.reshape(back, [table.size, tf.shape(flat)[0], widest]))
        scores = tf.concat([part[:, :size] for part, size in zip(parts, _sizes(table), strict=True)], axis=1)
    return _shaped(scores, leading, vectors, table.rows)


@tf.autograph.experimental.do_not_convert
def top_rows(table: ShardedTable, vectors: tf.Tensor, k: int, wire: WireFormat = "fp32") -> tuple[tf.Tensor, tf.Tensor]:
    """Return the scores and numbers of each vector's k best rows. Ties go to the lower row. All ranks must call it."""
    table, flat, leading = serving_or_sharded(table), *_flat(table, vectors)
    if not 1 <= k <= table.rows:
        raise InputError(
            f"k is out of range for table {table.name!r}", expected=f"1 to {table.rows}, its rows", received=str(k)
        )
    number = tf.int32 if table.rows < 2**31 else tf.int64
    if table.size == 1:
        scores, rows = tf.math.top_k(_scores_here(table, flat), k)
        rows = tf.cast(rows, number)
    else:
        everyone, sent, received = _gathered(table, flat, wire)
        width = min(k, max(_sizes(table)))
        best = _scores_here(table, everyone)
        at = tf.zeros_like(best, tf.int32)  # for a rank without rows, which the gradient of top_k does not allow
        if table.local_rows:
            best, at = tf.math.top_k(best, min(width, table.local_rows))
        missing = [[0, 0], [0, width - best.shape[1]]]
        best = tf.pad(best, missing, constant_values=-float("inf"))
        own = tf.pad(tf.cast(at, number) + table.start, missing)
        # In rank order, so that ties go to the lower row.
        best = _by_vector(table, exchange_of(table, best, received, sent, "scores"), flat, width)
        of_best, _ = operations.alltoall(own, received, f"{table.name}/best")
        scores, at = tf.math.top_k(best, k)
        rows = tf.gather(_by_vector(table, of_best, flat, width), at, batch_dims=1)
    return _shaped(scores, leading, vectors, k), _shaped(rows, leading, vectors, k)


def _flat(table: ShardedTable, vectors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the vectors as a matrix, and the sizes of their leading dimensions."""
    if vectors.shape.rank in (None, 0) or vectors.shape[-1] != table.dim:
        raise InputError(
            f"the vectors do not fit the rows of table {table.name!r}",
            expected=f"a last dimension of {table.dim}",
            received=f"shape {vectors.shape}",
        )
    return tf.reshape(tf.cast(vectors, tf.float32), [-1, table.dim]), tf.shape(vectors)[:-1]


def _shaped(matrix: tf.Tensor, leading: tf.Tensor, vectors: tf.Tensor, width: int) -> tf.Tensor:
    shaped = tf.reshape(matrix, tf.concat([leading, [width]], axis=0))
    return tf.ensure_shape(shaped, [*vectors.shape[:-1], width])


def _sizes(table: ShardedTable) -> list[int]:
    """Return the number of rows on each rank."""
    return [stop - start for start, stop in map(table.partition.range, range(table.size))]


def _scores_here(table: ShardedTable, vectors: tf.Tensor) -> tf.Tensor:
    return tf.matmul(vectors, tf.cast(table.variable, tf.float32), transpose_b=True)


def _gathered(table: ShardedTable, vectors: tf.Tensor, wire: WireFormat) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the vectors of all ranks, and the number of vectors sent to and received from each rank."""
    count = tf.shape(vectors)[0]
    received = operations.allgather(tf.reshape(count, [1]), f"{table.name}/counts")
    received.set_shape([table.size])
    sent = tf.fill([table.size], count)
    moved = exchange_of(table, tf.tile(vectors, [table.size, 1]), sent, received, "vectors", wire)
    return moved, sent, received


def _by_vector(table: ShardedTable, received: tf.Tensor, vectors: tf.Tensor, width: int) -> tf.Tensor:
    """Return the received values, ``[vectors, ranks * width]``: for each vector, those of the ranks in order."""
    of_ranks = tf.reshape(received, [table.size, tf.shape(vectors)[0], width])
    return tf.reshape(tf.transpose(of_ranks, [1, 0, 2]), [-1, table.size * width])


def table_of_all_rows(owner: Any) -> ShardedTable:
    """Return the table of an Embedding, of an Embedding's variable, or of a result of ``strategy.variable``."""
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
        "this is not an embedding whose rows can all be scored",
        expected="a keras.layers.Embedding, or a result of strategy.variable with two dimensions",
        received=type(owner).__name__,
        fix="create a keras.layers.Embedding with the candidates inside embedding_scope()",
    )


class _OfAllRows(keras.layers.Layer):
    """A layer that multiplies its inputs by all rows of an Embedding. It tracks the Embedding as its sublayer."""

    def __init__(self, embedding: keras.layers.Embedding, **options: Any) -> None:
        super().__init__(**options)
        self.supports_jit = False
        self.embedding = embedding

    @property
    def _wire(self) -> WireFormat:
        return getattr(self.embedding, "_wire", "fp32")

    def get_config(self) -> dict[str, Any]:
        """Return the layer's configuration, including the serialized Embedding."""
        return {**super().get_config(), "embedding": keras.saving.serialize_keras_object(self.embedding)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Create the layer from its configuration.

        Args:
            config: the result of ``get_config``.
        """
        return cls(**{**config, "embedding": keras.saving.deserialize_keras_object(config["embedding"])})


@keras.saving.register_keras_serializable(package="xmc_tf")
class TiedHead(_OfAllRows):
    """The scores of all rows of an Embedding, ``inputs @ embeddings.T``: for example, a language model's tied head.

    Every rank multiplies the inputs of all ranks by its own rows. The scores and gradients are those of one process,
    whether the Embedding is sharded or not. A ``.keras`` file keeps the Embedding shared. ``keras.models.clone_model``
    and ``model_from_json`` do not: the head gets an Embedding of its own. Build the model again instead.

    Example:
        >>> items = keras.layers.Embedding(10_000, 64)
        >>> head = TiedHead(items)
        >>> head(tf.zeros([2, 5, 64])).shape
        TensorShape([2, 5, 10000])

    Args:
        embedding: the Embedding whose rows are multiplied. The head shares its weights.
        use_bias: whether to add a bias to the score of each row.
        **options: further arguments of Keras layers, such as ``name``.
    """

    def __init__(self, embedding: keras.layers.Embedding, *, use_bias: bool = False, **options: Any) -> None:
        super().__init__(embedding, **options)
        self.use_bias = use_bias

    def build(self, input_shape: Any = None) -> None:
        """Create the bias, if ``use_bias`` is set.

        Args:
            input_shape: ignored.
        """
        table = table_of_all_rows(self.embedding)
        if self.use_bias:
            self.bias = self.add_weight(shape=(table.rows,), initializer="zeros", name="bias")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the scores of all rows, ``[..., rows]``. All ranks must call it.

        Args:
            inputs: vectors, ``[..., width of a row]``.
        """
        scores = tf.cast(scores_of_rows(table_of_all_rows(self.embedding), inputs, self._wire), self.compute_dtype)
        return scores + tf.cast(tf.convert_to_tensor(self.bias), scores.dtype) if self.use_bias else scores

    def get_config(self) -> dict[str, Any]:
        """Return the layer's configuration, from which Keras can recreate the layer."""
        return {**super().get_config(), "use_bias": self.use_bias}


@keras.saving.register_keras_serializable(package="xmc_tf")
class TopK(_OfAllRows):
    """The k best rows of an Embedding for each query by dot product: exact retrieval of candidates.

    Every rank finds the best of its own rows for the queries of all ranks. The Embedding may be sharded or not.

    Example:
        >>> movies = keras.layers.Embedding(10_000, 64)
        >>> scores, ids = TopK(movies, k=10)(tf.zeros([2, 64]))
        >>> ids.shape
        TensorShape([2, 10])

    Args:
        embedding: the Embedding whose rows are the candidates.
        k: the number of rows to return for each query.
        **options: further arguments of Keras layers, such as ``name``.
    """

    def __init__(self, embedding: keras.layers.Embedding, k: int, **options: Any) -> None:
        super().__init__(embedding, **options)
        self.k = k
        self.built = True  # it has no weights of its own

    def call(self, inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the scores of the best rows in descending order, and their ids. All ranks must call it.

        Both results have the shape ``[..., k]``.

        Args:
            inputs: the queries, ``[..., width of a row]``.
        """
        scores, ids = top_rows(table_of_all_rows(self.embedding), inputs, self.k, self._wire)
        return tf.cast(scores, self.compute_dtype), ids

    def get_config(self) -> dict[str, Any]:
        """Return the layer's configuration, from which Keras can recreate the layer."""
        return {**super().get_config(), "k": self.k}
