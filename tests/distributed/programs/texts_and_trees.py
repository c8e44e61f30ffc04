"""Train from texts and label names, over two trees, then make the trees of the pipeline: ``… TEXTS LABELS OUT``."""

import json
import os
import sys
from pathlib import Path

if "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI  # noqa: F401  first, so that it initialises MPI with the thread level it needs

import numpy as np

from xmc_tf.data import Features, as_features, load_matrix
from xmc_tf.features import over_ranks
from xmc_tf.linear import train
from xmc_tf.params import HierarchicalKMeansParams
from xmc_tf.pipeline.trees import cluster_labels
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.tree import kmeans
from xmc_tf.tree.chain_io import save_chain

texts, labels, out = sys.argv[1:]
over_ranks.DOCUMENTS_PER_PIECE = 20
done = {"pieces": 0, "splits": 0}


def counted(module, name, what):
    """Count the calls of a function."""
    work = getattr(module, name)

    def counting(*args, **more):
        done[what] += 1
        return work(*args, **more)

    setattr(module, name, counting)


counted(over_ranks, "save_sparse", "pieces")
counted(kmeans, "split_level", "splits")
communicator, Y = choose_communicator(), load_matrix(labels)
small = ["--max-leaf-size", "3", "--nr-splits", "4", "--seed", "3", "--trees", "2", "-n", "1"]
names = ["--labels", str(Path(labels).with_name("labels.txt")), "--label-names", "true"]
train.main(["-t", texts, "-y", labels, "-m", f"{out}/model", *small, *names])

dense = np.random.default_rng(0).random((Y.shape[0], 8)).astype(np.float32)
both = Features(as_features(load_matrix(Path(labels).with_name("X.trn.npz"))).sparse, dense)
for name, X, own in (("both", both, None), ("own", None, dense[: Y.shape[1]])):
    folder = Path(out) / name
    folder.mkdir(exist_ok=True)
    params = HierarchicalKMeansParams(max_leaf_size=2, nr_splits=2)
    cluster_labels(folder, Y, X, params, communicator, label_features=own, threads=1)
# A number of threads of its own for each rank, and all of them on each node, however small.
wide = np.random.default_rng(0).integers(0, 2, (2000, 40)).astype(np.float32)
tree = kmeans.build_tree(wide, params, communicator, threads=1 + communicator.rank, wide_entries=-1)
if communicator.rank == 0:
    save_chain(f"{out}/wide", tree)
print(json.dumps(done))
