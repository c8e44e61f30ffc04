"""The label tree: label embeddings, balanced k-means, the tree itself, and its files."""

from xmc_tf.tree.chain_io import load_chain, save_chain
from xmc_tf.tree.kmeans import build_tree
from xmc_tf.tree.label_embeddings import label_embedding
from xmc_tf.tree.label_tree import LabelTree

__all__ = ["LabelTree", "build_tree", "label_embedding", "load_chain", "save_chain"]
