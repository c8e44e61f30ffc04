from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from xmc_tf.collective.tables.bags import Combiner
from xmc_tf.collective.tables.initial_values import Initializer
from xmc_tf.collective.tables.row_exchange import WireFormat, row_bytes
from xmc_tf.common.errors import InputError
from xmc_tf.metrics.table import format_table
from xmc_tf.ranks.partition import Partition, even_rows

# Each rank holds all rows; each rank holds a range of rows; or the rank of this number holds the whole table.
Placement: TypeAlias = Literal["replicated", "rows"] | int
PLACEMENTS = ("replicated", "rows")


@dataclass(frozen=True)
class EmbeddingTable:
    """One of several embedding tables of a model. Pass a list of them to ``CollectiveStrategy.embeddings``.

    Example:
        >>> EmbeddingTable("words", rows=50_000, dim=64, features=("title", "query"), combiner="mean")

    Args:
        name: a unique name, by which checkpoints identify the table.
        rows: the number of rows. Ids are 0 to ``rows - 1``.
        dim: the width of a row.
        features: the names of the inputs that are looked up in this table. Default: one input with the table's name.
        combiner: how to combine the rows of each bag: "sum" or "mean". None returns all rows.
        initializer: the initial values: a Keras initializer, a matrix, or a function from row numbers to rows.
        placement: "replicated", "rows", or the number of the rank that holds the table. Default: the planner chooses.
        ids_per_example: the expected number of ids per example over all features, used by the planner.
    """

    name: str
    rows: int
    dim: int
    features: Sequence[str] = ()
    combiner: Combiner = "sum"
    initializer: Initializer = "uniform"
    placement: Placement | None = None
    ids_per_example: float | None = None

    def __post_init__(self) -> None:
        if self.rows < 1 or self.dim < 1:
            raise InputError(
                f"table {self.name!r} is empty",
                expected="at least one row and one column",
                received=f"({self.rows}, {self.dim})",
            )
        if self.combiner not in (None, "sum", "mean"):
            raise InputError(
                f"wrong combiner of table {self.name!r}", expected="None, 'sum' or 'mean'", received=repr(self.combiner)
            )
        if not isinstance(self.features, tuple | list):
            raise InputError(
                f"wrong features of table {self.name!r}", expected="a tuple of names", received=repr(self.features)
            )
        object.__setattr__(self, "features", tuple(self.features) or (self.name,))

    @property
    def ids(self) -> float:
        """The expected number of ids per example. Default: one per feature."""
        return float(len(self.features)) if self.ids_per_example is None else self.ids_per_example


def check_placement(table: EmbeddingTable, size: int) -> None:
    where = table.placement
    a_rank = isinstance(where, int | np.integer) and not isinstance(where, bool) and 0 <= where < size
    if where is not None and where not in PLACEMENTS and not a_rank:
        raise InputError(
            f"unknown placement of table {table.name!r}",
            expected=f"'replicated', 'rows', or a rank from 0 to {size - 1}",
            received=repr(where),
        )


def partition_of(table: EmbeddingTable, placement: Placement, size: int) -> Partition:
    """Return the partition of a table for a placement. It has one part if all ranks hold all rows."""
    if placement in PLACEMENTS:
        return even_rows(table.rows, size if placement == "rows" else 1)
    return Partition(np.where(np.arange(size + 1) <= int(placement), 0, table.rows))


# The share of all bytes that replicated tables may send. No rank waits for their rows, but all get their gradients.
REPLICATED_SHARE = 0.1
# The part of a rank's share of the traffic that a table on one rank may have, so that the ranks' loads stay even.
ONE_RANK_SHARE = 0.25
_ID_BYTES = 4


@dataclass(frozen=True)
class PlanOptions:
    batch_size: int = 1024  # expected examples of a rank's batch
    slots: int = 2  # of the optimizer, as of Adam
    memory: int | None = None  # maximum bytes of the tables and slots of a rank
    replicate_below: int = 2**20  # bytes; larger tables are not replicated
    wire: WireFormat = "fp32"


@dataclass
class PlacedTable:
    table: EmbeddingTable
    placement: Placement
    reason: str


@dataclass(frozen=True)
class Plan:
    decisions: list[PlacedTable]
    size: int
    options: PlanOptions

    def memory(self) -> np.ndarray:
        return sum((self._memory_of(one) for one in self.decisions), np.zeros(self.size))

    def traffic(self) -> float:
        """Return the expected bytes that a rank sends per step, averaged over the ranks."""
        return sum(expected_bytes(one.table, one.placement, self.size, self.options) for one in self.decisions)

    def text(self) -> str:
        """Format the plan as a table, followed by the reasons for each placement."""
        rows = [
            [
                one.table.name,
                _words(one.placement),
                f"{one.table.rows:,}",
                str(one.table.dim),
                f"{self._memory_of(one).max() / 2**20:.2f}",
                f"{expected_bytes(one.table, one.placement, self.size, self.options) / 2**10:.1f}",
            ]
            for one in self.decisions
        ]
        rows.append(["all", "", "", "", f"{self.memory().max() / 2**20:.2f}", f"{self.traffic() / 2**10:.1f}"])
        header = ("table", "placement", "rows", "dim", "MiB per rank", "KiB sent per step")
        lines = [format_table(header, rows, left=2, width=120)]
        reasons: dict[str, list[str]] = {}
        for one in self.decisions:
            reasons.setdefault(f"{_words(one.placement)}: {one.reason}", []).append(one.table.name)
        lines += ["", *(f"{reason}\n  {', '.join(names)}" for reason, names in reasons.items())]
        return "\n".join(lines)

    def _memory_of(self, one: PlacedTable) -> np.ndarray:
        return memory_of(one.table, one.placement, self.size, self.options.slots)


def make_plan(tables: Sequence[EmbeddingTable], size: int, options: PlanOptions) -> Plan:
    for table in tables:
        check_placement(table, size)
    placed = [PlacedTable(one, one.placement, "set by the table") for one in tables if one.placement is not None]
    free = [table for table in tables if table.placement is None]
    if size == 1:
        placed += [PlacedTable(table, "replicated", "there is one rank") for table in free]
    else:
        small = _replicate_small(free, size, options)
        names = {one.table.name for one in small}
        placed += [*small, *_shard_others([one for one in free if one.name not in names], size, options)]
    decisions = {one.table.name: one for one in placed}
    plan = Plan([decisions[table.name] for table in tables], size, options)
    _fit_memory(plan)
    return plan


def expected_rows(table: EmbeddingTable, batch_size: int) -> float:
    """Return the expected number of distinct rows in a batch if all ids are equally frequent: an upper bound."""
    return table.rows * -np.expm1(batch_size * table.ids * np.log1p(-1.0 / table.rows)) if table.rows > 1 else 1.0


def expected_bytes(table: EmbeddingTable, placement: Placement, size: int, options: PlanOptions) -> float:
    """Return the expected bytes that a rank sends per step for a table, averaged over the ranks."""
    rows = expected_rows(table, options.batch_size)
    if placement == "replicated":  # all ranks get the row numbers and gradients of all others
        return rows * (size - 1) * (2 * _ID_BYTES + 4 * table.dim)
    return rows * (size - 1) / size * (_ID_BYTES + 2 * row_bytes(table.dim, options.wire))


def memory_of(table: EmbeddingTable, placement: Placement, size: int, slots: int) -> np.ndarray:
    # A replicated table has the range of one rank, which all ranks hold.
    rows = np.diff(partition_of(table, placement, size).bounds)
    return np.broadcast_to(rows * table.dim * 4.0 * (1 + slots), size)


def _replicate_small(tables: Sequence[EmbeddingTable], size: int, options: PlanOptions) -> list[PlacedTable]:
    """Replicate the smallest tables as long as their gradients add few bytes."""
    small: list[PlacedTable] = []
    left = REPLICATED_SHARE * sum(expected_bytes(table, "rows", size, options) for table in tables)
    for table in sorted(tables, key=lambda one: (one.rows * one.dim, one.name)):
        left -= expected_bytes(table, "replicated", size, options)
        if left < 0 or 4 * table.rows * table.dim > options.replicate_below:
            break
        reason = "few rows: all gradients are cheap to send, and no rank waits for rows"
        small.append(PlacedTable(table, "replicated", reason))
    return small


def _shard_others(tables: Sequence[EmbeddingTable], size: int, options: PlanOptions) -> Iterator[PlacedTable]:
    """Shard tables with much traffic or memory, and place each remaining table on the rank with the least traffic."""
    traffic = {table.name: expected_bytes(table, "rows", size, options) for table in tables}
    memory = {table.name: 4.0 * table.rows * table.dim for table in tables}
    share = ONE_RANK_SHARE * sum(traffic.values()) / size, ONE_RANK_SHARE * sum(memory.values()) / size
    load = np.zeros(size)
    for table in sorted(tables, key=lambda one: (-traffic[one.name], one.name)):
        if traffic[table.name] > share[0]:
            reason = f"more than {ONE_RANK_SHARE:.0%} of a rank's share of the bytes: all ranks serve it"
            yield PlacedTable(table, "rows", reason)
        elif memory[table.name] > share[1]:
            reason = f"more than {ONE_RANK_SHARE:.0%} of a rank's share of the memory: all ranks hold it"
            yield PlacedTable(table, "rows", reason)
        else:
            owner = int(np.argmin(load))
            load[owner] += traffic[table.name]
            yield PlacedTable(table, owner, "a small share of bytes and memory: one rank serves it")


def _fit_memory(plan: Plan) -> None:
    limit = plan.options.memory
    if limit is None:
        return
    movable = [one for one in plan.decisions if one.table.placement is None and one.placement != "rows"]
    for one in sorted(movable, key=lambda one: -one.table.rows * one.table.dim):
        if plan.memory().max() <= limit:
            return
        one.placement, one.reason = "rows", "would not fit into the memory of a rank otherwise"
    if (most := plan.memory().max()) > limit:
        raise InputError(
            f"the tables do not fit into the memory of {plan.size} ranks",
            expected=f"at most {limit / 2**20:,.1f} MiB per rank",
            received=f"{most / 2**20:,.1f} MiB with {plan.options.slots} optimizer slots",
            fix="use more ranks, smaller tables, or an optimizer with fewer slots",
        )


def _words(placement: Placement) -> str:
    return placement if isinstance(placement, str) else f"rank {placement}"
