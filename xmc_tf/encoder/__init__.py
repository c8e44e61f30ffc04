"""Pre-trained transformer encoders, and tokenizers that can also run in a TensorFlow graph.

Names are loaded on first use: configurations of encoders need neither TensorFlow nor the package tokenizers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xmc_tf.encoder.embeddings import encode_documents, encode_windows, frozen_states, groups_of_documents
    from xmc_tf.encoder.encoder import Encoder
    from xmc_tf.encoder.token_files import tokenize_file
    from xmc_tf.encoder.tokenizer import TextTokenizer

__all__ = [
    "Encoder", "TextTokenizer", "encode_documents", "encode_windows", "frozen_states", "groups_of_documents",
    "tokenize_file",
]  # fmt: skip
_MODULES = {
    "Encoder": "encoder", "TextTokenizer": "tokenizer", "tokenize_file": "token_files",
    **dict.fromkeys(("encode_documents", "encode_windows", "frozen_states", "groups_of_documents"), "embeddings"),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
