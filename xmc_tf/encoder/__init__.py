"""Pre-trained transformers behind one small interface, with tokenizers that also run in the graph."""

from xmc_tf.common.process.quiet import muted_stderr

with muted_stderr():  # only the first import in a process prints warnings
    import tensorflow as tf  # noqa: F401

from xmc_tf.encoder.embeddings import encode_documents, encode_windows, groups_of_documents
from xmc_tf.encoder.encoder import Encoder
from xmc_tf.encoder.token_files import tokenize_file
from xmc_tf.encoder.tokenizer import TextTokenizer

__all__ = ["Encoder", "TextTokenizer", "encode_documents", "encode_windows", "groups_of_documents", "tokenize_file"]
