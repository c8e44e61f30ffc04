"""The two trees: a first one for fine-tuning, a refined one for the rankers."""

from pathlib import Path
from typing import Any

from scipy.sparse import spmatrix

from xmc_tf.data import Features
from xmc_tf.params import HierarchicalKMeansParams
from xmc_tf.tree import LabelTree, build_tree, label_embedding, load_chain, save_chain


def write_tree(folder: Path, tree: LabelTree) -> dict[str, Any]:
    """Puts a tree into a stage's folder."""
    save_chain(folder / "tree", tree)
    return {"said": " > ".join(f"{size:,}" for size in tree.level_sizes)}


def cluster_labels(
    folder: Path,
    Y: spmatrix,
    X: Features | None,
    params: HierarchicalKMeansParams,
    *,
    label_features: Any = None,
    threads: int = -1,
) -> dict[str, Any]:
    """Builds a tree by what the labels are like.

    Args:
        folder: of the stage.
        Y: documents × labels.
        X: documents × features, whose sums stand for the labels where they have no features of their own.
        params: of the clustering.
        label_features: labels × features.
        threads: how many.
    """
    features = label_features if label_features is not None else label_embedding("pifa", X, Y, threads=threads)
    return write_tree(folder, build_tree(features, params))


def read_tree(folder: Path) -> LabelTree:
    """The tree of a stage."""
    return load_chain(folder / "tree")
