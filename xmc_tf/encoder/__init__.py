"""Pre-trained transformers behind one small interface, with their tokenizers outside and inside the graph."""

from xmc_tf.common.process.quiet import muted_stderr

with muted_stderr():  # the first import in a process decides what is seen of it
    import tensorflow as tf  # noqa: F401
    import tf_keras  # noqa: F401
    import transformers  # noqa: F401

from xmc_tf.encoder.encoder import Encoder
from xmc_tf.encoder.token_files import tokenize_file
from xmc_tf.encoder.tokenizer import TextTokenizer
from xmc_tf.encoder.vectors import encode_documents

__all__ = ["Encoder", "TextTokenizer", "encode_documents", "tokenize_file"]
