"""The processor time of solving the root's problem by a team, compared with a single thread.

    python -m tests.benchmarks.wide_solver --features X.trn.npz --labels Y.trn.npz [--most 2000 5000 20000]
        [--children 16] [--parts 4] [--repeat 3] [--copies 1]

The root's children over all documents: by dual coordinate descent (``solve_task``), and by truncated Newton over parts
of the documents (``wide.py``), all parts by one thread, in turn. How many documents there are to a feature decides how
hard the problem is; so it is measured with the most frequent features alone, rows scaled to length one again.

How many entries a part has to a feature decides what a team's operations on whole tables weigh: with four parts there
are some 60 to 100, as many as the planner has (``ranker_planner.py``). How much of the tables a cache can hold matters
too: with ``--copies 64`` the documents come so many times, each time with features of their own, in random order, so
that the problem is no harder and the tables are so many times as large.

Prints a JSON line for each number of features: processor seconds of both (the medians of some rounds in turn), how
often the team sums and gathers tables and adds small sums, and by how much each one's objective is above the less of
the two (the worst child).

The last line is about tables that no cache holds: seconds of one thread for all operations on the rows of a million
features that a step of conjugate gradients takes, and those that each part adds.
"""

import argparse
import json
import time
from collections import Counter
from pathlib import Path

import numpy as np
import scipy.sparse as smat

from xmc_tf.data import as_features
from xmc_tf.linear.kernels.emit import Columns
from xmc_tf.linear.kernels.lanes import WIDTH, aligned_zeros
from xmc_tf.linear.problems import LevelProblem, sorted_csc
from xmc_tf.linear.tasks import Instances, solve_task
from xmc_tf.linear.wide import parts as wide_parts
from xmc_tf.linear.wide.kernels import combine, precondition, products
from xmc_tf.linear.wide.parts import solve_wide
from xmc_tf.linear.wide.solver import State
from xmc_tf.linear.wide.team import Alone
from xmc_tf.params import HierarchicalKMeansParams, LinearLevelParams
from xmc_tf.tree.kmeans import build_tree
from xmc_tf.tree.label_embeddings import label_embedding


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--most", type=int, nargs="+", default=[2000, 5000, 20000], help="features; 0: all")
    parser.add_argument("--children", type=int, default=16, help="of the root")
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--copies", type=int, default=1)
    a = parser.parse_args()
    X, Y = smat.load_npz(a.features).tocsr(), smat.load_npz(a.labels).tocsc()
    positives = _children(X, Y, a.children)
    for most in [200, *a.most]:  # the first compiles the kernels
        copies = _copies(_frequent(X, most), positives, a.copies if most != 200 else 1)
        line = compare(*copies, a.parts, a.repeat if most != 200 else 1)
        if most != 200:
            print(json.dumps({"figure": "wide_solver", "children": a.children, "parts": a.parts, **line}), flush=True)
    print(json.dumps({"figure": "wide_tables", **table_seconds(1_000_000)}), flush=True)


def compare(X: smat.csr_matrix, positives: smat.csc_matrix, parts: int, rounds: int) -> dict[str, float | int]:
    """Run both solvers on one problem."""
    root = smat.csc_matrix(np.ones((positives.shape[1], 1), np.float32))
    problem = LevelProblem(positives, root, None, None, True, LinearLevelParams(threshold=0.0))
    instances, children = Instances(as_features(X)), np.arange(positives.shape[1])
    seconds = []
    for _ in range(rounds):
        team = _Counting(parts)
        begun = time.thread_time()
        alone = solve_task(instances, problem, 0, children, 0)
        between = time.thread_time()
        together = solve_wide(instances, problem, 0, children, team)
        seconds.append((between - begun, time.thread_time() - between))
    alone_s, team_s = np.median(seconds, axis=0)
    values = np.array([_objectives(X, positives, one) for one in (alone, together)])
    above = (values / values.min(0) - 1).max(1)
    return {
        "documents": X.shape[0],
        "features": X.shape[1],
        "entries": X.nnz,
        "alone_s": round(alone_s, 2),
        "team_s": round(team_s, 2),
        "team_over_alone": round(float(np.median([together / alone for alone, together in seconds])), 3),
        **team.counts,
        "alone_above": round(above[0], 5),
        "team_above": round(above[1], 5),
    }


def table_seconds(rows: int) -> dict[str, float | int]:
    """Return the seconds of operations on complete tables: on own rows, and what each part adds."""
    v, every = aligned_zeros(rows + 1), np.ones(WIDTH)
    v[:] = 1
    own, curves = [], {1: [], 8: []}
    for _ in range(5):
        begun = time.thread_time()
        for _ in range(4):
            combine(every, v, v, v)
        precondition(v, v[:, 0].copy(), every, v)
        products(v, v), products(v, v)
        own.append(time.thread_time() - begun)
        v[:] = 1
    before, wide_parts.DEAL = wide_parts.DEAL, 1
    for parts, seconds in curves.items():
        X, Y = np.full((parts, rows), 1e-3, np.float32), np.eye(parts, WIDTH, dtype=np.float32)
        root = smat.csc_matrix(np.ones((WIDTH, 1), np.float32))
        problem = LevelProblem(smat.csc_matrix(Y), root, None, None, True, LinearLevelParams(threshold=0.0))
        instances = Instances(as_features(smat.csr_matrix(X)))
        sums = wide_parts.PartSums(instances, problem, 0, np.arange(WIDTH), Alone(parts))
        sums.open(np.arange(WIDTH))
        sums.gradient(v)
        for _ in range(5):
            begun = time.thread_time()
            sums.curve(v, 2, 1)  # every other document, from the second on: of one there is none
            seconds.append(time.thread_time() - begun)
    wide_parts.DEAL = before
    once, eight = (float(np.median(curves[parts])) for parts in (1, 8))
    a_part = (eight - once) / 7
    own_s = float(np.median(own)) + once - a_part
    return {"rows": rows, "own_rows_s": round(own_s, 4), "a_part_s": round(a_part, 4)}


class _Counting(Alone):
    """A team of one, which counts what a team has to exchange."""

    def __init__(self, parts: int) -> None:
        super().__init__(parts)
        self.counts: Counter[str] = Counter()

    def gather(self, table: np.ndarray) -> None:
        self.counts["small_sums" if table.dtype == np.float64 else "gathered_tables"] += 1
        super().gather(table)

    def reduce(self, table: np.ndarray) -> None:
        self.counts["summed_tables"] += 1
        super().reduce(table)

    def keep(self, name: str, state: State) -> None:
        self.counts["newton_steps"] = state.step


def _objectives(X: smat.csr_matrix, positives: smat.csc_matrix, columns: Columns) -> np.ndarray:
    """Half the weights' squares, and the squared hinge losses, for each child in the order of its number."""
    out = np.zeros(positives.shape[1])
    for place in range(len(out)):
        label = int(columns.labels[place])
        span = slice(columns.indptr[place], columns.indptr[place + 1])
        w = np.zeros(X.shape[1] + 1)
        w[columns.features[span]] = columns.weights[span]
        signs = np.where(positives[:, [label]].toarray().ravel() > 0, 1.0, -1.0)
        slack = np.maximum(1 - signs * (X @ w[:-1] + w[-1]), 0)
        out[label] = 0.5 * w @ w + slack @ slack
    return out


def _children(X: smat.csr_matrix, Y: smat.csc_matrix, children: int) -> smat.csc_matrix:
    """Return the labels of the root's children."""
    embedding = label_embedding("pifa", as_features(X), Y)
    tree = build_tree(embedding, HierarchicalKMeansParams(nr_splits=children, max_leaf_size=-(-Y.shape[1] // children)))
    return sorted_csc(Y @ tree.to_chain()[-1])


def _copies(X: smat.csr_matrix, positives: smat.csc_matrix, copies: int) -> tuple[smat.csr_matrix, smat.csc_matrix]:
    """Return the documents several times with different features, shuffled."""
    if copies == 1:
        return X, positives
    order = np.random.default_rng(0).permutation(copies * X.shape[0])
    rows = smat.vstack([positives] * copies, format="csr")[order]
    wide = smat.block_diag([X] * copies, format="csr")[order]
    return smat.csr_matrix(wide).astype(np.float32), sorted_csc(rows)


def _frequent(X: smat.csr_matrix, most: int) -> smat.csr_matrix:
    """Return the features that the most documents have, rows scaled to length one."""
    if not most:
        return X
    count = np.bincount(X.indices, minlength=X.shape[1])
    kept = X[:, np.sort(np.argsort(-count, kind="stable")[:most])].tocsr()
    length = np.sqrt(np.asarray(kept.multiply(kept).sum(1)).ravel())
    scale = smat.diags_array(1 / np.where(length > 0, length, 1)).astype(np.float32)
    return smat.csr_matrix(scale @ kept).astype(np.float32)


if __name__ == "__main__":
    main()
