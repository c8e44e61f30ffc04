import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from xmc_tf.common.process.quiet import muted_stderr

with muted_stderr():  # only the first import in a process prints warnings
    import tensorflow as tf

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.forks import check_not_forked
from xmc_tf.encoder.adapters import is_adapter, new_adapters, with_adapters_added
from xmc_tf.encoder.architectures.registry import parse_config
from xmc_tf.encoder.network.attention import Layout
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.forward import Forward
from xmc_tf.encoder.network.modules import LAYER, Modules
from xmc_tf.encoder.network.operations import Operations, TrainingOperations
from xmc_tf.encoder.network.packed_layout import PackedLayout
from xmc_tf.encoder.precision import DTYPES, check_precision
from xmc_tf.encoder.reading import check_pooling, random_weights, read_encoder, write_modules
from xmc_tf.encoder.weight_files import SAFETENSORS, save_weights

# On a CPU, batches whose intermediate values fit the cache are a quarter faster than larger ones; a GPU wants more.
_ON_CPU, _ON_GPU = 4096, 32768


class Encoder(tf.Module):
    """A pre-trained transformer with pooling, which maps token ids to one embedding per document."""

    def __init__(self, config: EncoderConfig, values: Mapping[str, np.ndarray], modules: Modules) -> None:
        super().__init__(name="encoder")
        self.config, self.modules = config, modules.checked(config)
        self.listed_weights = [*config.architecture.weights(config), *modules.weights()]
        self.weights = {
            weight.name: tf.Variable(values[weight.name], name=weight.name.replace(".", "_"), dtype=tf.float32)
            for weight in self.listed_weights
        }
        self.architecture, self.vocabulary_size = config.architecture.name, config.vocabulary
        self.pooling, self.dim = modules.pooling, modules.width(config)
        self.max_length, self.pad_id = config.max_length, config.pad_id
        self.precision = "off"
        self.frozen_layers: int | None = None  # number of lower layers that are frozen, with the embeddings
        self._graphs: dict[tuple, Any] = {}

    def __repr__(self) -> str:
        return f"Encoder({self.architecture}, {self.dim} wide, {self.modules})"

    @classmethod
    def load(
        cls,
        name_or_folder: str | Path,
        *,
        pooling: str = "auto",
        hidden_dropout_prob: float | None = None,
        cache_dir: str = "",
    ) -> Self:
        """Load an encoder from a name on the hub, or from a folder written by transformers, PECOS or ``save``."""
        check_not_forked("an encoder")
        config, values, modules = read_encoder(name_or_folder, pooling, cache_dir)
        config = config.with_dropout(hidden_dropout_prob)
        # Random: a pooler or a mask that the files lack and nothing reads.
        return cls(config, random_weights(config, 0, values), modules)

    @classmethod
    def from_config(cls, config: Any, *, pooling: str = "auto", seed: int = 0) -> Self:
        """Return an encoder with random weights for a configuration from ``config.json`` or transformers."""
        check_pooling(pooling)
        own = config if isinstance(config, EncoderConfig) else parse_config(config)
        return cls(own, random_weights(own, seed), Modules(own.architecture.pooling if pooling == "auto" else pooling))

    def __call__(
        self,
        # int32 [documents, tokens], padded on the right for all architectures; or, with frozen layers, their output
        ids: tf.Tensor,
        mask: tf.Tensor,  # 1 or true for a token
        training: bool = False,
        seed: tf.Tensor | None = None,  # int64 [2]; None: drawn from TensorFlow's global generator
        *,
        # Whether layers skip padding; False lets all shapes depend on those of the inputs alone, as XLA requires. None:
        # skip it except in training in float32, whose batches have little padding. Embeddings differ only by rounding.
        packed: bool | None = None,
    ) -> tf.Tensor:
        """Return the unnormalized embeddings of documents: float32 [documents, dim], also in half precision."""
        ids, mask = tf.convert_to_tensor(ids), tf.cast(mask, tf.int32)
        if ids.shape[1] is not None and ids.shape[1] > self.max_length:
            raise InputError(
                f"documents of {ids.shape[1]} tokens are too long for the encoder",
                expected=f"at most {self.max_length}",
                fix="truncate them (truncate_length)",
            )
        config, dtype = self.config, DTYPES[self.precision]
        operations = Operations(config.activation, config.epsilon)
        half = dtype != tf.float32
        packed = (half or not training) if packed is None else packed
        if training:
            seed = _drawn_seed() if seed is None else seed
            # XLA compiles once per number of rows, so they must be few.
            operations = TrainingOperations(config.activation, config.epsilon, seed, compiled=packed and half)
        layout = PackedLayout(mask, rounded=half or not training) if packed else Layout(tf, mask)
        net = Forward(config, self.weights, layout, operations, dtype)
        first = self.frozen_layers or 0
        if ids.dtype.is_floating:
            rows = tf.cast(layout.pack(tf.reshape(ids, [-1, config.width])), tf.float32)
        elif training and self.frozen_layers is not None:
            frozen = Forward(config, self.weights, layout, Operations(config.activation, config.epsilon), dtype)
            rows = tf.stop_gradient(frozen.lower_states(frozen.without_padding(tf.cast(ids, tf.int32)), first))
        else:
            rows = net.lower_states(net.without_padding(tf.cast(ids, tf.int32)), first)
        embeddings = net.pooled(net.upper_states(rows, first), self.modules)
        return tf.ensure_shape(embeddings, [ids.shape[0], self.dim])

    def freeze(self, train_layers: str) -> None:
        """Freeze the embeddings and the lower layers. ``train_layers`` is "all", "half" or a number of upper layers."""
        self.frozen_layers = self.config.architecture.frozen_layers(self.config, train_layers)
        self._graphs.clear()

    def adapt(self, rank: int, seed: int) -> None:
        """Train adapters of low rank instead of the weights of layers; see `adapters`. Rank 0: train the weights."""
        trained = [
            weight for weight in self.config.architecture.weights(self.config) if not self.is_frozen(weight.name)
        ]
        if rank:
            self.weights |= {
                name: tf.Variable(value, name=name.replace(".", "_"))
                for name, value in new_adapters(trained, rank, seed).items()
            }
            self._graphs.clear()

    def frozen_states(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the output of the frozen layers, in the format of matrix products: [documents, tokens, width]."""
        key = "frozen", self.precision
        if key not in self._graphs:
            specs = [tf.TensorSpec([None, None], tf.int32)] * 2
            self._graphs[key] = tf.function(self._frozen_states, input_signature=specs, autograph=False)
        return self._graphs[key](tf.constant(ids), tf.constant(mask)).numpy()

    def _frozen_states(self, ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        config, dtype, layout = self.config, DTYPES[self.precision], PackedLayout(mask, rounded=True)
        net = Forward(config, self.weights, layout, Operations(config.activation, config.epsilon), dtype)
        rows = net.lower_states(net.without_padding(ids), self.frozen_layers or 0)
        return tf.reshape(layout.unpack(tf.cast(rows, dtype)), [layout.documents, layout.width, config.width])

    def in_graph(
        self, ids: tf.Tensor, mask: tf.Tensor, training: bool = False, seed: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Return the same embeddings as ``__call__``, computed by one graph for all batch sizes."""
        dtype = tf.as_dtype(ids.dtype)
        key = training, self.precision, dtype
        if key not in self._graphs:
            padded = tf.TensorSpec([None, None], tf.int32)
            given = tf.TensorSpec([None, None, self.config.width], dtype) if dtype.is_floating else padded
            specs = [given, padded] + [tf.TensorSpec([2], tf.int64)] * training

            def run(ids: tf.Tensor, mask: tf.Tensor, *seed: tf.Tensor) -> tf.Tensor:
                return self(ids, mask, training, *seed)

            self._graphs[key] = tf.function(run, input_signature=specs, autograph=False)
        if not training:
            return self._graphs[key](ids, mask)
        return self._graphs[key](ids, mask, _drawn_seed() if seed is None else seed)

    @property
    def batch_tokens(self) -> int:
        """Number of tokens per batch that is fastest on this machine."""
        return _ON_GPU if tf.config.list_logical_devices("GPU") else _ON_CPU

    def embed(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the unnormalized embeddings of documents: float32 [documents, dim]."""
        check_not_forked("embeddings of texts")
        return self.in_graph(tf.constant(ids), tf.constant(mask)).numpy()

    def compute_in(self, precision: str) -> None:
        """Set the number format of matrix products. Weights, residual sums and normalization stay in float32."""
        check_precision(precision)
        self.precision = precision

    @property
    def variables(self) -> Sequence[tf.Variable]:
        """All weights, including those of an unused pooler."""
        return tuple(self.weights.values())

    @property
    def trainable_variables(self) -> Sequence[tf.Variable]:
        """The weights that receive a gradient, in a fixed order, without an unused pooler or XLNet's mask embedding."""
        adapters = [variable for name, variable in self.weights.items() if is_adapter(name)]
        return tuple(adapters) + tuple(
            self.weights[weight.name]
            for weight in self.listed_weights
            if (not weight.unused or ("pooler" in self.modules.poolings and weight.name.startswith("pooler.")))
            and not (self.is_frozen(weight.name) or (adapters and not weight.name.startswith((LAYER, "pooler."))))
        )

    def is_frozen(self, name: str) -> bool:
        frozen = self.frozen_layers
        if frozen is None or name.startswith(LAYER):
            return False
        return self.config.architecture.is_frozen(name, frozen)

    def leave_out_prompt(self, nr_tokens: int) -> None:
        """Exclude the first tokens of documents, those of a prompt, from pooling if the encoder was trained so."""
        if not self.modules.pools_prompt:
            self.modules = dataclasses.replace(self.modules, nr_left_out=nr_tokens)
            self._graphs.clear()

    def check_tokenizer(self, vocabulary_size: int) -> None:
        """Raise an InputError if the tokenizer has more tokens than the encoder."""
        if vocabulary_size > self.vocabulary_size:
            raise InputError(
                "the tokenizer does not belong to the encoder: it has more tokens",
                expected=f"at most {self.vocabulary_size:,}",
                received=f"{vocabulary_size:,}",
                fix="load both from the same folder",
            )

    def save(self, folder: str | Path) -> None:
        """Write configuration, weights and pooling to a folder that ``load`` and transformers can read."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.config.write(folder)
        values = with_adapters_added({name: variable.numpy() for name, variable in self.weights.items()})
        save_weights(folder / SAFETENSORS, self.listed_weights, values)
        write_modules(folder, self.modules, self.config)


def _drawn_seed() -> tf.Tensor:
    return tf.random.uniform([2], 0, 1 << 40, tf.int64)
