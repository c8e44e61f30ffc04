import logging

import numpy as np
import tensorflow as tf

from xmc_tf.collective.optimizers.keras_optimizer import CollectiveOptimizer
from xmc_tf.common.files.log_folder import log_folder
from xmc_tf.matcher.progress.summaries import Course
from xmc_tf.params import SequenceParams

logger = logging.getLogger(__name__)


class TrainingReport:
    """The log lines and TensorBoard curves of a training, written by rank 0."""

    def __init__(self, total: int, optimizer: CollectiveOptimizer, params: SequenceParams, silent: bool) -> None:
        self._total, self._optimizer, self._silent = total, optimizer, silent
        self._writer = None
        if params.logdir is not None and not silent:
            self._writer = tf.summary.create_file_writer(log_folder(params.logdir))
            rows = [f"| {name} | {value} |" for name, value in params.to_json().items()]
            with self._writer.as_default():
                tf.summary.text("parameters", "\n".join(["| parameter | value |", "| --- | --- |", *rows]), step=0)

    def steps(self, step: int, course: Course) -> None:
        """Report the steps since the last report. The course counts sequences as documents and items as tokens."""
        if self._silent:
            return
        rate, norm = float(self._optimizer.last_rate), float(self._optimizer.gradient_norm)
        loss = float(np.mean(course.losses)) if course.losses else float("nan")
        sent = ""
        if course.wire_bytes:
            sent = f", {course.wire_bytes / 2**20:.2f} MiB sent a step, {course.step_ms:.1f} ms a step"
        logger.info(
            "step %d of %d: loss %.5f, lr %.2e, gradient norm %.3f, %s sequences/s%s",
            step, self._total, loss, rate, norm, f"{course.documents_per_second:,.0f}", sent,
        )  # fmt: skip
        self._write(
            step,
            {
                "learning_rate": rate,
                "gradient_norm": norm,
                "sequences_per_second": course.documents_per_second,
                "items_per_second": course.tokens_per_second,
                "padding_share": course.padding_share,
                "wire_bytes_per_step": course.wire_bytes,
                "step_ms": course.step_ms,
            },
        )
        for at, value in enumerate(course.losses, step - len(course.losses) + 1):
            self._write(at, {"loss": value})

    def evaluation(self, step: int, metrics: dict[str, float], best: bool) -> None:
        if self._silent:
            return
        values = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        logger.info("step %d of %d: validation %s%s", step, self._total, values, " (best)" if best else "")
        self._write(step, {f"validation/{name}": value for name, value in metrics.items()})
        if self._writer is not None:
            self._writer.flush()

    def _write(self, step: int, values: dict[str, float]) -> None:
        if self._writer is None:
            return
        with self._writer.as_default():
            for name, value in values.items():
                tf.summary.scalar(name, value, step=step)
