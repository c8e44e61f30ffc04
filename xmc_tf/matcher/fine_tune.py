"""The training loop that fine-tunes the encoder and the label head on one level of the tree."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xmc_tf.collective.checkpoints.training_state import has_checkpoint, load_training, save_training
from xmc_tf.collective.optimizers.row_wise.optimizers import RowMeanAdam
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.collective.tables.full_table_loss import InPlaceAdam, RowStep
from xmc_tf.common.errors import InputError
from xmc_tf.common.process.resuming import resumes_from
from xmc_tf.common.progress import Progress
from xmc_tf.matcher.candidates import EveryNode, LevelData, TrainingBatches
from xmc_tf.matcher.head import LabelHead, head_loss
from xmc_tf.matcher.optimizer import Position, TrainedVariables, make_optimizer
from xmc_tf.matcher.progress import LevelCurves, LevelSummaries, StepMeter, TimeEstimate
from xmc_tf.params import MatcherParams

logger = logging.getLogger(__name__)

# The rest of a batch in the graph, after the ids: mask, candidates and their row splits, targets, weights, number of
# windows, seed of dropout.
_SIGNATURE = [
    tf.TensorSpec([None, None], tf.int32), *[tf.TensorSpec([None], tf.int64)] * 2,
    *[tf.TensorSpec([None], tf.float32)] * 2, tf.TensorSpec([], tf.float32), tf.TensorSpec([2], tf.int64),
]  # fmt: skip

_XLA_WIDTH = 16  # XLA compiles once per width, so widths are rounded up to multiples of this


@dataclass
class LevelResult:
    """The result of training one level."""

    steps: int = 0  # including those before a resumption
    first_step: int = 0  # of this run
    losses: list[float] = field(default_factory=list)  # of each step from first_step on, over all ranks
    seconds: float = 0.0  # of this run, including validations and checkpoints
    padding_share: float = 0.0  # of the encoder's inputs
    validations: list[tuple[int, dict[str, float]]] = field(default_factory=list)  # (step, metrics)
    stopped_early: bool = False  # by validation
    curves: LevelCurves = field(default_factory=LevelCurves)  # including the steps before a resumption


def fine_tune_level(
    strategy: CollectiveStrategy, encoder: Any, head: LabelHead, data: LevelData, params: MatcherParams, *,
    folder: str | Path, seed: int = 0, summaries: LevelSummaries | None = None,
    validate: Callable[[], dict[str, float]] | None = None, later_steps: int = 0,
) -> LevelResult:  # fmt: skip
    """Train encoder and head on one level, resuming from the last checkpoint in ``folder`` if there is one. All ranks
    must call this function, and all hosts must share the folder. A global batch has ``batch_size`` windows per rank, or
    fewer with a token budget. The loss of a step is the mean over its windows, on any number of ranks. ``validate``
    must return the same metrics on all ranks; the state with the best mean metric is restored at the end. The estimate
    of the time includes the ``later_steps`` of other levels.
    """
    folder, world = Path(folder), strategy.communicator
    rank, level = strategy.rank(), data.sampler.task.level
    batches = make_batches(strategy, data, params, seed)
    total = total_steps(batches, params)
    every_node = isinstance(data.sampler, EveryNode)
    if not every_node:
        batch = batches.make(0, 0)
        head.choose_route(tf.RaggedTensor.from_row_splits(batch.candidates, batch.splits))

    # The trained variables, and the position in the training.
    position = Position()
    in_place = None
    if params.trains_head_in_place:
        of_rows = RowMeanAdam(epsilon=params.adam_epsilon, weight_decay=params.weight_decay)
        in_place = InPlaceAdam(head.table, of_rows, head.full_table_loss.wire)
    variables = [*encoder.trainable_variables, *([] if in_place else [head.table.variable])]
    optimizer = make_optimizer(strategy, params, total, encoder.trainable_variables)
    optimizer.build(variables)
    trained = TrainedVariables([*encoder.variables, head.table.variable, *position.variables], variables, optimizer)
    if has_checkpoint(folder / "last", world):
        load_training(folder / "last", trained, world)
        logger.info("level %d: resuming from step %d of %d", level, position.step, total)
    resumes_from(f"fine-tuning, level {level}, step {position.step} of {total}")
    train_batch = _make_train_batch(encoder, head, optimizer, variables, params, data, in_place)

    curves = LevelCurves.load(folder, position.step)
    result = LevelResult(steps=position.step, first_step=position.step, curves=curves)
    started, meter = time.monotonic(), StepMeter(world, batches.documents_per_window)
    estimate = TimeEstimate(later_steps)
    dropout_seed = (seed * 1009 + rank) * 64 + level
    stream, quiet_s = batches.stream(position.epoch, position.batch), 2.0 if rank == 0 else 1e9
    with Progress(f"level {level}", total - position.step, "steps", quiet_s) as progress:
        while position.step < total and not position.given_up(params.max_no_improve_cnt):
            for _ in range(params.gradient_accumulation_steps):
                batch = next(stream)
                # A resumed run drops the same units as an uninterrupted one.
                drops = np.array([dropout_seed, (batch.epoch << 32) + batch.step], np.int64)
                fields = batch.ids, batch.mask, batch.candidates, batch.splits, batch.targets, batch.weights
                counts = train_batch(*fields, np.float32(batch.global_count), drops)
                meter.add(counts)
            position.advance(batch.epoch, batch.step + 1)
            progress.add()
            if (said := estimate.after_step(total - position.step, counts)) and rank == 0:
                logger.info("level %d: %s", level, said)
            save = position.step == total or position.step % params.save_steps == 0
            if save or position.step % params.logging_steps == 0:
                course = meter.take(params.gradient_accumulation_steps)
                _check_finite(course.losses, level, position.step)  # before a checkpoint contains it
                result.losses += course.losses
                curves.add_losses(position.step, course.losses, total)
                if rank == 0:
                    rate, norm = float(optimizer.last_rate), float(optimizer.gradient_norm)
                    logger.info("level %d, step %d of %d: %s", level, position.step, total, course.line(rate, norm))
                    if summaries is not None:
                        summaries.write(position.step, course, rate, norm)
            if save:
                if validate is not None:
                    metrics = validate()
                    result.validations.append((position.step, metrics))
                    curves.add_measures(position.step, metrics)
                    if rank == 0:
                        values = ", ".join(f"{name} {value:.2f}" for name, value in metrics.items())
                        logger.info("level %d, step %d of %d: validation %s", level, position.step, total, values)
                        if summaries is not None:
                            summaries.write_validation(position.step, metrics)
                    if position.is_better(float(np.mean(list(metrics.values())))):
                        save_training(folder / "best", trained, world)
                if rank == 0:
                    curves.save(folder)
                save_training(folder / "last", trained, world)
                resumes_from(f"fine-tuning, level {level}, step {position.step} of {total}")
                meter.restart_clock()

    result.steps, result.seconds, result.padding_share = position.step, time.monotonic() - started, meter.padding_share
    result.stopped_early = position.step < total
    if validate is not None and has_checkpoint(folder / "best", world):
        load_training(folder / "best", trained, world, optimizer=False)
        if rank == 0:
            logger.info("level %d: the best step was %d", level, position.step)
    head.table.slots.clear()  # the optimizer's state of the rows
    return result


def total_steps(batches: TrainingBatches, params: MatcherParams) -> int:
    """Return ``max_steps`` if it is set, otherwise all epochs' batches divided by ``gradient_accumulation_steps``."""
    if params.max_steps > 0:
        return params.max_steps
    available = sum(batches.steps_of(epoch) for epoch in range(params.num_train_epochs))
    return max(1, available // params.gradient_accumulation_steps)


def make_batches(strategy: CollectiveStrategy, data: LevelData, params: MatcherParams, seed: int) -> TrainingBatches:
    """Return the training batches. The batch size and the token budget in ``params`` apply to each rank."""
    size = strategy.world_size()
    budget = None if params.token_budget is None else params.token_budget * size
    batch, rank = params.batch_size * size, strategy.rank()
    return TrainingBatches(data, batch=batch, seed=seed, rank=rank, size=size, token_budget=budget)


def _check_finite(losses: list[float], level: int, step: int) -> None:
    """Raise an InputError if a loss is infinite or NaN. All ranks raise it, because they have the same losses."""
    wrong = np.flatnonzero(~np.isfinite(losses))
    if len(wrong):
        raise InputError(
            f"level {level}: the loss of step {step - len(losses) + 1 + wrong[0]} is {losses[wrong[0]]}",
            expected="finite losses",
            received=f"infinite or NaN in {len(wrong)} of the last {len(losses)} steps",
            fix="lower learning_rate or head_learning_rate, add warmup_steps, or train without mixed_precision; "
            "earlier checkpoints are kept",
        )


def _make_train_batch(
    encoder: Any, head: LabelHead, optimizer: Any, variables: list[tf.Variable], params: MatcherParams,
    data: LevelData, in_place: InPlaceAdam | None,
) -> Callable[..., tf.Tensor]:  # fmt: skip
    """Return a function that trains on one batch and returns this rank's [loss, windows, tokens, tokens with
    padding]. If all nodes are candidates, batches contain only positives. ``in_place`` updates the head's rows while
    their gradients are computed.
    """
    loss_of, every_node = head_loss(params.loss_function), isinstance(data.sampler, EveryNode)
    none, _ = data.store.padded([], pad_id=data.pad_id)  # token ids, or the output of frozen layers
    spec = tf.TensorSpec([None, None, *none.shape[2:]], none.dtype)
    fill, inner = (0 if spec.dtype.is_floating else data.pad_id), [[0, 0]] * (none.ndim - 2)

    def encode(ids: tf.Tensor, mask: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        # The encoder keeps this graph, so the next level does not trace all its layers again.
        return encoder.in_graph(ids, mask, training=True, seed=seed)

    if params.xla:

        @tf.function(jit_compile=True, autograph=False)
        def encode(ids: tf.Tensor, mask: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
            return encoder(ids, mask, training=True, seed=seed, packed=False)

    @tf.function(input_signature=[spec, *_SIGNATURE], autograph=False)
    def train_batch(
        ids: tf.Tensor, mask: tf.Tensor, candidates: tf.Tensor, splits: tf.Tensor, targets: tf.Tensor,
        weights: tf.Tensor, global_count: tf.Tensor, seed: tf.Tensor,
    ) -> tf.Tensor:  # fmt: skip
        windows, width = tf.shape(ids)[0], tf.shape(ids)[1]
        # Encoders reject empty batches, but a rank without windows must still take part in the step.
        empty = tf.maximum(0, 1 - windows)
        ids = tf.pad(ids, [[0, empty], [0, 0], *inner], constant_values=fill)
        seen = tf.pad(mask, [[0, empty], [0, 0]], constant_values=1)
        if params.xla:
            more = tf.minimum(-width % _XLA_WIDTH, encoder.max_length - width)
            ids = tf.pad(ids, [[0, 0], [0, more], *inner], constant_values=fill)
            seen = tf.pad(seen, [[0, 0], [0, more]])
            width += more
        ragged = tf.RaggedTensor.from_row_splits(candidates, splits, validate=False)
        with tf.GradientTape() as tape:
            vectors = encode(ids, seen, seed)[:windows]
            factors = ragged.with_flat_values(weights)
            if every_node:
                now = None
                if in_place is not None:
                    rate = tf.convert_to_tensor(optimizer.learning_rate) * (params.head_rate / params.learning_rate)
                    now = in_place, RowStep(tf.convert_to_tensor(optimizer.iterations) + 1, rate, 1.0 / global_count)
                losses = head.losses_of_all(vectors, ragged, loss_of, factors, now)
            else:
                losses = head.losses(vectors, ragged, ragged.with_flat_values(targets), loss_of, factors)
            loss = tf.reduce_sum(losses) / global_count
            scaled = optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        counts = [windows, tf.reduce_sum(mask), windows * width]
        return tf.stack([loss, *(tf.cast(count, tf.float32) for count in counts)])

    return train_batch
