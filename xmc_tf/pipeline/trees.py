"""The two trees: a first one for fine-tuning, a refined one for the rankers."""

from pathlib import Path
from typing import Any

from scipy.sparse import spmatrix

from xmc_tf.data import Features, as_features
from xmc_tf.params import HierarchicalKMeansParams
from xmc_tf.rankers.distributed.training import threads_of_rank
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.tree import LabelTree, load_chain, save_chain
from xmc_tf.tree.distributed_embeddings import forget_label_embeddings, label_embeddings_over_ranks
from xmc_tf.tree.kmeans import build_tree
from xmc_tf.tree.label_embeddings import label_embedding


def write_tree(folder: Path, tree: LabelTree) -> dict[str, Any]:
    """Write a tree to a stage's folder."""
    save_chain(folder / "tree", tree)
    return {"said": " > ".join(f"{size:,}" for size in tree.level_sizes)}


def cluster_labels(
    folder: Path,
    Y: spmatrix,
    X: Features | None,
    params: HierarchicalKMeansParams,
    communicator: Communicator,
    *,
    label_features: Any = None,
    threads: int = -1,
) -> dict[str, Any]:
    """Build a tree of similar labels; all ranks must call it, and the tree is the one that a single rank builds.

    Args:
        folder: of the stage, which all ranks see.
        Y: documents × labels.
        X: documents × features, whose sums stand for the labels where they have no features of their own; the same on
            all ranks, best mapped from the same files.
        params: of the clustering.
        communicator: the ranks.
        label_features: labels × features.
        threads: of each rank.
    """
    threads = threads_of_rank(communicator, threads)
    if label_features is not None:
        own = as_features(label_features)
    elif communicator.size == 1:
        own = as_features(label_embedding("pifa", X, Y, threads=threads))
    else:
        assert X is not None
        own = label_embeddings_over_ranks(communicator, "pifa", X, Y, folder, threads)
    tree = build_tree(own, params, communicator, threads=threads)

    def write() -> dict[str, Any]:
        forget_label_embeddings(folder)
        return write_tree(folder, tree)

    communicator.barrier()  # a slower rank may still open the embeddings, which rank 0 removes
    record = run_on_all_ranks(communicator, lambda: write() if communicator.rank == 0 else {})
    return communicator.broadcast(record)


def read_tree(folder: Path) -> LabelTree:
    """The tree of a stage."""
    return load_chain(folder / "tree")
