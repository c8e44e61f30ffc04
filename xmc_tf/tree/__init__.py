"""The label tree and its files. Import the code that builds trees from its module; prediction does not need it."""

from xmc_tf.tree.chain_io import load_chain, save_chain
from xmc_tf.tree.label_tree import LabelTree

__all__ = ["LabelTree", "load_chain", "save_chain"]
