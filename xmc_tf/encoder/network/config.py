"""The configuration of an encoder: the content of ``config.json`` under field names shared by all architectures."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError

NO_LIMIT = 1 << 20
ACTIVATIONS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh")

# The names of fields that differ from BERT's, by architecture.
_NAMES: dict[str, dict[str, str]] = {
    "distilbert": {
        "hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim", "hidden_act": "activation", "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    },
    "xlnet": {
        "hidden_size": "d_model", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
        "intermediate_size": "d_inner", "hidden_act": "ff_activation", "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "dropout",
    },
    "modernbert": {
        "hidden_act": "hidden_activation", "layer_norm_eps": "norm_eps", "hidden_dropout_prob": "mlp_dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    },
}  # fmt: skip

_BERT = {
    "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512, "type_vocab_size": 2, "initializer_range": 0.02, "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}  # fmt: skip
# The values of fields that a file may leave out, by the names above.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "bert": _BERT,
    "roberta": _BERT | {"vocab_size": 50265, "pad_token_id": 1},
    "xlm-roberta": _BERT | {"pad_token_id": 1},
    "distilbert": _BERT | {"num_hidden_layers": 6, "type_vocab_size": 0},
    "xlnet": _BERT | {
        "vocab_size": 32000, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
        "intermediate_size": 4096, "max_position_embeddings": 0, "type_vocab_size": 0, "pad_token_id": 5,
    },
    "deberta-v2": _BERT | {
        "vocab_size": 128100, "hidden_size": 1536, "num_hidden_layers": 24, "num_attention_heads": 24,
        "intermediate_size": 6144, "type_vocab_size": 0, "layer_norm_eps": 1e-7,
    },
    "electra": _BERT | {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024, "embedding_size": 128},
    "mpnet": _BERT | {"vocab_size": 30527, "type_vocab_size": 0, "pad_token_id": 1},
    "albert": _BERT | {
        "vocab_size": 30000, "hidden_size": 4096, "num_attention_heads": 64, "intermediate_size": 16384,
        "hidden_act": "gelu_new", "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "embedding_size": 128,
    },
    "modernbert": _BERT | {
        "vocab_size": 50368, "num_hidden_layers": 22, "intermediate_size": 1152, "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 8192, "type_vocab_size": 0,
        "layer_norm_eps": 1e-5, "pad_token_id": 50283,
    },
}  # fmt: skip

# The types of ModernBERT's layers, as transformers 5 names them.
_ALL, _NEAR = "full_attention", "sliding_attention"

# The default pooling; "pooler" only if the files have weights for it.
_POOLINGS = {
    "bert": "pooler", "roberta": "pooler", "xlm-roberta": "pooler", "mpnet": "pooler", "albert": "pooler",
    "xlnet": "last",
}  # fmt: skip


@dataclass(frozen=True)
class EncoderConfig:
    architecture: str  # the model type, such as "bert"
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
    pooling: str  # the default

    @classmethod
    def of(cls, given: Any, where: str = "config.json") -> "EncoderConfig":
        """Parse a dictionary or a transformers configuration; ``where`` names it in error messages."""
        content: Mapping[str, Any] = given if isinstance(given, Mapping) else given.to_dict()
        kind = content.get("model_type")
        if not isinstance(kind, str) or kind not in _DEFAULTS:
            raise InputError(
                f"{where} names an unsupported architecture: {kind or 'none'}",
                expected=", ".join(_DEFAULTS),
                fix="choose an encoder of a supported architecture",
            )
        _check_options(content, where)
        defaults = _DEFAULTS[kind]

        def value(name: str) -> Any:
            found = content.get(_name_in_file(kind, name))
            return defaults[name] if found is None else found

        def whole(name: str, least: int = 1) -> int:
            number = value(name)
            if type(number) is not int or not least <= number < 1 << 31:
                raise _misfit(where, _name_in_file(kind, name), f"a whole number of at least {least}", number)
            return number

        def real(name: str) -> float:
            number = value(name)
            if type(number) not in (int, float) or not 0 <= number < 1e30:
                raise _misfit(where, _name_in_file(kind, name), "a number of 0 or more", number)
            return float(number)

        width, heads = whole("hidden_size"), whole("num_attention_heads")
        head_width = content.get("d_head") or content.get("attention_head_size") or width // heads
        if type(head_width) is not int or (kind != "xlnet" and head_width * heads != width) or head_width < 1:
            raise _misfit(where, "num_attention_heads", f"a divisor of {width}", heads)
        activation = value("hidden_act")
        if not isinstance(activation, str) or activation not in ACTIVATIONS:
            raise _misfit(where, _name_in_file(kind, "hidden_act"), " or ".join(ACTIVATIONS), activation)
        embedding_width = content.get("embedding_size") or defaults.get("embedding_size") or width
        if type(embedding_width) is not int or embedding_width < 1:
            raise _misfit(where, "embedding_size", "a whole number above 0", embedding_width)
        rows, pad_id = whole("max_position_embeddings", 0), whole("pad_token_id", -1)
        # RoBERTa counts positions from the padding id on; MPNet's padding id is always 1, regardless of the file.
        first = {"roberta": pad_id + 1, "xlm-roberta": pad_id + 1, "mpnet": 2}.get(kind, 0)
        absolute = kind not in ("xlnet", "modernbert") and content.get("position_biased_input", True)
        return cls(
            architecture=kind, content=content, vocabulary=whole("vocab_size"), width=width,
            layers=whole("num_hidden_layers"), heads=heads, head_width=head_width, inner=whole("intermediate_size"),
            activation=activation, embedding_width=embedding_width, positions=rows if absolute else 0,
            first_position=first, segments=whole("type_vocab_size", 0),
            max_length=NO_LIMIT if kind == "xlnet" else rows - first,
            epsilon=real("layer_norm_eps"), dropout=real("hidden_dropout_prob"),
            attention_dropout=real("attention_probs_dropout_prob"), pad_id=max(pad_id, 0),
            deviation=real("initializer_range"), pooling=_POOLINGS.get(kind, "cls"),
        )  # fmt: skip

    def option(self, name: str, default: Any) -> Any:
        found = self.content.get(name)
        if name == "pos_att_type" and isinstance(found, str):
            return [part.strip() for part in found.lower().split("|")]
        return default if found is None else found

    @property
    def local_layers(self) -> list[bool]:
        """Whether each layer of ModernBERT sees only nearby tokens."""
        if (kinds := self.option("layer_types", None)) is not None:  # of transformers 5
            return [kind == _NEAR for kind in kinds]
        every = self.option("global_attn_every_n_layers", 3)
        return [number % every != 0 for number in range(self.layers)]

    @property
    def rotations(self) -> tuple[float, float]:
        """The rotation bases (theta) of ModernBERT: for the layers that see all tokens, and for the others."""
        if (ropes := self.option("rope_parameters", None)) is not None:  # of transformers 5
            return float(ropes[_ALL]["rope_theta"]), float(ropes[_NEAR]["rope_theta"])
        theta = float(self.option("global_rope_theta", 160000.0))
        return theta, float(self.content.get("local_rope_theta", 10000.0) or theta)

    def with_dropout(self, rate: float | None) -> "EncoderConfig":
        """Return a copy with another hidden dropout rate (None: unchanged); 0 also disables attention dropout."""
        if rate is None:
            return self
        changed = {_name_in_file(self.architecture, "hidden_dropout_prob"): rate}
        attention = self.attention_dropout
        inner = _name_in_file(self.architecture, "attention_probs_dropout_prob")
        if rate == 0 or inner in changed:
            attention = changed[inner] = rate
        if self.architecture == "modernbert":
            changed["embedding_dropout"] = rate
        return dataclasses.replace(self, content={**self.content, **changed}, dropout=rate, attention_dropout=attention)

    def write(self, folder: Path) -> None:
        text = json.dumps(dict(self.content), indent=2, sort_keys=True, default=str)
        (folder / "config.json").write_text(text + "\n", encoding="utf-8")


def _name_in_file(kind: str, name: str) -> str:
    return _NAMES.get(kind, {}).get(name, name)


def _check_options(content: Mapping[str, Any], where: str) -> None:
    """Raise an InputError for unsupported options that would change the result."""
    refused = {
        "position_embedding_type": (None, "absolute"), "is_decoder": (None, False),
        "add_cross_attention": (None, False), "attn_type": (None, "bi"), "bi_data": (None, False),
        "rope_scaling": (None,), "conv_groups": (None, 1),
    }  # fmt: skip
    for name, usual in refused.items():
        if content.get(name) not in usual:
            raise _misfit(where, name, f"{usual[-1]!r}, the only supported value", content[name])
    if content.get("model_type") != "modernbert":
        return
    kinds, ropes = content.get("layer_types"), content.get("rope_parameters")
    listed = isinstance(kinds, list) and len(kinds) == content.get("num_hidden_layers", 22)
    if kinds is not None and not (listed and {*map(str, kinds)} <= {_ALL, _NEAR}):
        raise _misfit(where, "layer_types", f"{_ALL!r} or {_NEAR!r} for each layer", kinds)
    rotates = isinstance(ropes, Mapping) and all(_is_rotation(ropes.get(kind)) for kind in (_ALL, _NEAR))
    if ropes is not None and not rotates:
        raise _misfit(where, "rope_parameters", f"a rope_theta for {_ALL!r} and {_NEAR!r}, without scaling", ropes)


def _is_rotation(given: Any) -> bool:
    """Return whether an entry of ``rope_parameters`` describes a supported rotation."""
    if not isinstance(given, Mapping) or given.get("rope_type", "default") != "default":
        return False
    theta = given.get("rope_theta")
    return isinstance(theta, int | float) and 0 < theta < 1e30


def _misfit(where: str, name: str, expected: str, received: Any) -> InputError:
    return InputError(
        f"{where}: unsupported value of {name}",
        expected=expected,
        received=repr(received)[:80],
        fix="copy the whole folder again, or choose another encoder",
    )
