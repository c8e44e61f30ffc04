"""The description of one of several tables: its shape, its features, and where it is placed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from xmc_tf.collective.tables.bags import Combiner
from xmc_tf.collective.tables.initial_values import Initializer
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.partition import Partition, even_rows

# Each rank holds all rows; each rank holds a range of rows; or the rank of this number holds the whole table.
Placement: TypeAlias = Literal["replicated", "rows"] | int
PLACEMENTS = ("replicated", "rows")


@dataclass(frozen=True)
class EmbeddingTable:
    """One of several embedding tables of a model; see ``CollectiveStrategy.embeddings``.

    Example:
        >>> EmbeddingTable("words", rows=50_000, dim=64, features=("title", "query"), combiner="mean")

    Args:
        name: a unique name; checkpoints identify the table by it.
        rows: the number of rows; ids are 0 to ``rows - 1``.
        dim: the width of a row.
        features: the inputs that are looked up in this table; default: one, with the table's name.
        combiner: "sum" or "mean" of the rows of each bag; None: all rows.
        initializer: the initial values: a Keras initializer, a matrix, or a function from row numbers to rows.
        placement: "replicated", "rows", or the rank that holds the table; default: the planner chooses.
        ids_per_example: the expected number of ids of an example over all features, for the planner.
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
                f"table {self.name!r}",
                expected="at least one row and one column",
                received=f"({self.rows}, {self.dim})",
            )
        if self.combiner not in (None, "sum", "mean"):
            raise InputError(
                f"combiner of table {self.name!r}", expected="None, 'sum' or 'mean'", received=repr(self.combiner)
            )
        if not isinstance(self.features, tuple | list):
            raise InputError(
                f"features of table {self.name!r}", expected="a tuple of names", received=repr(self.features)
            )
        object.__setattr__(self, "features", tuple(self.features) or (self.name,))

    @property
    def ids(self) -> float:
        """The expected number of ids of an example; default: one for each feature."""
        return float(len(self.features)) if self.ids_per_example is None else self.ids_per_example


def check_placement(table: EmbeddingTable, size: int) -> None:
    where = table.placement
    a_rank = isinstance(where, int | np.integer) and not isinstance(where, bool) and 0 <= where < size
    if where is not None and where not in PLACEMENTS and not a_rank:
        raise InputError(
            f"placement of table {table.name!r}",
            expected=f"'replicated', 'rows', or a rank from 0 to {size - 1}",
            received=repr(where),
        )


def partition_of(table: EmbeddingTable, placement: Placement, size: int) -> Partition:
    """Return the rows of each rank in a placement; of one rank, if all ranks hold all rows."""
    if placement in PLACEMENTS:
        return even_rows(table.rows, size if placement == "rows" else 1)
    return Partition(np.where(np.arange(size + 1) <= int(placement), 0, table.rows))
