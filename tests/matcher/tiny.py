"""A data set that is fine-tuned in a second: a tree, documents whose words determine their labels, a tiny encoder."""

import numpy as np
import tensorflow as tf
from scipy.sparse import csr_matrix

from xmc_tf.data import TokenStore
from xmc_tf.tree import LabelTree

WORDS, LABELS, DIM = 40, 12, 8

TREE = LabelTree(splits=([0, 3], [0, 2, 4, 6], [0, 2, 4, 6, 8, 10, 12]), labels=np.arange(LABELS))


def documents(count, seed=0):
    """Return texts as token ids, and their labels: a text of a label contains the words ``3 + 3 * label + k``."""
    rng = np.random.default_rng(seed)
    texts, rows, columns = [], [], []
    for row in range(count):
        labels = rng.choice(LABELS, rng.integers(1, 4), replace=False)
        words = np.concatenate([3 + 3 * labels, 3 + 3 * labels + 1, rng.integers(1, WORDS, rng.integers(0, 6))])
        texts.append(rng.permutation(words).astype(np.int32))
        rows += [row] * len(labels)
        columns += labels.tolist()
    Y = csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=(count, LABELS))
    return texts, Y


def store_of(texts, folder):
    with TokenStore.create(folder) as writer:
        writer.write(texts)
    return TokenStore.open(folder)


class TinyEncoder:
    """An encoder with one layer: it transforms the mean of the words' vectors."""

    def __init__(self, dim=DIM, seed=1, dropout=0.0):
        draw = np.random.default_rng(seed)
        self.dim, self.max_length, self.graphs = dim, 64, {}
        self.words = tf.Variable(draw.normal(size=(WORDS, dim)).astype(np.float32), name="words")
        self.kernel = tf.Variable((np.eye(dim) + 0.1 * draw.normal(size=(dim, dim))).astype(np.float32), name="kernel")
        self.bias = tf.Variable(np.zeros(dim, np.float32), name="bias")
        self.unused = tf.Variable(np.ones(3, np.float32), name="pooler")
        self.dropout = dropout
        self.trainable_variables = [self.words, self.kernel, self.bias]
        self.variables = [*self.trainable_variables, self.unused]

    def __call__(self, ids, mask, training=False, seed=None, packed=True):
        seen = tf.cast(mask, tf.float32)[:, :, None]
        vectors = tf.gather(self.words, ids)
        if training and self.dropout:
            vectors = tf.nn.experimental.stateless_dropout(vectors, self.dropout, seed)
        mean = tf.reduce_sum(vectors * seen, axis=1) / tf.reduce_sum(seen, axis=1)
        return tf.tanh(tf.matmul(mean, self.kernel) + self.bias)

    batch_tokens = 4096

    def embed(self, ids, mask):
        return self.in_graph(tf.constant(ids), tf.constant(mask)).numpy()

    def in_graph(self, ids, mask, training=False, seed=None):
        if training not in self.graphs:
            self.graphs[training] = tf.function(
                lambda ids, mask, seed: self(ids, mask, training, seed),
                input_signature=[*[tf.TensorSpec([None, None], tf.int32)] * 2, tf.TensorSpec([2], tf.int64)],
                autograph=False,
            )
        return self.graphs[training](ids, mask, tf.zeros([2], tf.int64) if seed is None else seed)


def encode(encoder, store, rows):
    """Return the embeddings of some documents."""
    ids, mask = store.padded(rows, pad_id=0)
    return encoder(tf.constant(ids), tf.constant(mask)).numpy()
