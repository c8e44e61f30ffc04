"""The training of a linear model in one process: in memory, or of large data with its weights written as solved."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from scipy.sparse import csr_matrix

from xmc_tf.models.linear.in_memory import InMemory
from xmc_tf.params import RankerParams, RankerPredParams
from xmc_tf.rankers.levels import RankerData
from xmc_tf.rankers.streamed import train_streamed
from xmc_tf.rankers.xlinear import XLinear
from xmc_tf.tree.label_embeddings import are_many

LAYOUTS = ("auto", "pecos", "search")


class OnDisk(InMemory):
    """The steps of a training in one process that may write the rankers to the disk as they are solved.

    Args:
        folder: the model's folder, beside which the rankers are until the model is saved.
        threads: number of threads; -1: one per core.
        layout: "pecos": the rankers stay in memory, and are saved in PECOS's format. "search": they are written in
            their layout for search only. "auto": "search" for large data.
    """

    def __init__(self, folder: Path, threads: int = -1, layout: str = "auto") -> None:
        super().__init__(threads)
        self._layout = layout
        self._place = folder.with_name(f".{folder.name}.rankers")
        self.remove()  # what an interrupted run has left

    def rankers(
        self, data: RankerData, params: RankerParams, pred_params: Sequence[RankerPredParams], seed: int
    ) -> list[XLinear]:
        """Return the trained rankers of each tree; those on disk are mapped."""
        if self._layout == "pecos" or (self._layout == "auto" and not are_many(data.X, csr_matrix(data.Y))):
            return super().rankers(data, params, pred_params, seed)
        return train_streamed(
            data.X, data.Y, [tree.to_chain() for tree in data.trees],
            [self._place / str(number) for number in range(len(data.trees))], R=data.R, params=params,
            pred_params=pred_params, user_negatives=data.user_negatives, threads=self.threads, seed=seed,
        )  # fmt: skip

    def remove(self) -> None:
        """Remove the rankers beside the model's folder, which are part of the saved model now."""
        if self._place.is_dir():
            shutil.rmtree(self._place)
