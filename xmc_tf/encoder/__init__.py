"""Pre-trained transformer encoders, and tokenizers that can also run in a TensorFlow graph."""

from typing import TYPE_CHECKING, Any

from xmc_tf.encoder.embeddings import encode_documents, encode_windows, groups_of_documents
from xmc_tf.encoder.token_files import tokenize_file
from xmc_tf.encoder.tokenizer import TextTokenizer

if TYPE_CHECKING:
    from xmc_tf.encoder.encoder import Encoder

__all__ = ["Encoder", "TextTokenizer", "encode_documents", "encode_windows", "groups_of_documents", "tokenize_file"]


def __getattr__(name: str) -> Any:
    if name != "Encoder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from xmc_tf.encoder.encoder import Encoder

    return Encoder
