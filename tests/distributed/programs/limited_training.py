"""Train 200 MB of weights with little private memory; mapped files do not count.

``limited_training.py "over ranks"|"in memory" FOLDER``
"""

import json
import resource
import sys
from pathlib import Path

import numpy as np
from scipy.sparse import csc_matrix

from xmc_tf.data import Features
from xmc_tf.params import RankerParams, RankerPredParams
from xmc_tf.rankers.distributed.training import train_trees_over_ranks
from xmc_tf.rankers.distributed.work_folder import open_work_folder
from xmc_tf.rankers.fit import train_rankers
from xmc_tf.rankers.problems import RankerData
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.tree import LabelTree

LIMIT, DIMENSIONS, DOCUMENTS = 96 << 20, 250, 2000
params = RankerParams.from_json({"hlm_args": {"model_chain": {"threshold": 0.0, "max_iter": 2}}})


def inputs(labels, clusters):
    """Return documents with two labels each, and a tree with one level of clusters."""
    rng = np.random.default_rng(0)
    X = Features(dense=rng.random((DOCUMENTS, DIMENSIONS), np.float32))
    rows = np.repeat(np.arange(DOCUMENTS), 2)
    ones = np.ones(len(rows), np.float32)
    Y = csc_matrix((ones, (rows, rng.integers(0, labels, len(rows)))), shape=(DOCUMENTS, labels))
    Y.data[:] = 1
    above = csc_matrix(np.ones((clusters, 1), np.float32))
    places = np.arange(labels)
    below = csc_matrix((np.ones(labels, np.float32), (places, places * clusters // labels)), shape=(labels, clusters))
    return X, Y, [above, below]


how, folder = sys.argv[1], Path(sys.argv[2])
communicator = choose_communicator()
X, Y, chain = inputs(300, 3)
train_rankers(X, Y, chain, params=params, threads=1)  # compiles or loads the kernels
X, Y, chain = inputs(100_000, 400)
used = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
limit = int(used.split()[1]) * 1024 + LIMIT
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
if how == "in memory":
    model = train_rankers(X, Y, chain, params=params, threads=1)
else:
    work = open_work_folder(communicator, folder / "model", "k" * 64)
    (model,) = train_trees_over_ranks(
        communicator, work, RankerData(X, Y, [LabelTree.from_chain(chain)]), params,
        pred_params=[RankerPredParams()], threads=1,
    )  # fmt: skip
print(json.dumps({"limit": LIMIT, "weights": 8 * model.nr_weights}))
