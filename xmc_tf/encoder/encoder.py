"""A transformer that turns token ids into one embedding per document."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import parse_json
from xmc_tf.common.folders.checksums import verified
from xmc_tf.common.process.forks import check_not_forked
from xmc_tf.encoder import pooling as poolings
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.forward import Forward
from xmc_tf.encoder.network.layout import Layout
from xmc_tf.encoder.network.operations import Operations, TrainingOperations
from xmc_tf.encoder.network.packed_layout import PackedLayout
from xmc_tf.encoder.network.weight_names import Weight, weights_of
from xmc_tf.encoder.precision import check_precision, dtype_of
from xmc_tf.encoder.sources import EncoderSource
from xmc_tf.encoder.weight_files import SAFETENSORS, WeightFiles, save_weights

# Parts of weights that are not random at first, and their value.
_CONSTANT = {"scale": 1.0, "shift": 0.0, "bias": 0.0, "r_w_bias": 0.0, "r_r_bias": 0.0, "r_s_bias": 0.0}


class Encoder(tf.Module):
    """A pre-trained transformer and its pooling.

    Example:
        >>> encoder = Encoder.load("bert-base-cased")
        >>> embeddings = encoder(ids, mask)  # [documents, encoder.dim]

    Args:
        config: the configuration.
        values: the weights by name, as ``weight_names`` lists them.
        pooling: the pooling; "auto": the default of the architecture.

    Attributes:
        config: the configuration.
        weights: the variables by name.
        listed_weights: their names and shapes here and in files.
        architecture: its model type: "bert", "xlnet"…
        pooling: "mean", "cls", "pooler", "max", "last" or "last_tanh".
        dim: length of an embedding.
        max_length: maximum number of tokens of a document.
        pad_id: token id of padding.
        precision: number format of matrix products: "off" (float32), "fp16" or "bf16".
    """

    def __init__(self, config: EncoderConfig, values: Mapping[str, np.ndarray], pooling: str = "auto") -> None:
        super().__init__(name="encoder")
        self.config = config
        self.listed_weights = weights_of(config)
        self.weights = {
            weight.name: tf.Variable(values[weight.name], name=weight.name.replace(".", "_"), dtype=tf.float32)
            for weight in self.listed_weights
        }
        self.architecture = config.architecture
        self.pooling = _checked(config.pooling if pooling == "auto" else pooling, config, self.weights)
        self.dim, self.max_length, self.pad_id = config.width, config.max_length, config.pad_id
        self.precision = "off"
        self._graphs: dict[tuple, Any] = {}

    def __repr__(self) -> str:
        return f"Encoder({self.architecture}, {self.dim} wide, pooling {self.pooling})"

    @classmethod
    def load(
        cls,
        name_or_folder: str | Path,
        *,
        pooling: str = "auto",
        hidden_dropout_prob: float | None = None,
        cache_dir: str = "",
    ) -> Self:
        """Load an encoder with its weights.

        Args:
            name_or_folder: a folder written by transformers or ``save`` (safetensors, h5, or ``pytorch_model.bin``,
                which is read without PyTorch), a folder of PECOS with ``text_encoder`` inside, or a name on the hub.
            pooling: the pooling; "auto": as its files say, else the default of the architecture.
            hidden_dropout_prob: dropout between the layers; None: as in the configuration. 0 also turns off dropout in
                the attention.
            cache_dir: folder of downloaded encoders; empty: the default one.

        Raises:
            InputError: there is no such encoder, or its files are incomplete.
        """
        check_not_forked("an encoder")
        poolings.check_pooling(pooling)
        source = EncoderSource(name_or_folder, "encoder", cache_dir)
        with verified(source.folder):
            config = _load_config(source).with_dropout(hidden_dropout_prob)
            if pooling == "auto":
                pooling = _pooling_of(source) or "auto"
            values = _load_weights(source, config)
        if "pooler.kernel" in values and values["pooler.kernel"] is None:
            if pooling == "pooler":
                raise InputError(
                    f"{source.name} has no weights for its pooler",
                    expected="another pooling",
                    received="pooling pooler",
                    fix="choose mean or cls (--pooling)",
                )
            pooling = "cls" if pooling == "auto" else pooling
        random = random_weights(config, 0)  # of a pooler that the files lack and nothing reads
        return cls(config, {name: random[name] if one is None else one for name, one in values.items()}, pooling)

    @classmethod
    def from_config(cls, config: Any, *, pooling: str = "auto", seed: int = 0) -> Self:
        """Return an encoder with random weights.

        Args:
            config: the content of a ``config.json``, or a configuration of transformers, such as ``BertConfig(...)``.
            pooling: the pooling; "auto": the default of the architecture.
            seed: the seed of the weights.
        """
        poolings.check_pooling(pooling)
        own = config if isinstance(config, EncoderConfig) else EncoderConfig.of(config)
        return cls(own, random_weights(own, seed), pooling)

    def __call__(
        self,
        ids: tf.Tensor,
        mask: tf.Tensor,
        training: bool = False,
        seed: tf.Tensor | None = None,
        *,
        packed: bool | None = None,
    ) -> tf.Tensor:
        """Return the embeddings of documents, not normalized.

        Args:
            ids: int32 [B, T], padded on the right for all architectures.
            mask: [B, T], 1 or true for a token; ids where it is 0 are ignored.
            training: whether to apply dropout.
            seed: int64 [2], of dropout; None: drawn from TensorFlow's global generator.
            packed: whether the layers skip padding; if not, all shapes depend on those of the inputs alone, as XLA
                requires. The embeddings differ by rounding. None: skip it, but not in training in float32, whose
                batches have little padding.

        Returns:
            float32 [B, dim], also in half precision.
        """
        ids, mask = tf.cast(ids, tf.int32), tf.cast(mask, tf.int32)
        if ids.shape[1] is not None and ids.shape[1] > self.max_length:
            raise InputError(
                f"documents of {ids.shape[1]} tokens are too long for the encoder",
                expected=f"at most {self.max_length}",
                fix="truncate them (truncate_length)",
            )
        config, dtype = self.config, dtype_of(self.precision)
        operations = Operations(config.activation, config.epsilon)
        half = dtype != tf.float32
        packed = (half or not training) if packed is None else packed
        if training:
            if seed is None:
                seed = _drawn_seed()
            # XLA compiles once per number of rows, so they must be few.
            operations = TrainingOperations(config.activation, config.epsilon, seed, compiled=packed and half)
        layout = PackedLayout(mask, rounded=half or not training) if packed else Layout(tf, mask)
        embeddings = Forward(config, self.weights, layout, operations, dtype).embeddings(ids, self.pooling)
        return tf.ensure_shape(embeddings, [ids.shape[0], self.dim])

    def in_graph(
        self, ids: tf.Tensor, mask: tf.Tensor, training: bool = False, seed: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Compute the same as a call, compiled once for all batch sizes."""
        key = training, self.precision
        if key not in self._graphs:
            sizes, seeds = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([2], tf.int64)

            def run(ids: tf.Tensor, mask: tf.Tensor, *seed: tf.Tensor) -> tf.Tensor:
                return self(ids, mask, training, *seed)

            specs = [sizes, sizes, seeds] if training else [sizes, sizes]
            self._graphs[key] = tf.function(run, input_signature=specs, autograph=False)
        if training and seed is None:
            seed = _drawn_seed()
        return self._graphs[key](ids, mask, seed) if training else self._graphs[key](ids, mask)

    def compute_in(self, precision: str) -> None:
        """Set the number format of matrix products. Weights, sums of layers and normalization stay float32.

        Args:
            precision: "off" (float32), "fp16" or "bf16".

        Raises:
            InputError: this machine cannot compute in it.
        """
        check_precision(precision)
        self.precision = precision

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens that have embeddings."""
        return self.config.vocabulary

    @property
    def variables(self) -> Sequence[tf.Variable]:
        """All weights, including those of an unused pooler."""
        return tuple(self.weights.values())

    @property
    def trainable_variables(self) -> Sequence[tf.Variable]:
        """The weights that receive a gradient, in a fixed order.

        Most checkpoints have others: an unused pooler, XLNet's mask embedding.
        """
        return tuple(
            self.weights[weight.name]
            for weight in self.listed_weights
            if not weight.unused or (self.pooling == "pooler" and weight.name.startswith("pooler."))
        )

    def check_tokenizer(self, vocabulary_size: int) -> None:
        """Raise an error if the tokenizer has more tokens than the encoder.

        Args:
            vocabulary_size: `TextTokenizer.vocabulary_size`.

        Raises:
            InputError: the tokenizer has more tokens.
        """
        if vocabulary_size > self.vocabulary_size:
            raise InputError(
                "the tokenizer does not belong to the encoder: it has more tokens",
                expected=f"at most {self.vocabulary_size:,}",
                received=f"{vocabulary_size:,}",
                fix="load both from the same folder",
            )

    def save(self, folder: str | Path) -> None:
        """Write configuration, weights and pooling as a folder that ``load`` and transformers read.

        Args:
            folder: the folder; other files in it stay. To write it atomically, call this inside ``placed_folder``.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.config.write(folder)
        values = {name: variable.numpy() for name, variable in self.weights.items()}
        save_weights(folder / SAFETENSORS, self.listed_weights, values)
        poolings.write_pooling(folder, self.pooling)


def _drawn_seed() -> tf.Tensor:
    """Return a seed of dropout from TensorFlow's global generator."""
    return tf.random.uniform([2], 0, 1 << 40, tf.int64)


def random_weights(config: EncoderConfig, seed: int) -> dict[str, np.ndarray]:
    """Return random weights, which depend on the seed alone."""
    return {weight.name: _random(weight, config, seed, number) for number, weight in enumerate(weights_of(config))}


def _random(weight: Weight, config: EncoderConfig, seed: int, number: int) -> np.ndarray:
    constant = _CONSTANT.get(weight.name.rpartition(".")[2])
    if constant is not None:
        return np.full(weight.shape, constant, np.float32)
    rng = np.random.default_rng([seed, number])
    values = rng.standard_normal(weight.shape)
    while (far := np.abs(values) > 2).any():
        values[far] = rng.standard_normal(int(far.sum()))
    return (config.deviation * values).astype(np.float32)


def _load_config(source: EncoderSource) -> EncoderConfig:
    content = source.read("config.json")
    if content is None:
        raise source.not_found(OSError("no config.json"))
    where = str(source.folder / "config.json") if source.folder else f"config.json of {source.name}"
    return EncoderConfig.of(parse_json(content, of=where, foreign=True), where)


def _load_weights(source: EncoderSource, config: EncoderConfig) -> dict[str, np.ndarray | None]:
    """Return the weights by name; None for those of a pooler or of a mask that the files lack."""
    paths = source.weight_paths()
    source.check_claims(config)
    listed = weights_of(config)
    try:
        files = WeightFiles(paths, config)
        missing = [weight for weight in listed if not all(name in files for name in weight.files)]
        if needed := [weight for weight in missing if not weight.unused]:
            raise InputError(
                f"{source.name} lacks weights of the encoder",
                expected=f"all {len(listed)} of {config.architecture}",
                received=f"none for {', '.join(one.files[0] for one in needed[:3])}{'…' if len(needed) > 3 else ''} "
                f"({len(needed)} in all)",
                fix="check that config.json and the weights belong together",
            )
        return {weight.name: None if weight in missing else files.own(weight) for weight in listed}
    except (InputError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001  h5py and safetensors each raise their own errors
        raise source.not_found(error) from None


def _pooling_of(source: EncoderSource) -> str | None:
    """Return the pooling named in the encoder's files, or None."""
    own = poolings.own_pooling(source.read(poolings.OWN_FILE))
    if own is not None:
        return own
    module = poolings.pooling_module(source.read("modules.json"))
    if module is None:
        return None
    file = f"{module}/config.json"
    return poolings.sentence_transformers_pooling(source.read(file), file)


def _checked(pooling: str, config: EncoderConfig, weights: Mapping[str, Any]) -> str:
    """Return the pooling if the architecture supports it."""
    if pooling == "pooler" and "pooler.kernel" not in weights:
        raise InputError(
            f"{config.architecture} has no pooler", expected="mean, cls, max or last", received="pooling pooler"
        )
    return pooling
