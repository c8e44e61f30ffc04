"""Wide tasks: the division of their documents into parts, and their solution by a team."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np

from xmc_tf.common.compiled import kernel
from xmc_tf.linear.kernels import emit
from xmc_tf.linear.kernels.emit import Columns
from xmc_tf.linear.kernels.gather import ClusterProblem, gather
from xmc_tf.linear.kernels.lanes import WIDTH, aligned_zeros
from xmc_tf.linear.problems import LevelProblem
from xmc_tf.linear.tasks import Instances, matched_rows
from xmc_tf.linear.wide import kernels
from xmc_tf.linear.wide.solver import State, minimize
from xmc_tf.linear.wide.team import Team

_MOST_FEATURES = 0.25  # with more than this share of all features, a part uses the task's tables
DEAL = 256  # this many neighbouring documents stay together, so that a part reads whole pages of the features
_TOLERANCE = 0.03  # times eps: as close to the minimum as the dual solver with that eps

_new_columns, _emit_column = kernel(emit.new_columns), kernel(emit.emit_column)


def solve_wide(
    instances: Instances, problem: LevelProblem, cluster: int, labels: np.ndarray, team: Team, name: str = ""
) -> Columns:
    """Solve a wide task. Every member of the team calls it, and all get the columns.

    Args:
        instances: the training features.
        problem: the task's level.
        cluster: the task's cluster.
        labels: the task's labels.
        team: the team, as seen by this member.
        name: name under which the team saves states.
    """
    params = problem.params
    sums = PartSums(instances, problem, cluster, labels, team)
    dual = params.solver_type.endswith("_DUAL")
    tolerance = _TOLERANCE * (params.eps if dual else params.newton_eps)
    columns = _new_columns(len(labels))
    nothing = sums.whole_table()
    for begin in range(0, len(labels), WIDTH):
        here = labels[begin : begin + WIDTH]
        sums.open(here)
        state = State(sums.size)
        state_name = f"{name}.{begin}"
        team.resume(state_name, state)
        w = minimize(sums, state, len(here), tolerance, partial(team.keep, state_name)).copy()
        for lane, label in enumerate(here):
            columns = _emit_column(
                columns, label, lane, nothing, instances.nr_sparse, instances.dense.shape[1], w,
                aligned_zeros(0), np.zeros((0, WIDTH), np.int8), sums.bias > 0, params.threshold,
                params.nonzeros_limit or 0,
            )  # fmt: skip
    used = int(columns.indptr[columns.filled[0]])
    return columns._replace(features=columns.features[:used].copy(), weights=columns.weights[:used].copy())


class _Part:
    """A part of the documents, with the signs, penalties and margins of the labels in the lanes."""

    def __init__(self, instances: Instances, rows: np.ndarray, in_match: np.ndarray, bias: float, costs: bool) -> None:
        self.problem = gather(
            instances.indptr, instances.indices, instances.data, rows, instances.slot(), False,
            instances.dense_square, bias,
        )  # fmt: skip
        n, nr_dense = len(rows), instances.dense.shape[1]
        self.in_match = in_match
        # A part with most of the features uses the task's tables; one with few has small tables of its own.
        self.all_rows = len(self.problem.names) > _MOST_FEATURES * instances.nr_sparse
        if self.all_rows:
            self.problem = self.problem._replace(
                features=self.problem.names[self.problem.features],
                names=np.arange(instances.nr_sparse, dtype=np.int32),
            )
        # Rows of the task's tables that are in the part's own: its sparse features, the bias, the dense features.
        self.places = np.concatenate(
            [self.problem.names, instances.nr_sparse + np.arange(nr_dense + 1)]
        ).astype(np.int64)  # fmt: skip
        self.signs = np.zeros((n, WIDTH), np.int8)
        self.cost = aligned_zeros(max(n, 2) if costs else 1)
        self.penalty, self.inside, self.margins = aligned_zeros(n), aligned_zeros(n), aligned_zeros(n)


class PartSums:
    """Sums over the documents of a task, part by part; implements :class:`~xmc_tf.linear.wide.solver.Sums`."""

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
            for p in team.own_parts
        ]
        self._of_part = dict(zip(team.own_parts, self._parts, strict=True))
        bounds = team.bounds(self.size)
        self.own = slice(bounds[team.number], bounds[team.number + 1])
        # Begin and end of each own block among the own rows.
        share = team.parts // team.members
        edges = team.blocks(self.size)[team.number * share : (team.number + 1) * share + 1] - self.own.start
        self._blocks = [slice(begin, end) for begin, end in pairwise(edges.tolist())]
        diagonal = np.zeros((self.own.stop - self.own.start, 1), np.float32)
        team.add_tables(self._squares, diagonal)
        self.diagonal = diagonal[:, 0]
        if self.own.start <= instances.nr_sparse < self.own.stop:
            self.diagonal[instances.nr_sparse - self.own.start] = self._documents * self.bias**2
        # Used again in every pass: clearing memory is much faster than allocating it.
        self._whole = aligned_zeros(self.size)
        most = max((len(one.places) for one in self._parts if not one.all_rows), default=0)
        self._known, self._sums = aligned_zeros(most), aligned_zeros(most)
        self._spare: list[np.ndarray] = []

    def open(self, labels: np.ndarray) -> None:
        """Load labels into the lanes."""
        self._lanes = len(labels)
        self._whole[:] = 0  # clear values of previous labels in lanes that are unused now
        params = self._level.params
        for one in self._parts:
            kernels.open_lanes(
                one.problem, one.in_match, labels, self._level.positives, one.signs, one.cost, params.Cp, params.Cn,
                one.penalty,
            )  # fmt: skip

    def gradient(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See :class:`~xmc_tf.linear.wide.solver.Sums`."""
        small = {}

        def table_of(part: int) -> np.ndarray:
            one, total = self._of_part[part], np.zeros((1, WIDTH))
            out = self._cleared(one)
            kernels.gradient(
                one.problem, self._instances.dense, self.bias, one.signs, one.penalty, self._rows(one, w), out,
                one.inside, one.margins, total,
            )  # fmt: skip
            small[part] = np.stack([total[0], one.inside.sum(0, dtype=np.float64)])
            return self._table(one, out)

        slope = self._added(table_of)
        loss, inside = self._team.add_of_parts([small[part] for part in self._team.own_parts])
        return slope, loss, inside / max(self._documents, 1)

    def curve(self, v: np.ndarray, every: int, first: int) -> np.ndarray:
        """See :class:`~xmc_tf.linear.wide.solver.Sums`."""
        v = self.whole(v)

        def table_of(part: int) -> np.ndarray:
            one = self._of_part[part]
            out = self._cleared(one)
            kernels.curve(
                one.problem, self._instances.dense, self.bias, one.inside, every, first, self._rows(one, v), out
            )  # fmt: skip
            return self._table(one, out)

        return self._added(table_of)

    def along(self, direction: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """See :class:`~xmc_tf.linear.wide.solver.Sums`."""
        small = []
        for one in self._parts:
            totals = np.zeros((len(lengths), WIDTH))
            kernels.along(
                one.problem, self._instances.dense, self.bias, one.signs, one.penalty, one.margins,
                self._rows(one, direction), lengths, totals,
            )  # fmt: skip
            small.append(totals)
        return self._team.add_of_parts(small)

    def whole(self, own: np.ndarray) -> np.ndarray:
        """See :class:`~xmc_tf.linear.wide.solver.Sums`; members exchange only the lanes in use."""
        every = self._lanes == WIDTH
        table = self._whole if every else np.empty((self.size, self._lanes), np.float32)
        table[self.own] = own[:, : self._lanes]
        self._team.gather(table)
        if not every:
            self._whole[:, : self._lanes] = table
        return self._whole

    def products(self, *pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """See :class:`~xmc_tf.linear.wide.solver.Sums`."""
        return self._team.add_of_blocks(
            [np.stack([kernels.products(a[block], b[block]) for a, b in pairs]) for block in self._blocks]
        )

    def whole_table(self) -> ClusterProblem:
        """Return a problem without documents that has all features: it describes the rows of the task's tables."""
        names = np.arange(self._instances.nr_sparse, dtype=np.int32)
        no_rows, no_names = np.zeros(1, np.int64), np.zeros(0, np.int32)
        empty = np.zeros(0, np.float32)
        return ClusterProblem(no_names, no_rows, no_names, empty, empty, empty, names, no_rows, no_names, empty)

    def _rows(self, one: _Part, whole: np.ndarray) -> np.ndarray:
        """Return the part's rows of a table, in memory that the next call overwrites."""
        if one.all_rows:
            return whole
        return whole.take(one.places, axis=0, out=self._known[: len(one.places)], mode="clip")

    def _cleared(self, one: _Part) -> np.ndarray:
        """Return a zeroed table for the part's sums."""
        if one.all_rows:
            out = self._spare.pop() if self._spare else aligned_zeros(self.size)
        else:
            out = self._sums[: len(one.places)]
        out[:] = 0
        return out

    def _table(self, one: _Part, sums: np.ndarray) -> np.ndarray:
        """Return the part's sums as a table of the task, with the lanes in use."""
        if one.all_rows and self._lanes == WIDTH:
            return sums
        table = np.zeros((self.size, self._lanes), np.float32)
        if one.all_rows:
            table[:] = sums[:, : self._lanes]
            self._spare.append(sums)
        else:
            table[one.places] = sums[:, : self._lanes]
        return table

    def _added(self, table_of: Callable[[int], np.ndarray]) -> np.ndarray:
        """Return the own rows of the sum of all parts' tables."""
        out = aligned_zeros(self.own.stop - self.own.start)
        self._team.add_tables(table_of, out, self._done)
        return out

    def _done(self, table: np.ndarray) -> None:
        """Keep a table for another part."""
        if table.shape == self._whole.shape:
            self._spare.append(table)

    def _squares(self, part: int) -> np.ndarray:
        """Return the sums of squares of one part."""
        one = self._of_part[part]
        own, table = np.zeros(len(one.places), np.float32), np.zeros((self.size, 1), np.float32)
        kernels.squares(one.problem, self._instances.dense, own)
        table[one.places, 0] = own
        return table
