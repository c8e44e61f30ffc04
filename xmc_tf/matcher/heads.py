"""The label head of a level as a search sees it: rows of all nodes, on one rank or sharded over many."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.solo import Solo

SHORTEST = 1e-12  # smallest divisor of an embedding


@dataclass(frozen=True)
class Scaling:
    """The scaling of embeddings before they are scored.

    Args:
        normalize: divide each embedding by its length first. Default: no.
        factor: number that embeddings are multiplied by then. Normalized embeddings need a factor above 1, so that
            scores can reach the margins of the losses.
    """

    normalize: bool = False
    factor: float = 1.0

    @property
    def is_identity(self) -> bool:
        """Whether embeddings are left unchanged."""
        return not self.normalize and self.factor == 1.0

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """Return scaled embeddings, float32."""
        vectors = np.asarray(vectors, np.float32)
        if self.normalize:
            vectors = vectors / np.maximum(np.sqrt(np.square(vectors).sum(axis=1, keepdims=True)), SHORTEST)
        return vectors * np.float32(self.factor) if self.factor != 1.0 else vectors


class LevelHead(Protocol):
    """The rows of a level: the weights of each node, then its bias."""

    scaling: Scaling

    @property
    def nr_nodes(self) -> int:
        """Number of nodes of the level."""

    @property
    def dim(self) -> int:
        """Dimension of the embeddings."""

    @property
    def communicator(self) -> Communicator:
        """The ranks that have the rows."""

    def rows_between(self, low: int, high: int) -> np.ndarray:
        """Return the rows from ``low`` to before ``high``; all ranks call it."""


@dataclass(eq=False)
class WholeHead:
    """A head whose rows are all in this process.

    Args:
        rows: float32 [nodes, dim + 1]: the weights of each node, then its bias.
        scaling: scaling of the embeddings.
    """

    rows: np.ndarray
    scaling: Scaling = Scaling()
    communicator: Communicator = field(default_factory=Solo)

    @property
    def nr_nodes(self) -> int:
        """Number of nodes of the level."""
        return len(self.rows)

    @property
    def dim(self) -> int:
        """Dimension of the embeddings."""
        return int(self.rows.shape[1]) - 1

    def rows_between(self, low: int, high: int) -> np.ndarray:
        """Return the rows from ``low`` to before ``high``."""
        return self.rows[low:high]
