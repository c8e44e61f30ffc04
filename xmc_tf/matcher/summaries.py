"""The course of fine-tuning: what is counted in every step, lines of the log, and TensorBoard."""

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xmc_tf.collective.meters.time_spent import seconds_in_collectives
from xmc_tf.collective.meters.traffic import bytes_sent
from xmc_tf.params import MatcherParams
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.tree import LabelTree


class Course(NamedTuple):
    """Some steps, over all ranks.

    Attributes:
        losses: of each step.
        documents_per_second: encoded and scored.
        tokens_per_second: without padding.
        padding_share: which part of what the encoder was given was padding.
        wire_bytes: sent to other ranks, a step, over all ranks.
        communication_ms: of a step in collectives, waiting for slower ranks included; the mean of the ranks.
        step_ms: that a step takes.
    """

    losses: list[float]
    documents_per_second: float
    tokens_per_second: float
    padding_share: float
    wire_bytes: float
    communication_ms: float
    step_ms: float

    def line(self, learning_rate: float, gradient_norm: float) -> str:
        """As the log shows it."""
        loss = float(np.mean(self.losses)) if self.losses else float("nan")
        parts = [
            f"loss {loss:.5f}",
            f"lr {learning_rate:.2e}",
            f"gradient norm {gradient_norm:.3f}",
            f"{self.documents_per_second:,.0f} documents/s",
            f"{self.tokens_per_second:,.0f} tokens/s",
            f"padding {self.padding_share:.1%}",
        ]
        if self.wire_bytes:
            parts.append(f"{self.wire_bytes / 2**20:.2f} MiB sent a step")
            parts.append(f"{self.communication_ms:.1f} of {self.step_ms:.1f} ms a step in communication")
        return ", ".join(parts)


class StepMeter:
    """Collects what the steps count, without waiting for them; adds it up over the ranks when asked.

    Args:
        communicator: the ranks, all of which call ``take`` together.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._counts: list[tf.Tensor] = []
        self._since, self._sent, self._spent = time.monotonic(), _sent(), seconds_in_collectives()
        self._tokens = self._cells = 0.0

    def add(self, counts: tf.Tensor) -> None:
        """Takes a batch's [loss, documents, tokens, tokens with padding] of this rank."""
        self._counts.append(counts)

    def take(self, batches_per_step: int) -> Course:
        """What has come since the last time."""
        counts = np.array([one.numpy() for one in self._counts], np.float64).reshape(-1, 4)
        self._counts.clear()
        now, sent, spent = time.monotonic(), _sent(), seconds_in_collectives()
        mine = np.concatenate([counts[:, 0], counts[:, 1:].sum(axis=0), [sent - self._sent, spent - self._spent]])
        everyones = self._communicator.allreduce_array(mine)
        losses, (documents, tokens, cells, wire, waited) = everyones[:-5], everyones[-5:]
        seconds = max(now - self._since, 1e-9)
        self._since, self._sent, self._spent = now, sent, spent
        self._tokens, self._cells = self._tokens + tokens, self._cells + cells
        steps = losses.reshape(-1, batches_per_step).mean(axis=1) if len(losses) else losses
        return Course(
            [float(loss) for loss in steps],
            documents / seconds,
            tokens / seconds,
            1.0 - tokens / cells if cells else 0.0,
            wire / max(len(steps), 1),
            1000 * waited / self._communicator.size / max(len(steps), 1),
            1000 * seconds / max(len(steps), 1),
        )

    def go_on(self) -> None:
        """Begins to count time here: a validation or a checkpoint has come between two steps."""
        self._since, self._sent, self._spent = time.monotonic(), _sent(), seconds_in_collectives()

    @property
    def padding_share(self) -> float:
        """Of everything taken so far."""
        return 1.0 - self._tokens / self._cells if self._cells else 0.0


class LevelSummaries:
    """A level's curves in TensorBoard, under ``level_<number>/``.

    Example:
        >>> summaries = LevelSummaries(tf.summary.create_file_writer("logs"), level=2)

    Args:
        writer: of rank 0.
        level: of the tree.
    """

    def __init__(self, writer: tf.summary.SummaryWriter, level: int) -> None:
        self._writer, self._prefix = writer, f"level_{level}"

    def write(self, step: int, course: Course, learning_rate: float, gradient_norm: float) -> None:
        """Writes some steps, at the last of them; the loss of each at its own."""
        first = step - len(course.losses) + 1
        for offset, loss in enumerate(course.losses):
            self._scalar("loss", loss, first + offset)
        self._scalar("learning_rate", learning_rate, step)
        self._scalar("gradient_norm", gradient_norm, step)
        self._scalar("documents_per_second", course.documents_per_second, step)
        self._scalar("tokens_per_second", course.tokens_per_second, step)
        self._scalar("padding_share", course.padding_share, step)
        self._scalar("wire_bytes_per_step", course.wire_bytes, step)
        self._scalar("communication_ms_per_step", course.communication_ms, step)
        self._scalar("step_ms", course.step_ms, step)
        self._writer.flush()

    def write_validation(self, step: int, measures: dict[str, float]) -> None:
        """Writes what validation found."""
        for name, value in measures.items():
            self._scalar(f"validation/{name}", value, step)
        self._writer.flush()

    def _scalar(self, name: str, value: float, step: int) -> None:
        with self._writer.as_default():
            tf.summary.scalar(f"{self._prefix}/{name}", value, step=step)


def write_texts(writer: tf.summary.SummaryWriter, tree: LabelTree, params: Sequence[MatcherParams]) -> None:
    """Writes the tree's sizes and every level's parameters as text.

    Args:
        writer: of rank 0.
        tree: over the labels.
        params: of each level.
    """
    sizes = [f"| {level} | {size:,} |" for level, size in enumerate(tree.level_sizes)]
    with writer.as_default():
        tf.summary.text("tree", "\n".join(["| level | nodes |", "| --- | --- |", *sizes]), step=0)
        for level, one in enumerate(params, start=1):
            rows = [f"| {name} | {value} |" for name, value in one.to_json().items() if name != "__meta__"]
            table = "\n".join(["| parameter | value |", "| --- | --- |", *rows])
            tf.summary.text(f"level_{level}/parameters", table, step=0)
    writer.flush()


def _sent() -> float:
    return float(sum(bytes_sent().values()))
