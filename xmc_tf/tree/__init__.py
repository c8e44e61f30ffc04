"""The label tree and its files; what builds a tree is imported from its module, because prediction does not need it."""

from xmc_tf.tree.chain_io import load_chain, save_chain
from xmc_tf.tree.label_tree import LabelTree

__all__ = ["LabelTree", "load_chain", "save_chain"]
