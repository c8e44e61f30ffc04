"""The training loop of sequence models, with checkpoints, validation and early stopping."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from xmc_tf.collective.checkpoints.training_state import has_checkpoint, load_training, save_training
from xmc_tf.collective.engines import operations
from xmc_tf.collective.optimizers.keras_optimizer import CollectiveOptimizer
from xmc_tf.collective.optimizers.row_wise.optimizers import RowAdam
from xmc_tf.common.errors import InputError
from xmc_tf.common.process.resuming import resumes_from
from xmc_tf.common.progress import Progress
from xmc_tf.matcher.optimizer import Position, Schedule, TrainedVariables, decays
from xmc_tf.matcher.progress import StepMeter, StepStatistics
from xmc_tf.params import SequenceParams
from xmc_tf.sequences.data.batches import TrainBatches
from xmc_tf.sequences.model.ranking import DECIDING
from xmc_tf.sequences.model.recommender import Recommender
from xmc_tf.store.files import log_folder

logger = logging.getLogger(__name__)


class TrainingReport:
    """The log lines and TensorBoard curves of a training run. Only rank 0 writes them."""

    def __init__(self, total: int, optimizer: CollectiveOptimizer, params: SequenceParams, silent: bool) -> None:
        self._total, self._optimizer, self._silent = total, optimizer, silent
        self._writer = None
        if params.logdir is not None and not silent:
            self._writer = tf.summary.create_file_writer(log_folder(params.logdir))
            rows = [f"| {name} | {value} |" for name, value in params.to_json().items()]
            with self._writer.as_default():
                tf.summary.text("parameters", "\n".join(["| parameter | value |", "| --- | --- |", *rows]), step=0)

    def steps(self, step: int, course: StepStatistics) -> None:
        """Report the steps since the last report. ``course`` counts sequences as documents, and items as tokens."""
        if self._silent:
            return
        rate, norm = float(self._optimizer.last_rate), float(self._optimizer.gradient_norm)
        loss = float(np.mean(course.losses)) if course.losses else float("nan")
        sent = ""
        if course.wire_bytes:
            sent = f", {course.wire_bytes / 2**20:.2f} MiB sent per step, {course.step_ms:.1f} ms per step"
        logger.info(
            "step %d of %d: loss %.5f, lr %.2e, gradient norm %.3f, %s sequences/s%s",
            step, self._total, loss, rate, norm, f"{course.documents_per_second:,.0f}", sent,
        )  # fmt: skip
        values = {
            "learning_rate": rate, "gradient_norm": norm, "sequences_per_second": course.documents_per_second,
            "items_per_second": course.tokens_per_second, "padding_share": course.padding_share,
            "wire_bytes_per_step": course.wire_bytes, "step_ms": course.step_ms,
        }  # fmt: skip
        self._write(step, values)
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


@dataclass
class TrainingResult:
    steps: int = 0  # including those before a resumption
    losses: list[float] = field(default_factory=list)  # of each step of this run, over all ranks
    validations: list[tuple[int, dict[str, float]]] = field(default_factory=list)  # (step, metrics) of this run
    seconds: float = 0.0  # of this run
    stopped_early: bool = False  # by validation


def train_recommender(
    model: Recommender, batches: TrainBatches, folder: str | Path,
    validate: Callable[[], dict[str, float]] | None = None,
) -> TrainingResult:  # fmt: skip
    """Train a model, or resume from the last checkpoint in ``folder``. All ranks must call this function.

    All hosts must share the folder. The loss of a step is the mean over all targets of the global batch. ``validate``
    must return the same metrics on all ranks. At the end, the weights with the best metrics are restored.
    """
    strategy, params, folder = model.strategy, model.params, Path(folder)
    world, total = strategy.communicator, params.max_steps or params.n_epochs * batches.steps
    every = params.eval_steps or batches.steps
    position = Position()
    optimizer = make_optimizer(model, total)
    optimizer.build(model.trained)
    trained = TrainedVariables([*model.replicated, model.table.variable, *position.variables], model.trained, optimizer)
    if has_checkpoint(folder / "last", world):
        load_training(folder / "last", trained, world)
        logger.info("resuming from step %d of %d", position.step, total)
    resumes_from(f"step {position.step} of {total}")
    step = make_train_step(model, optimizer)
    result, report = TrainingResult(steps=position.step), TrainingReport(total, optimizer, params, strategy.rank() != 0)
    started, meter = time.monotonic(), StepMeter(world)
    quiet_s = 2.0 if strategy.rank() == 0 else 1e9
    with (
        batches.stream(position.epoch, position.batch, params.num_workers) as stream,
        Progress("training", total - position.step, "steps", quiet_s=quiet_s) as progress,
    ):
        while position.step < total and not position.given_up(params.patience):
            batch = next(stream)
            meter.add(step(batch.inputs, batch.targets, np.array([params.seed, position.step], np.int64)))
            position.advance(batch.epoch, batch.step + 1)
            progress.add()
            save = position.step == total or position.step % every == 0
            if save or position.step % params.logging_steps == 0:
                course = meter.take(1)
                _check_finite(course.losses, position.step)  # before it gets into a checkpoint
                result.losses += course.losses
                report.steps(position.step, course)
            if save:
                if validate is not None:
                    metrics = validate()
                    result.validations.append((position.step, metrics))
                    better = position.is_better(metrics[DECIDING])
                    report.evaluation(position.step, metrics, better)
                    if better:
                        save_training(folder / "best", trained, world)
                save_training(folder / "last", trained, world)
                resumes_from(f"step {position.step} of {total}")
                meter.restart_clock()
    result.steps, result.seconds = position.step, time.monotonic() - started
    result.stopped_early = position.step < total
    if validate is not None and has_checkpoint(folder / "best", world):
        load_training(folder / "best", trained, world, optimizer=False)
    model.table.slots.clear()
    return result


def make_optimizer(model: Recommender, total: int) -> CollectiveOptimizer:
    """Return the optimizer: AdamW for the transformer, and row-wise AdamW for the item table."""
    params = model.params
    schedule = Schedule(params.lr_schedule, params.learning_rate, params.warmup_steps, total, params.lr_cycles)
    inner = keras.optimizers.AdamW(
        schedule, weight_decay=params.weight_decay, epsilon=1e-8, global_clipnorm=params.max_grad_norm
    )
    inner.exclude_from_weight_decay(var_list=[one for one in model.replicated if not decays(one)])
    return model.strategy.optimizer(inner, table_optimizer=RowAdam.of(inner), reduction="sum")


def make_train_step(model: Recommender, optimizer: CollectiveOptimizer) -> Callable[..., tf.Tensor]:
    """Return a function that trains on one batch.

    Its arguments are the inputs, the targets, and a pair of training seed and step. It returns this rank's loss, and
    its numbers of sequences, items, and positions (including padding). The ranks' losses add up to the step's loss.
    """
    cells = tf.TensorSpec([None, model.params.max_len], tf.int32)
    size = model.strategy.world_size()

    @tf.function(input_signature=[cells, cells, tf.TensorSpec([2], tf.int64)], autograph=False)
    def train_step(inputs: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        count = tf.reduce_sum(tf.cast(targets >= 0, tf.float32))
        if size > 1:
            count = operations.allreduce_sum(count, "sequences/targets")
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model.losses(inputs, targets, seed)) / tf.maximum(count, 1.0)
        gradients = tape.gradient(loss, model.trained)
        optimizer.apply_gradients(zip(gradients, model.trained, strict=True))
        seen = tf.reduce_sum(tf.cast((inputs >= 0) | (targets >= 0), tf.float32))
        return tf.stack([loss, tf.cast(tf.shape(inputs)[0], tf.float32), seen, tf.cast(tf.size(inputs), tf.float32)])

    return train_step


def _check_finite(losses: list[float], step: int) -> None:
    """Raise an error if a loss is infinite or NaN. All ranks raise it, because the losses are the same on all ranks."""
    wrong = np.flatnonzero(~np.isfinite(losses))
    if len(wrong):
        raise InputError(
            f"the loss of step {step - len(losses) + 1 + wrong[0]} is {losses[wrong[0]]}",
            expected="a finite number",
            received=f"infinity or NaN in {len(wrong)} of {len(losses)} losses",
            fix="lower learning_rate or add warmup_steps; earlier checkpoints are kept",
        )
