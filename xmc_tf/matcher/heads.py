"""The label head of a level during a search: the rows of all nodes, on one rank or sharded over many."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.solo import Solo

SHORTEST = 1e-12  # smallest divisor of an embedding


@dataclass(frozen=True)
class Scaling:
    """The scaling of embeddings. If they are normalized, the factor must be above 1 for scores to reach the margins."""

    normalize: bool = False  # divide each embedding by its length first
    factor: float = 1.0

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """Return the scaled embeddings as float32."""
        vectors = np.asarray(vectors, np.float32)
        if self.normalize:
            vectors = vectors / np.maximum(np.sqrt(np.square(vectors).sum(axis=1, keepdims=True)), SHORTEST)
        return vectors * np.float32(self.factor) if self.factor != 1.0 else vectors


class LevelHead(Protocol):
    """The interface of a level's label head, with a row for each node: its weights, then its bias."""

    scaling: Scaling

    @property
    def nr_nodes(self) -> int:
        """Number of nodes of the level."""

    @property
    def communicator(self) -> Communicator:
        """The communicator of the ranks that hold the rows."""

    def rows_between(self, low: int, high: int) -> np.ndarray:
        """Return the rows from ``low`` to ``high`` (exclusive). All ranks must call it."""


@dataclass(eq=False)
class WholeHead:
    """A label head whose rows are all in this process."""

    rows: np.ndarray  # float32 [nodes, dim + 1]: the weights of each node, then its bias
    scaling: Scaling = Scaling()
    communicator: Communicator = field(default_factory=Solo)

    @property
    def nr_nodes(self) -> int:
        return len(self.rows)

    @property
    def dim(self) -> int:
        return int(self.rows.shape[1]) - 1

    def rows_between(self, low: int, high: int) -> np.ndarray:
        return self.rows[low:high]
