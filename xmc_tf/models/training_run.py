from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.run_records import TemporaryFolder
from xmc_tf.pipeline.stages import Stages
from xmc_tf.ranks.choosing import choose_communicator

if TYPE_CHECKING:
    from xmc_tf.collective.strategy import CollectiveStrategy


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """Options of a training run; the model depends only on ``seed`` and ``effort``.

    Example:
        >>> XTransformer.train(texts, labels, run=TrainingRun(work_dir="model.work", logdir="logs"))

    Args:
        work_dir: folder for finished stages. With the same folder, the same call resumes an interrupted training.
            Required for several ranks, on a shared disk (default: a temporary folder).
        logdir: folder for TensorBoard's log files (default: none are written).
        strategy: distribution over ranks (default: the ranks of the launcher).
        threads: number of threads for tree and rankers; -1: one per core.
        seed: random seed.
        effort: "fast", "balanced" or "best": choose the number and shapes of the rankers' label trees by the data
            (default: one tree, as the parameters say).
    """

    work_dir: str | Path | None = None
    logdir: str | Path | None = None
    strategy: "CollectiveStrategy | None" = None
    threads: int = -1
    seed: int = 0
    effort: str | None = None

    def open(self) -> "tuple[Stages, TemporaryFolder | None]":
        """Return the stages of the training, and the temporary folder that contains them, if there is one."""
        communicator = self.strategy.communicator if self.strategy is not None else choose_communicator()
        if self.work_dir is not None:
            return Stages(self.work_dir, communicator), None
        if communicator.size > 1:
            raise InputError(
                "several ranks need a shared folder",
                expected="run=TrainingRun(work_dir=...)",
                received="work_dir None",
            )
        temporary = TemporaryFolder()
        return Stages(Path(temporary.name) / "work", communicator), temporary
