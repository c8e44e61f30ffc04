"""The label tree: the tree itself and its files.

What builds a tree is imported from its module, ``xmc_tf.tree.kmeans`` or ``xmc_tf.tree.label_embeddings``: prediction
does not need it.
"""

from xmc_tf.tree.chain_io import load_chain, save_chain
from xmc_tf.tree.label_tree import LabelTree

__all__ = ["LabelTree", "load_chain", "save_chain"]
