"""The configuration of an encoder: the content of ``config.json`` under field names shared by all architectures."""

import dataclasses
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError

NO_LIMIT = 1 << 20
_NOT_OF_EMBEDDINGS = ("architecture", "content", "dropout", "attention_dropout", "deviation")
# The names in config.json that only some architectures read: those that change embeddings, and others.
OPTIONS = (
    "attention_bias", "clamp_len", "conv_act", "conv_groups", "conv_kernel_size", "feed_forward_proj",
    "global_attn_every_n_layers", "global_rope_theta", "inner_group_num", "layer_types", "local_attention",
    "local_rope_theta", "max_relative_positions", "mlp_bias", "norm_bias", "norm_rel_ebd", "num_hidden_groups",
    "num_key_value_heads", "pos_att_type", "position_buckets", "query_pre_attn_scalar", "relative_attention",
    "relative_attention_max_distance", "relative_attention_num_buckets", "rope_local_base_freq", "rope_parameters",
    "rope_theta", "rotary_emb_base", "share_att_key", "sliding_window", "sliding_window_pattern",
    "use_bidirectional_attention",
)  # fmt: skip
_OTHER_OPTIONS = ("embedding_dropout", "summary_type", "summary_use_proj")
ACTIVATIONS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh")


@dataclass(frozen=True)
class EncoderConfig:
    architecture: Any  # the Architecture that parsed it
    content: Mapping[str, Any]  # of config.json; it is also what is saved
    vocabulary: int
    width: int
    layers: int
    heads: int
    head_width: int
    inner: int  # width of the feed-forward network's hidden layer
    activation: str
    embedding_width: int  # before the projection to `width`
    positions: int  # absolute ones with embeddings; 0: none
    first_position: int  # row of the first token's position
    segments: int  # with embeddings; 0: none
    max_length: int  # tokens of a document
    epsilon: float  # added to variances
    dropout: float
    attention_dropout: float
    pad_id: int
    deviation: float  # standard deviation of random weights

    def option(self, name: str, default: Any) -> Any:
        """Return a field that only some architectures have."""
        assert name in OPTIONS + _OTHER_OPTIONS, f"list {name!r} in OPTIONS if it changes embeddings"
        found = self.content.get(name)
        return default if found is None else found

    def with_dropout(self, rate: float | None) -> "EncoderConfig":
        """Return a copy with another hidden dropout rate (None: unchanged); 0 also disables attention dropout."""
        if rate is None:
            return self
        hidden, inner = map(self.architecture.field, ("hidden_dropout_prob", "attention_probs_dropout_prob"))
        changed = dict.fromkeys((hidden, *self.architecture.other_dropouts), rate)
        attention = self.attention_dropout
        if rate == 0 or inner == hidden:
            attention = changed[inner] = rate
        return dataclasses.replace(self, content={**self.content, **changed}, dropout=rate, attention_dropout=attention)

    @property
    def digest(self) -> str:
        """A checksum of all that changes embeddings: weights fit other numbers of heads and other activations, too."""
        kept = {name: value for name, value in vars(self).items() if name not in _NOT_OF_EMBEDDINGS}
        kept["name"] = self.architecture.name
        kept["options"] = {name: self.content[name] for name in OPTIONS if self.content.get(name) is not None}
        return f"{zlib.crc32(json.dumps(kept, sort_keys=True).encode()):08x}"

    def write(self, folder: Path) -> None:
        text = json.dumps(dict(self.content), indent=2, sort_keys=True, default=str)
        (folder / "config.json").write_text(text + "\n", encoding="utf-8")


class Fields:
    """The fields of a ``config.json``, read with checks under BERT's names."""

    def __init__(self, architecture: Any, content: Mapping[str, Any], where: str) -> None:
        self.content, self._architecture, self._where = content, architecture, where

    def value(self, name: str) -> Any:
        found = self.content.get(self._architecture.field(name))
        return self._architecture.defaults.get(name) if found is None else found

    def whole(self, name: str, least: int = 1) -> int:
        number = self.value(name)
        if type(number) is not int or not least <= number < 1 << 31:
            raise self.misfit(name, f"a whole number of at least {least}", number)
        return number

    def real(self, name: str) -> float:
        number = self.value(name)
        if type(number) not in (int, float) or not 0 <= number < 1e30:
            raise self.misfit(name, "a number of 0 or more", number)
        return float(number)

    def activation(self) -> str:
        name = self.value("hidden_act")
        if not isinstance(name, str) or name not in ACTIVATIONS:
            raise self.misfit("hidden_act", " or ".join(ACTIVATIONS), name)
        return name

    def require(self, name: str, *supported: Any) -> None:
        """Raise an InputError for an option that would change the result; the last supported value is the usual one."""
        if self.content.get(name) not in supported:
            raise self.misfit(name, f"{supported[-1]!r}, the only supported value", self.content[name])

    def misfit(self, name: str, expected: str, received: Any) -> InputError:
        return InputError(
            f"{self._where}: unsupported value of {self._architecture.field(name)}",
            expected=expected,
            received=repr(received)[:80],
            fix="copy the whole folder again, or choose another encoder",
        )
