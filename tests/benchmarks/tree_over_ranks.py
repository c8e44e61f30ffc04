"""The time saved when ranks share the wide nodes of the label tree, with one thread per rank on this machine.

    python -m tests.benchmarks.tree_over_ranks --features X.trn.npz [E.npy] --labels Y.trn.npz [--ranks 2] [--copies 4]

The label embeddings come so many times, each time with a little noise in their dense part, and are made into a tree
with sharing (of nodes that are wide enough) and without, in turns. Prints one JSON line: for each, the least seconds of
the whole and of its first levels; how many times as fast sharing is; and whether the trees are the same.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import vstack

from tests.distributed.launch import mpiexec
from xmc_tf.data import load_matrix
from xmc_tf.data.feature_files import load_features
from xmc_tf.data.features import Features
from xmc_tf.params import HierarchicalKMeansParams
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.tree import distributed_kmeans
from xmc_tf.tree.distributed_kmeans import build_tree_over_ranks
from xmc_tf.tree.label_documents import documents_of_labels
from xmc_tf.tree.label_embeddings import sum_documents

# The entries from which a node is shared.
_SIDES = {"shared": distributed_kmeans.SHARED_ENTRIES, "each_for_itself": 1 << 62}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--features", nargs="+", required=True, type=Path, help="X.trn.npz, and dense features beside it"
    )
    parser.add_argument("--labels", required=True, type=Path, help="Y.trn.npz")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.worker:
        print(json.dumps(work(a)), flush=True)
        return
    arguments = ["--worker", "--features", *map(str, a.features), "--labels", str(a.labels)]
    arguments += ["--copies", str(a.copies), "--rounds", str(a.rounds)]
    run = mpiexec("module:tests.benchmarks.tree_over_ranks", *arguments, world=a.ranks, timeout=1800)
    print(json.dumps({"figure": "tree_over_ranks", "ranks": a.ranks, **run.ranks[0].result}))


def work(a: argparse.Namespace) -> dict[str, Any]:
    """Run one rank."""
    communicator = choose_communicator()
    embeddings = _copies(
        sum_documents(load_features(a.features), documents_of_labels(load_matrix(a.labels)), 1), a.copies
    )
    split, levels = distributed_kmeans._split, []

    def timed(*arguments: Any) -> Any:
        began = time.perf_counter()
        level = split(*arguments)
        levels.append(round(time.perf_counter() - began, 3))
        return level

    distributed_kmeans._split = timed
    best: dict[str, dict[str, Any]] = {}
    trees = []
    for _ in range(a.rounds):
        for side, entries in _SIDES.items():
            distributed_kmeans.SHARED_ENTRIES = entries
            levels.clear()
            communicator.barrier()
            began = time.perf_counter()
            trees.append(build_tree_over_ranks(communicator, embeddings, HierarchicalKMeansParams(), threads=1))
            seconds = round(time.perf_counter() - began, 2)
            if seconds < best.get(side, {"seconds": float("inf")})["seconds"]:
                best[side] = {"seconds": seconds, "first_levels": levels[:4]}
    shared, alone = (best[side] for side in _SIDES)
    return {
        "labels": embeddings.nr_rows,
        **best,
        "root_times_as_fast": round(alone["first_levels"][0] / shared["first_levels"][0], 2),
        "times_as_fast": round(alone["seconds"] / shared["seconds"], 2),
        "same": all(tree == trees[0] for tree in trees),
    }


def _copies(embeddings: Features, copies: int) -> Features:
    sparse, dense = embeddings.sparse, embeddings.dense
    if dense is not None:
        noise = np.random.default_rng(0).standard_normal((copies * len(dense), dense.shape[1]), np.float32)
        dense = np.concatenate([dense] * copies) + 0.01 * noise
    return Features(None if sparse is None else vstack([sparse] * copies, format="csr"), dense)


if __name__ == "__main__":
    main()
