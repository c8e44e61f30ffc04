"""The architectures of encoders by the model type in their configuration."""

from collections.abc import Mapping
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.encoder.architectures.albert import Albert
from xmc_tf.encoder.architectures.bert import Bert, DistilBert, Electra, Roberta, XlmRoberta
from xmc_tf.encoder.architectures.deberta_v2 import DebertaV2
from xmc_tf.encoder.architectures.eurobert import EuroBert
from xmc_tf.encoder.architectures.gemma3 import Gemma3Text
from xmc_tf.encoder.architectures.modernbert import ModernBert
from xmc_tf.encoder.architectures.mpnet import MpNet
from xmc_tf.encoder.architectures.nomic_bert import NomicBert
from xmc_tf.encoder.architectures.qwen3 import Qwen3
from xmc_tf.encoder.architectures.t5 import T5, Mt5
from xmc_tf.encoder.architectures.xlnet import XlNet
from xmc_tf.encoder.network.architecture import Architecture
from xmc_tf.encoder.network.config import EncoderConfig

_ALL: tuple[type[Architecture], ...] = (
    Bert, Roberta, XlmRoberta, DistilBert, XlNet, DebertaV2, Electra, MpNet, Albert, ModernBert, NomicBert, EuroBert,
    Qwen3, Gemma3Text, T5, Mt5,
)  # fmt: skip
ARCHITECTURES: dict[str, Architecture] = {one.name: one() for one in _ALL}


def parse_config(given: Any, where: str = "config.json") -> EncoderConfig:
    """Parse a dictionary or a transformers configuration; ``where`` names it in error messages."""
    content: Mapping[str, Any] = given if isinstance(given, Mapping) else given.to_dict()
    kind = content.get("model_type")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        raise InputError(
            f"{where} names an unsupported architecture: {kind or 'none'}",
            expected=", ".join(ARCHITECTURES),
            fix="choose an encoder of a supported architecture",
        )
    return ARCHITECTURES[kind].config(content, where)
