"""A transformer that turns token ids into one embedding per document."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
import transformers
from safetensors import SafetensorError
from transformers import AutoConfig

from xmc_tf.common.errors import InputError
from xmc_tf.common.folders.checksums import verified
from xmc_tf.common.process.forks import check_not_forked
from xmc_tf.common.typing_names import Self
from xmc_tf.encoder import pooling as poolings
from xmc_tf.encoder.architectures import Architecture, architecture_of
from xmc_tf.encoder.sources import Source, quiet_transformers
from xmc_tf.encoder.torch_weights import load_torch_weights

_DUMMY_IDS = ((1, 1),)


class Encoder(tf.Module):
    """A pre-trained transformer and its pooling.

    Example:
        >>> encoder = Encoder.load("bert-base-cased")
        >>> embeddings = encoder(ids, mask)  # [documents, encoder.dim]

    Attributes:
        model: the model of transformers.
        architecture: its model type: "bert", "xlnet"…
        pooling: "mean", "cls", "pooler", "max", "last" or "last_tanh".
        dim: length of an embedding.
        max_length: maximum number of tokens of a document.
    """

    def __init__(self, model: Any, pooling: str) -> None:
        super().__init__(name="encoder")
        self.model = model
        self.config = model.config
        self._kind = architecture_of(self.config)
        self.architecture: str = self.config.model_type
        self.pooling = pooling
        self.dim = int(self.config.hidden_size)
        self.max_length = self._kind.max_length(self.config)
        self._pad_id = int(self.config.pad_token_id or 0)
        self._trainable: list[tf.Variable] | None = None
        self._graphs: dict[bool, Any] = {}

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
        source = Source(name_or_folder, "encoder", cache_dir)
        with quiet_transformers(), verified(source.folder):
            config = _load_config(source)
            _set_dropout(config, hidden_dropout_prob)
            kind = architecture_of(config)
            if pooling == "auto":
                pooling = _pooling_of(source) or "auto"
            with _precision(kind):
                model, missing = _load_model(source, config, getattr(transformers, kind.tf_class))
        if [name for name in missing if "pooler" in name]:
            if pooling == "pooler":
                raise InputError(
                    f"{source.name} has no weights for its pooler",
                    expected="another pooling",
                    received="pooling pooler",
                    fix="choose mean or cls (--pooling)",
                )
            return cls(model, "cls" if pooling == "auto" else pooling)
        return cls(model, _checked(kind.pooling if pooling == "auto" else pooling, model))

    @classmethod
    def from_config(cls, config: Any, *, pooling: str = "auto", seed: int = 0) -> Self:
        """Return an encoder with random weights.

        Args:
            config: a configuration of transformers, such as ``BertConfig(...)``.
            pooling: the pooling; "auto": the default of the architecture.
            seed: the seed of the weights.
        """
        poolings.check_pooling(pooling)
        kind = architecture_of(config)
        _settle(config)
        with quiet_transformers(), _precision(kind):
            model = getattr(transformers, kind.tf_class)(config)
            model.build_in_name_scope()
        for number, variable in enumerate(model.variables):
            _reinitialize(variable, config.initializer_range, np.random.default_rng([seed, number]))
        return cls(model, _checked(kind.pooling if pooling == "auto" else pooling, model))

    def __call__(self, ids: tf.Tensor, mask: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the embeddings of documents, not normalized.

        Args:
            ids: int32 [B, T], padded on the right for all architectures.
            mask: [B, T], 1 or true for a token; ids where it is 0 are ignored.
            training: whether to apply dropout.

        Returns:
            float32 [B, dim], also under a mixed-precision policy.
        """
        ids, mask = tf.cast(ids, tf.int32), tf.cast(mask, tf.int32)
        if ids.shape[1] is not None and ids.shape[1] > self.max_length:
            raise InputError(
                f"documents of {ids.shape[1]} tokens are too long for the encoder",
                expected=f"at most {self.max_length}",
                fix="truncate them (truncate_length)",
            )
        ids = tf.where(mask > 0, ids, self._pad_id)
        states, pooler = self._run(ids, mask, training)
        embeddings = poolings.pool(self.pooling, states, mask, pooler, self.architecture == "xlnet")
        embeddings.set_shape([ids.shape[0], self.dim])
        return embeddings

    def in_graph(self, ids: tf.Tensor, mask: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Compute the same as a call, compiled once for all batch sizes."""
        if training not in self._graphs:
            sizes = tf.TensorSpec([None, None], tf.int32)
            self._graphs[training] = tf.function(
                lambda ids, mask: self(ids, mask, training), input_signature=[sizes, sizes], autograph=False
            )
        return self._graphs[training](ids, mask)

    def _run(self, ids: tf.Tensor, mask: tf.Tensor, training: bool) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Return the hidden states of the tokens, and the output of the architecture's pooler."""

        def run(ids: tf.Tensor, mask: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
            inputs = {"input_ids": ids, "attention_mask": mask, **self._kind.inputs(mask)}
            output = self.model(**inputs, return_dict=True, training=training)
            return output.last_hidden_state, output.get("pooler_output")

        if self._kind.branches_on_tensors and not (tf.executing_eagerly() or ids.shape.is_fully_defined()):
            # Callers trace without AutoGraph (deberta-v2 fails test_embeddings_do_not_depend_on_padding).
            return tf.function(run, autograph=True)(ids, mask)
        return run(ids, mask)

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens that have embeddings."""
        return int(self.config.vocab_size)

    @property
    def variables(self) -> Sequence[tf.Variable]:
        """All weights, including those of an unused pooler."""
        return tuple(self.model.variables)

    @property
    def trainable_variables(self) -> Sequence[tf.Variable]:
        """The weights that receive a gradient, in a fixed order.

        Most checkpoints have others: an unused pooler, XLNet's mask embedding.
        """
        if self._trainable is None:
            candidates = self.model.trainable_variables
            with tf.GradientTape() as tape:
                embeddings = self(tf.constant(_DUMMY_IDS), tf.ones_like(_DUMMY_IDS))
            gradients = tape.gradient(embeddings, candidates)
            self._trainable = [one for one, gradient in zip(candidates, gradients, strict=True) if gradient is not None]
        return tuple(self._trainable)

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
        with quiet_transformers():
            try:
                self.model.save_pretrained(folder, safe_serialization=True)
            except SafetensorError as error:  # safetensors' own error for a full disk
                raise OSError(f"{folder}: the weights could not be written: {error}") from error
        poolings.write_pooling(folder, self.pooling)


def _load_config(source: Source) -> Any:
    try:
        config = AutoConfig.from_pretrained(source.name, cache_dir=source.cache_dir)
        return _settle(config)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  transformers raises many types for invalid values
        raise source.not_found(error) from None


def _settle(config: Any) -> Any:
    """Set the configuration options that computing embeddings requires."""
    config.output_hidden_states = config.output_attentions = False
    if config.model_type == "xlnet":
        config.use_mems_eval = config.use_mems_train = False
        config.mem_len = None
    return config


@contextmanager
def _precision(kind: Architecture) -> Iterator[None]:
    """Set the precision policy while layers are created; some classes fail under a half-precision policy."""
    before = tf_keras.mixed_precision.global_policy()
    if not kind.half_precision:
        tf_keras.mixed_precision.set_global_policy("float32")
    try:
        yield
    finally:
        tf_keras.mixed_precision.set_global_policy(before)


def _set_dropout(config: Any, hidden_dropout_prob: float | None) -> None:
    if hidden_dropout_prob is None:
        return
    hidden, *inner = architecture_of(config).dropouts
    setattr(config, hidden, hidden_dropout_prob)
    if hidden_dropout_prob == 0:
        for name in inner:
            setattr(config, name, 0.0)


def _load_model(source: Source, config: Any, tf_class: Any) -> tuple[Any, list[str]]:
    """Return the model and the names of its weights that the files lack, which may be those of the pooler only."""
    options = {"config": config, "cache_dir": source.cache_dir, "output_loading_info": True}
    try:
        from_torch = source.weights_are_torch()
        source.check_claims(config)
        if from_torch:
            model, info = load_torch_weights(source.torch_files(), config, tf_class)
        else:
            try:
                model, info = tf_class.from_pretrained(source.name, **options)
            except OSError as error:
                if source.folder is not None or "from_pt=True" not in str(error):
                    raise
                model, info = load_torch_weights(source.torch_files(), config, tf_class)
    except (InputError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001  TensorFlow, h5py and safetensors each raise their own errors
        raise source.not_found(error) from None
    missing = [str(name) for name in info["missing_keys"]]
    needed = [name for name in missing if "pooler" not in name and not name.endswith("mask_emb")]
    if needed:
        raise InputError(
            f"{source.name} lacks weights of the encoder",
            expected=f"all {len(model.weights)} of {tf_class.__name__}",
            received=f"none for {', '.join(needed[:3])}{'…' if len(needed) > 3 else ''} ({len(needed)} in all)",
            fix="check that config.json and the weights belong together",
        )
    return model, missing


def _pooling_of(source: Source) -> str | None:
    """Return the pooling named in the encoder's files, or None."""
    own = poolings.own_pooling(source.read(poolings.OWN_FILE))
    if own is not None:
        return own
    module = poolings.pooling_module(source.read("modules.json"))
    if module is None:
        return None
    file = f"{module}/config.json"
    return poolings.sentence_transformers_pooling(source.read(file), file)


def _checked(pooling: str, model: Any) -> str:
    """Return the pooling if the model supports it."""
    if pooling == "pooler" and not any("pooler" in variable.name for variable in model.variables):
        raise InputError(
            f"{model.config.model_type} has no pooler", expected="mean, cls, max or last", received="pooling pooler"
        )
    return pooling


def _reinitialize(variable: tf.Variable, deviation: float, rng: np.random.Generator) -> None:
    """Draw a random weight again with our own seed; weights that are all ones or zeros stay."""
    before = variable.numpy()
    if before.size < 2 or before.min() == before.max():
        return
    values = rng.standard_normal(before.shape)
    while (far := np.abs(values) > 2).any():
        values[far] = rng.standard_normal(int(far.sum()))
    variable.assign((deviation * values).astype(before.dtype))
