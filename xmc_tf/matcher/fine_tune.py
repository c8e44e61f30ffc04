"""Fine-tuning of encoder and label head on one level of the tree: the training loop, from top to bottom."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xmc_tf.collective.checkpoints.training_state import has_checkpoint, load_training, save_training
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.common.errors import InputError
from xmc_tf.common.process.resuming import resumes_from
from xmc_tf.common.progress import Progress
from xmc_tf.data import TokenStore
from xmc_tf.matcher.candidates.batches import Batch, TrainingBatches
from xmc_tf.matcher.candidates.choosing import CandidateSampler, EveryNode
from xmc_tf.matcher.head import LabelHead
from xmc_tf.matcher.losses import head_loss
from xmc_tf.matcher.optimizer import make_optimizer
from xmc_tf.matcher.position import Position, Trained
from xmc_tf.matcher.summaries import LevelSummaries, StepMeter
from xmc_tf.params import MatcherParams

logger = logging.getLogger(__name__)

# Of a batch as the graph sees it: ids, mask, candidates and where each document's begin, targets, weights, documents.
_SIGNATURE = [
    tf.TensorSpec([None, None], tf.int32),
    tf.TensorSpec([None, None], tf.int32),
    tf.TensorSpec([None], tf.int64),
    tf.TensorSpec([None], tf.int64),
    tf.TensorSpec([None], tf.float32),
    tf.TensorSpec([None], tf.float32),
    tf.TensorSpec([], tf.float32),
]

# XLA compiles again for every width, so there are only multiples of this.
_XLA_WIDTH = 16


@dataclass
class LevelResult:
    """How a level's training went.

    Args:
        steps: made in all, those before a resumption included.
        first_step: the first one that this run has made.
        losses: of the steps from there on, over all ranks.
        seconds: that they took, validations and checkpoints included.
        padding_share: of all that the encoder was given.
        validations: (step, measures), as they came.
        stopped_early: whether validation stopped it.
    """

    steps: int = 0
    first_step: int = 0
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    padding_share: float = 0.0
    validations: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    stopped_early: bool = False


def fine_tune_level(
    strategy: CollectiveStrategy,
    encoder: Any,
    head: LabelHead,
    store: TokenStore,
    sampler: CandidateSampler | EveryNode,
    params: MatcherParams,
    *,
    pad_id: int,
    folder: str | Path,
    seed: int = 0,
    summaries: LevelSummaries | None = None,
    validate: Callable[[], dict[str, float]] | None = None,
    rows: np.ndarray | None = None,
) -> LevelResult:
    """Trains encoder and head together, from the last checkpoint in ``folder`` if there is one.

    All ranks call it together. A global batch has ``batch_size`` documents a rank; a step's loss is the mean over
    the documents of the global batch, whatever the number of ranks.

    Args:
        strategy: the ranks.
        encoder: what makes vectors of token ids; see ``encoder.Encoder``.
        head: the level's rows, bootstrapped.
        store: the tokens of all documents.
        sampler: draws the candidates of a document.
        params: everything else.
        pad_id: what stands behind a document's end.
        folder: for checkpoints; one that all hosts see.
        seed: of the order of documents, and of dropout.
        summaries: where the course is written to.
        validate: gives measures, the same on all ranks, of which more is better; called whenever a checkpoint is
            due. The best state by their mean is what remains in the end.
        rows: the documents to train on; None for all.
    """
    folder, world = Path(folder), strategy.communicator
    rank, size = strategy.rank(), strategy.world_size()
    accumulate, level = params.gradient_accumulation_steps, sampler.task.level

    batches = TrainingBatches(
        store,
        sampler,
        batch=params.batch_size * size,
        seed=seed,
        pad_id=pad_id,
        rank=rank,
        size=size,
        rows=rows,
        token_budget=None if params.token_budget is None else params.token_budget * size,
    )
    total = steps_in_all(batches, params)
    of_all = isinstance(sampler, EveryNode)
    if not of_all:
        head.choose_route(_candidates(batches.make(0, 0)))

    # What is trained, and how far it is.
    position = Position()
    variables = [*encoder.trainable_variables, head.table.variable]
    optimizer = make_optimizer(strategy, params, total, encoder.trainable_variables)
    optimizer.build(variables)
    trained = Trained([*encoder.variables, head.table.variable, *position.variables], variables, optimizer)
    if has_checkpoint(folder / "last", world):
        load_training(folder / "last", trained, world)
        logger.info("level %d: resuming from step %d of %d", level, position.step, total)
    resumes_from(f"fine-tuning, level {level}, step {position.step} of {total}")
    train_batch = _graph_of_a_batch(encoder, head, optimizer, variables, params, pad_id, of_all)

    result = LevelResult(steps=position.step, first_step=position.step)
    started, meter = time.monotonic(), StepMeter(world)
    _same_dropout_from_here(seed, rank)
    with (
        batches.stream(position.epoch, position.batch) as stream,
        Progress(f"level {level}", total - position.step, "steps", quiet_s=2.0 if rank == 0 else 1e9) as progress,
    ):
        while position.step < total and not position.given_up(params.max_no_improve_cnt):
            for _ in range(accumulate):
                batch = next(stream)
                meter.add(train_batch(*_tensors(batch)))
            position.advance(batch.epoch, batch.step + 1)
            progress.add()

            done = position.step == total
            save = done or position.step % params.save_steps == 0
            if save or position.step % params.logging_steps == 0:
                course = meter.take(accumulate)
                _check_finite(course.losses, level, position.step)  # before it gets into a checkpoint
                result.losses += course.losses
                if rank == 0:
                    rate, norm = float(optimizer.learning_rate), float(optimizer.gradient_norm)
                    logger.info("level %d, step %d of %d: %s", level, position.step, total, course.line(rate, norm))
                    if summaries is not None:
                        summaries.write(position.step, course, rate, norm)

            if save:
                if validate is not None:
                    measures = validate()
                    result.validations.append((position.step, measures))
                    if rank == 0:
                        told = ", ".join(f"{name} {value:.2f}" for name, value in measures.items())
                        logger.info("level %d, step %d of %d: validation %s", level, position.step, total, told)
                        if summaries is not None:
                            summaries.write_validation(position.step, measures)
                    if position.is_better(float(np.mean(list(measures.values())))):
                        save_training(folder / "best", trained, world)
                save_training(folder / "last", trained, world)
                resumes_from(f"fine-tuning, level {level}, step {position.step} of {total}")
                _same_dropout_from_here(seed, rank)
                meter.go_on()

    result.steps, result.seconds, result.padding_share = position.step, time.monotonic() - started, meter.padding_share
    result.stopped_early = position.step < total
    if validate is not None and has_checkpoint(folder / "best", world):
        load_training(folder / "best", trained, world, optimizer=False)
        if rank == 0:
            logger.info("level %d: the best step was %d", level, position.step)
    head.forget_slots()
    return result


def steps_in_all(batches: TrainingBatches, params: MatcherParams) -> int:
    """How many steps the parameters ask for."""
    if params.max_steps > 0:
        return params.max_steps
    available = sum(batches.steps_of(epoch) for epoch in range(params.num_train_epochs))
    return max(1, available // params.gradient_accumulation_steps)


def _graph_of_a_batch(
    encoder: Any,
    head: LabelHead,
    optimizer: Any,
    variables: list[tf.Variable],
    params: MatcherParams,
    pad_id: int,
    of_all: bool,
) -> Callable[..., tf.Tensor]:
    """The graph from a batch to changed variables; it gives [loss, documents, tokens, tokens with padding] of here."""
    loss_of = head_loss(params.loss_function)

    def encode(ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        # A graph of its own, which the encoder keeps: the next level need not trace all its layers again.
        return encoder.in_graph(ids, mask, training=True)

    if params.xla:
        encode = tf.function(lambda ids, mask: encoder(ids, mask, training=True), jit_compile=True, autograph=False)

    @tf.function(input_signature=_SIGNATURE, autograph=False)
    def train_batch(
        ids: tf.Tensor,
        mask: tf.Tensor,
        candidates: tf.Tensor,
        splits: tf.Tensor,
        targets: tf.Tensor,
        weights: tf.Tensor,
        global_count: tf.Tensor,
    ) -> tf.Tensor:
        documents, width = tf.shape(ids)[0], tf.shape(ids)[1]
        # No encoder takes a batch of nothing, and a rank that has none must still take part in the step.
        empty = tf.maximum(0, 1 - documents)
        ids = tf.pad(ids, [[0, empty], [0, 0]], constant_values=pad_id)
        seen = tf.pad(mask, [[0, empty], [0, 0]], constant_values=1)
        if params.xla:
            more = tf.minimum(-width % _XLA_WIDTH, encoder.max_length - width)
            ids, seen = tf.pad(ids, [[0, 0], [0, more]], constant_values=pad_id), tf.pad(seen, [[0, 0], [0, more]])
            width += more
        ragged = tf.RaggedTensor.from_row_splits(candidates, splits, validate=False)
        with tf.GradientTape() as tape:
            vectors = encode(ids, seen)[:documents]
            factors = ragged.with_flat_values(weights)
            if of_all:
                losses = head.losses_of_all(vectors, ragged, loss_of, factors)
            else:
                losses = head.losses(vectors, ragged, ragged.with_flat_values(targets), loss_of, factors)
            loss = tf.reduce_sum(losses) / global_count
            scaled = optimizer.get_scaled_loss(loss)
        gradients = tape.gradient(scaled, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        counts = [documents, tf.reduce_sum(mask), documents * width]
        return tf.stack([loss, *(tf.cast(count, tf.float32) for count in counts)])

    return train_batch


def _tensors(batch: Batch) -> tuple:
    """A batch in the order of the signature."""
    return (
        batch.ids,
        batch.mask,
        batch.candidates,
        batch.splits,
        batch.targets,
        batch.weights,
        np.float32(batch.global_count),
    )


def _candidates(batch: Batch) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_row_splits(batch.candidates, batch.splits)


def _check_finite(losses: list[float], level: int, step: int) -> None:
    """Ends a training that has gone wrong; the losses are those of all ranks, so all of them end."""
    wrong = np.flatnonzero(~np.isfinite(losses))
    if len(wrong):
        raise InputError(
            f"level {level}: the loss of step {step - len(losses) + 1 + wrong[0]} is {losses[wrong[0]]}",
            expected="a number",
            received=f"{len(wrong)} of {len(losses)} losses that are not",
            fix="lower learning_rate or head_learning_rate, add warmup_steps, or train without mixed_precision; what "
            "was saved before goes on to be there",
        )


def _same_dropout_from_here(seed: int, rank: int) -> None:
    """Restart dropout at a checkpoint, so that a resumed run drops the same units as an uninterrupted one."""
    tf.random.set_seed(seed * 1009 + rank)
