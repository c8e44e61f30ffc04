"""Build trees and train rankers: a first tree for fine-tuning, then the trees that the rankers use."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from scipy.sparse import spmatrix

from xmc_tf.data import Features, as_features
from xmc_tf.params import HierarchicalKMeansParams, RankerParams, RankerPredParams
from xmc_tf.rankers.distributed.training import rankers_over_ranks, threads_of_rank
from xmc_tf.rankers.fit import train_trees
from xmc_tf.rankers.problems import RankerData
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.ranks.solo import Solo
from xmc_tf.tree import LabelTree, load_chain, save_chain
from xmc_tf.tree.kmeans import build_tree
from xmc_tf.tree.label_embeddings import forget_label_embeddings, label_embedding, label_embeddings_over_ranks


def train_and_save_rankers(
    X: Features,
    Y: spmatrix,
    trees: Sequence[LabelTree],
    params: RankerParams,
    pred_params: Sequence[RankerPredParams],  # defaults for the rankers of each tree
    communicator: Communicator,
    folder: Path,
    *,
    threads: int = -1,
    seed: int = 0,
    place: int = 0,  # of the first tree in the ensemble
) -> dict[str, Any]:
    """Train the rankers, and save them to ``folder/ranker``, ``folder/ensemble/1/ranker`` and so on.

    All ranks must call this function.
    """
    places = range(place, place + len(trees))
    folders = [folder / (f"ensemble/{number}/ranker" if number else "ranker") for number in places]
    if communicator.size > 1:
        for one in folders:
            run_on_all_ranks(communicator, partial(one.parent.mkdir, parents=True, exist_ok=True))
        # All files of the stage's folder, also those of an interrupted run, belong to these inputs.
        models = rankers_over_ranks(
            communicator, folders, RankerData(X, Y, trees), key="rankers", params=params,
            pred_params=pred_params, threads=threads, seed=seed,
        )  # fmt: skip
    else:
        models = train_trees(
            X, Y, [tree.to_chain() for tree in trees], params=params, pred_params=pred_params, threads=threads,
            seed=seed,
        )  # fmt: skip
        for one, model in zip(folders, models, strict=True):
            one.parent.mkdir(parents=True, exist_ok=True)
            model.save(one)
    weights = sum(model.nr_weights for model in models)
    size = f"{models[0].depth} levels" if len(models) == 1 else f"{len(models)} trees"
    if communicator.rank == 0:
        for number, one, tree in zip(places, folders, trees, strict=True):
            if number:
                save_chain(one.parent / "tree", tree)
    return {
        "nr_trees": len(models),
        "nr_features": models[0].nr_features,
        "nr_dense": models[0].nr_dense,
        "nr_weights": weights,
        "summary": f"{weights:,} weights in {size}",
    }


def write_tree(folder: Path, tree: LabelTree) -> dict[str, Any]:
    """Write a tree to a stage's folder, and return the stage's record."""
    save_chain(folder / "tree", tree)
    return {"summary": " > ".join(f"{size:,}" for size in tree.level_sizes)}


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
    """Build a label tree from ``label_features``, or else features of the labels' documents; write it to ``folder``.

    All ranks must call this function with the same X.
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


def trees_over(
    X: Features, Y: spmatrix, options: Sequence[HierarchicalKMeansParams], threads: int = -1
) -> list[LabelTree]:
    """Return label trees built from documents. Each rank builds the same trees without communication."""
    embeddings = as_features(label_embedding("pifa", X, Y, threads=threads))
    return [build_tree(embeddings, one, Solo(), threads=threads) for one in options]


def read_tree(folder: Path) -> LabelTree:
    """Load the tree that :func:`write_tree` has written to a stage's folder."""
    return load_chain(folder / "tree")
