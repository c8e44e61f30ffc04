"""Train, evaluate, export, go on after a stop: a compiled Keras model and ``tf.data``, on any number of ranks."""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf
import tf_keras

from xmc_tf.collective.checkpoints.training_state import has_checkpoint, load_training, save_training, tables_of
from xmc_tf.collective.meters.traffic import TrafficSummaries
from xmc_tf.collective.saved_model import Signature, export_saved_model
from xmc_tf.common.errors import InputError

if TYPE_CHECKING:
    from xmc_tf.collective.strategy import CollectiveStrategy

log = logging.getLogger(__name__)

# Gives batches. With a parameter (that has no default) it is given a tf.distribute.InputContext and makes this rank's
# share of the data itself; without, the batches of what it gives are dealt out to the ranks in turn.
InputFn = Callable[..., tf.data.Dataset]


class TrainSpec(NamedTuple):
    """What ``train_and_evaluate`` trains on.

    Args:
        input_fn: see ``InputFn``.
        max_steps: steps, counted from the first that was ever made.
    """

    input_fn: InputFn
    max_steps: int


class EvalSpec(NamedTuple):
    """What ``train_and_evaluate`` evaluates on, at every checkpoint.

    Args:
        input_fn: see ``InputFn``.
        steps: batches for each rank; None for all.
    """

    input_fn: InputFn
    steps: int | None = None


class Estimator:
    """A training that can be stopped and started again; made by ``strategy.estimator(...)``.

    Example:
        >>> estimator = strategy.estimator(make_model, model_dir="run")
        >>> estimator.train_and_evaluate(TrainSpec(ratings, max_steps=5000), EvalSpec(held_out))
        {'loss': 0.71, 'mae': 0.66}
        >>> estimator.export_saved_model("served/1")

    Args:
        strategy: who takes part.
        model: a compiled Keras model, or a function that makes one, which is called inside ``strategy.scope()``.
        model_dir: for ``checkpoint/`` and TensorBoard; a folder that all hosts see. What is trained there already is
            resumed.
        save_every: steps between checkpoints.
        callbacks: of Keras, on all ranks.
    """

    def __init__(
        self,
        strategy: "CollectiveStrategy",
        model: tf_keras.Model | Callable[[], tf_keras.Model],
        model_dir: str | Path,
        *,
        save_every: int = 1000,
        callbacks: Sequence[tf_keras.callbacks.Callback] = (),
    ) -> None:
        if save_every < 1:
            raise InputError("steps between checkpoints (save_every)", expected="1 or more", received=str(save_every))
        self.strategy, self.model_dir = strategy, Path(model_dir)
        self._save_every, self._callbacks = save_every, list(callbacks)
        with strategy.scope():
            made = model if isinstance(model, tf_keras.Model) else model()
        if not isinstance(made, tf_keras.Model) or getattr(made, "optimizer", None) is None:
            raise InputError(
                "the estimator's model cannot be trained",
                expected="a compiled Keras model, or a function that returns one",
                received=type(made).__name__ if not isinstance(made, tf_keras.Model) else "a model without optimizer",
                fix="call model.compile(strategy.optimizer(...), loss=...)",
            )
        self.model: tf_keras.Model = made
        self._test_step = tf.function(made.test_step, reduce_retracing=True)
        self._loaded: str | None = None

    @property
    def checkpoint(self) -> Path:
        """The folder of the last checkpoint."""
        return self.model_dir / "checkpoint"

    def train(self, input_fn: InputFn, max_steps: int) -> int:
        """Train until ``max_steps`` steps have been made in all; to be called by all ranks.

        The data is repeated as often as that takes. Who goes on after a stop skips what had been read before.

        Args:
            input_fn: see ``InputFn``.
            max_steps: steps, counted from the first that was ever made.

        Returns:
            The number of steps made in all.
        """
        return self._train(input_fn, max_steps, None)

    def evaluate(self, input_fn: InputFn, steps: int | None = None) -> dict[str, float]:
        """Return the loss and metrics over the batches of all ranks; to be called by all of them.

        Metrics are added up over the ranks before they are divided, so a last batch that is smaller, or that only some
        ranks have, counts for what it is.

        Args:
            input_fn: see ``InputFn``.
            steps: batches for each rank; None for all.
        """
        self._load(optimizer=False)
        return self._evaluate(input_fn, steps)

    def train_and_evaluate(self, train_spec: TrainSpec, eval_spec: EvalSpec) -> dict[str, float]:
        """Train, and evaluates at every checkpoint; gives what the last evaluation gave."""
        self._train(*train_spec, eval_spec)
        return self._evaluate(*eval_spec)

    def export_saved_model(
        self, folder: str | Path, signatures: Mapping[str, Signature] | None = None, *, track: Sequence[Any] = ()
    ) -> Path:
        """Write a SavedModel of the model as it is trained; to be called by all ranks.

        Args:
            folder: where to.
            signatures: how it is called; None for the way in which Keras calls it.
            track: see ``saved_model.export_saved_model``.
        """
        self._load(optimizer=False)
        tables, communicator = tables_of(self.model), self.strategy.communicator
        return export_saved_model(folder, signatures or self.model, tables, communicator, track=track)

    def _train(self, input_fn: InputFn, max_steps: int, eval_spec: EvalSpec | None) -> int:
        step = self._load(optimizer=True)
        if step >= max_steps:
            log.info("%s: %d of %d steps are done: nothing to train", self.model_dir, step, max_steps)
            return step
        batches = getattr(self.model.optimizer, "batches_per_step", 1)
        data = self._data(input_fn).repeat().skip(step * batches)
        callbacks = [_UntilStep(max_steps, (max_steps - step) * batches), *self._callbacks]
        if self.strategy.rank() == 0:
            where = str(self.model_dir / "train")
            callbacks += [tf_keras.callbacks.TensorBoard(where, write_graph=False), TrafficSummaries(where)]
        callbacks.append(tf_keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: self._after_epoch(eval_spec)))
        self.model.fit(
            data,
            # Enough epochs, the last of which ends at max_steps.
            initial_epoch=step // self._save_every,
            epochs=step // self._save_every + -(-(max_steps - step) // self._save_every),
            steps_per_epoch=self._save_every * batches,
            callbacks=callbacks,
            verbose=2 if self.strategy.rank() == 0 else 0,
        )
        return int(self.model.optimizer.iterations)

    def _after_epoch(self, eval_spec: EvalSpec | None) -> None:
        step = save_training(self.checkpoint, self.model, self.strategy.communicator)
        if eval_spec is None:
            return
        results = self._evaluate(*eval_spec)
        if self.strategy.rank() == 0:
            log.info("step %d: %s", step, ", ".join(f"{name} {value:.4g}" for name, value in results.items()))
            with tf.summary.create_file_writer(str(self.model_dir / "eval")).as_default(step):
                for name, value in results.items():
                    tf.summary.scalar(name, value)

    def _evaluate(self, input_fn: InputFn, steps: int | None) -> dict[str, float]:
        data = self._data(input_fn)
        batches = iter(data if steps is None else data.take(steps))
        self.model.reset_metrics()
        for batch in self._in_step(batches):
            self._test_step(batch)
        # The states of metrics are sums and counts; those of all ranks make the whole's.
        states = [variable for metric in self.model.metrics for variable in metric.variables]
        everybodys = self.strategy.communicator.allgather([variable.numpy() for variable in states])
        for variable, *theirs in zip(states, *everybodys, strict=True):
            variable.assign(sum(theirs[1:], start=theirs[0]))
        results: dict[str, float] = {}
        for metric in self.model.metrics:
            result = metric.result()
            named = result if isinstance(result, Mapping) else {metric.name: result}
            results.update({name: float(value) for name, value in named.items()})
        self.model.reset_metrics()
        return results

    def _in_step(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches; a rank that has no more of them goes on with empty ones as long as any other has some."""
        last = None
        while True:
            batch = next(batches, None)
            last = last if batch is None else batch
            ranks = self.strategy.communicator.allgather((batch is not None, last is not None))
            if without := [rank for rank, (_, had_one) in enumerate(ranks) if not had_one]:
                raise InputError(
                    f"ranks {without} have no batch to evaluate",
                    expected="a batch for every rank",
                    fix="use smaller batches or fewer ranks",
                )
            if not any(has_one for has_one, _ in ranks):
                return
            # A batch without rows has nothing to look up, but answers what the other ranks look up here.
            yield batch if batch is not None else tf.nest.map_structure(lambda tensor: tensor[:0], last)

    def _load(self, optimizer: bool) -> int:
        """Take up the checkpoint, once; gives the number of steps made."""
        communicator = self.strategy.communicator
        if self._loaded not in ("all", "all" if optimizer else "model"):
            if has_checkpoint(self.checkpoint, communicator):
                step = load_training(self.checkpoint, self.model, communicator, optimizer=optimizer)
                log.info("resuming from step %d of %s", step, self.checkpoint)
            self._loaded = "all" if optimizer else "model"
        return int(self.model.optimizer.iterations)

    def _data(self, input_fn: InputFn) -> tf.data.Dataset:
        """Return this rank's share of the data."""
        size, rank = self.strategy.world_size(), self.strategy.rank()
        parameters = inspect.signature(input_fn).parameters.values()
        if any(one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters):
            return input_fn(tf.distribute.InputContext(size, rank, size))
        return input_fn().shard(size, rank)


class _UntilStep(tf_keras.callbacks.Callback):
    """Ends the training at a step, in the middle of an epoch too; that takes ``batches`` batches, or more."""

    def __init__(self, max_steps: int, batches: int) -> None:
        super().__init__()
        self._max_steps, self._batches = max_steps, batches

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Looks at the step once it can be the last; before that, looking would mean waiting for it."""
        self._batches -= 1
        # With loss scaling some batches make no step.
        if self._batches <= 0 and int(self.model.optimizer.iterations) >= self._max_steps:
            self.model.stop_training = True
