"""Wide tasks: which they are, how their documents are dealt into parts, and how a team solves one."""

from functools import partial
from typing import Protocol

import numpy as np

from xmc_tf.linear.kernels import wide as kernels
from xmc_tf.linear.kernels.emit import Columns, emit_column, new_columns
from xmc_tf.linear.kernels.gather import ClusterProblem, gather
from xmc_tf.linear.kernels.lanes import WIDTH, aligned_zeros
from xmc_tf.linear.problems import LevelProblem
from xmc_tf.linear.tasks import Instances, matched_rows
from xmc_tf.linear.wide import State, minimise

DEAL = 256  # neighbouring documents stay together, so that a part reads whole pages of the features
_TOLERANCE = 0.03  # times eps: as near the minimum as the dual solver comes with that eps


class Team(Protocol):
    """Those who solve a task together; every method gives every member the same.

    Attributes:
        parts: of how many the task consists.
        mine: this member's.
        first: whether this member writes what all know.
    """

    parts: int
    mine: range
    first: bool

    def total(self, of_parts: list[np.ndarray]) -> np.ndarray:
        """The sum over all parts, in their order; each member gives those of its own."""

    def resume(self, name: str, state: State) -> None:
        """Brings a state to where an earlier run has left it."""

    def keep(self, name: str, state: State) -> None:
        """Remembers a state."""


def solve_wide(
    instances: Instances, problem: LevelProblem, cluster: int, labels: np.ndarray, team: Team, name: str = ""
) -> Columns:
    """Solves a wide task; every member of the team calls it, and all receive the columns.

    Args:
        instances: the training features.
        problem: the task's level.
        cluster: the task's cluster.
        labels: the task's labels.
        team: who solves it.
        name: by which the team remembers states.
    """
    params = problem.params
    sums = _PartSums(instances, problem, cluster, labels, team)
    dual = params.solver_type.endswith("_DUAL")
    tolerance = _TOLERANCE * (params.eps if dual else params.newton_eps)
    columns = new_columns(len(labels))
    nothing = sums.whole_table()
    for begin in range(0, len(labels), WIDTH):
        here = labels[begin : begin + WIDTH]
        sums.open(here)
        state = State(sums.size)
        group = f"{name}.{begin}"
        team.resume(group, state)
        w = minimise(sums, state, len(here), tolerance, partial(team.keep, group)).copy()
        for lane, label in enumerate(here):
            columns = emit_column(
                columns, label, lane, nothing, instances.nr_sparse, instances.dense.shape[1], w,
                aligned_zeros(0), np.zeros((0, WIDTH), np.int8), sums.bias > 0, params.threshold,
                params.nonzeros_limit or 0,
            )  # fmt: skip
    used = int(columns.indptr[columns.filled[0]])
    return columns._replace(features=columns.features[:used].copy(), weights=columns.weights[:used].copy())


class _Part:
    """Some of the documents, and what the lanes know of them."""

    def __init__(self, instances: Instances, rows: np.ndarray, in_match: np.ndarray, bias: float, costs: bool) -> None:
        self.problem = gather(
            instances.indptr, instances.indices, instances.data, rows, instances.slot(), False,
            instances.dense_square, bias,
        )  # fmt: skip
        n, nr_dense = len(rows), instances.dense.shape[1]
        self.in_match = in_match
        # Rows of the task's tables that the part's own have: its sparse features, the bias, the dense features.
        self.places = np.concatenate(
            [self.problem.names, instances.nr_sparse + np.arange(nr_dense + 1)]
        ).astype(np.int64)  # fmt: skip
        self.signs = np.zeros((n, WIDTH), np.int8)
        self.cost = aligned_zeros(max(n, 2) if costs else 1)
        self.penalty, self.inside, self.margins = aligned_zeros(n), aligned_zeros(n), aligned_zeros(n)

    def table(self, whole: np.ndarray) -> np.ndarray:
        """The part's rows of one of the task's tables."""
        own = aligned_zeros(len(self.places))
        own[:] = whole[self.places]
        return own


class _PartSums:
    """Sums over the documents of a task, part by part."""

    def __init__(
        self, instances: Instances, problem: LevelProblem, cluster: int, labels: np.ndarray, team: Team
    ) -> None:
        self._instances, self._level, self._team, self._lanes = instances, problem, team, 0
        self.bias = max(problem.params.bias, 0.0)
        self.size = instances.nr_sparse + 1 + instances.dense.shape[1]
        rows, in_match = matched_rows(instances, problem, cluster, labels)
        self._documents = len(rows)
        part = np.arange(len(rows)) // DEAL % team.parts
        self._parts = [
            _Part(instances, rows[part == p], in_match[part == p], self.bias, problem.costs is not None)
            for p in team.mine
        ]
        squares = []
        for one in self._parts:
            own = np.zeros(len(one.places), np.float32)
            kernels.squares(one.problem, instances.dense, own)
            squares.append(np.zeros(self.size, np.float32))
            squares[-1][one.places] = own
        self.diagonal = team.total(squares)
        self.diagonal[instances.nr_sparse] = self._documents * self.bias**2

    def open(self, labels: np.ndarray) -> None:
        """Puts labels into the lanes."""
        self._lanes = len(labels)
        params, (indptr, indices, cost) = self._level.params, self._level.kernel_labels
        for one in self._parts:
            kernels.open_lanes(
                one.problem, one.in_match, labels, indptr, indices, cost, one.signs, one.cost, params.Cp, params.Cn,
                one.penalty,
            )  # fmt: skip

    def gradient(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See :class:`~xmc_tf.linear.wide.Sums`."""
        tables, small = [], []
        for one in self._parts:
            out, total = aligned_zeros(len(one.places)), np.zeros((1, WIDTH))
            kernels.gradient(
                one.problem, self._instances.dense, self.bias, one.signs, one.penalty, one.table(w), out, one.inside,
                one.margins, total,
            )  # fmt: skip
            tables.append(self._whole(one, out))
            small.append(np.stack([total[0], one.inside.sum(0, dtype=np.float64)]))
        loss, inside = self._team.total(small)
        return self._total(tables), loss, inside / max(self._documents, 1)

    def curve(self, v: np.ndarray, every: int, first: int) -> np.ndarray:
        """See :class:`~xmc_tf.linear.wide.Sums`."""
        tables = []
        for one in self._parts:
            out = aligned_zeros(len(one.places))
            kernels.curve(
                one.problem, self._instances.dense, self.bias, one.inside, every, first, one.table(v), out
            )  # fmt: skip
            tables.append(self._whole(one, out))
        return self._total(tables)

    def along(self, direction: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """See :class:`~xmc_tf.linear.wide.Sums`."""
        small = []
        for one in self._parts:
            totals = np.zeros((len(lengths), WIDTH))
            kernels.along(
                one.problem, self._instances.dense, self.bias, one.signs, one.penalty, one.margins,
                one.table(direction), lengths, totals,
            )  # fmt: skip
            small.append(totals)
        return self._team.total(small)

    def whole_table(self) -> ClusterProblem:
        """A problem without documents, whose features are all features: how the task's tables are laid out."""
        names = np.arange(self._instances.nr_sparse, dtype=np.int32)
        no_rows, no_names = np.zeros(1, np.int64), np.zeros(0, np.int32)
        empty = np.zeros(0, np.float32)
        return ClusterProblem(no_names, no_rows, no_names, empty, empty, empty, names, no_rows, no_names, empty)

    def _whole(self, one: _Part, own: np.ndarray) -> np.ndarray:
        whole = np.zeros((self.size, self._lanes), np.float32)
        whole[one.places] = own[:, : self._lanes]
        return whole

    def _total(self, tables: list[np.ndarray]) -> np.ndarray:
        """Only the lanes in use travel."""
        out = aligned_zeros(self.size)
        out[:, : self._lanes] = self._team.total(tables)
        return out
