"""The interface of an engine: the collective operations that training steps use, in graphs and outside of them."""

from collections.abc import Sequence
from typing import Protocol

import tensorflow as tf


class Engine(Protocol):
    """The collective operations of a rank.

    All ranks must call them in the same order with the same names. Tensors are of types that the engine can send; see
    ``operations.py``, which callers use. Half precision and static shapes are its business.
    """

    counts_numbers: bool
    """Whether an exchange counts numbers in 32 bits, so that their number is limited; otherwise it counts rows."""

    @property
    def rank(self) -> int:
        """The number of this rank."""

    @property
    def size(self) -> int:
        """The number of ranks."""

    def alltoall(self, tensor: tf.Tensor, splits: tf.Tensor, name: str) -> tuple[tf.Tensor, tf.Tensor]:
        """Send ``splits[r]`` rows to each rank r; return the rows received and their number from each rank."""

    def sums(self, tensors: Sequence[tf.Tensor], name: str) -> Sequence[tf.Tensor]:
        """Return the sums over the ranks of tensors of one type, bitwise equal on all ranks."""

    def allgather(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """Return the rows of all ranks, in rank order; ranks may have different numbers of rows."""
