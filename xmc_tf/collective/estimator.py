import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import tensorflow as tf

from xmc_tf.collective.checkpoints.training_state import has_checkpoint, load_training, save_training, tables_of
from xmc_tf.collective.fitting.steps import same_steps_on_all_ranks
from xmc_tf.collective.meters.traffic import TrafficSummaries
from xmc_tf.collective.saved_model import Signature, export_saved_model
from xmc_tf.common.errors import InputError

if TYPE_CHECKING:
    from xmc_tf.collective.strategy import CollectiveStrategy

log = logging.getLogger(__name__)

# Returns a dataset of batches. A function with a required parameter receives a tf.distribute.InputContext and returns
# this rank's share of the data. The batches of other functions are distributed over the ranks in turn.
InputFn = Callable[..., tf.data.Dataset]


class TrainSpec(NamedTuple):
    """The training data of ``train_and_evaluate``, and the total number of steps, counting those before a resume."""

    input_fn: InputFn
    max_steps: int


class EvalSpec(NamedTuple):
    """The data on which ``train_and_evaluate`` evaluates the model at each checkpoint."""

    input_fn: InputFn
    steps: int | None = None  # batches of each rank; default: all


class Estimator:
    """A training run that can be interrupted and resumed from a checkpoint. Create it with ``strategy.estimator``.

    Example:
        >>> estimator = strategy.estimator(make_model, model_dir="run")
        >>> estimator.train_and_evaluate(TrainSpec(ratings, max_steps=5000), EvalSpec(held_out))
        {'loss': 0.71, 'mae': 0.66}
        >>> estimator.export_saved_model("served/1")
    """

    def __init__(
        self,
        strategy: "CollectiveStrategy",
        model: keras.Model | Callable[[], keras.Model],  # compiled; a function is called inside ``strategy.scope()``
        model_dir: str | Path,  # for ``checkpoint/`` and TensorBoard's logs; all hosts must see it
        *,
        save_every: int = 1000,  # steps between checkpoints
        callbacks: Sequence[keras.callbacks.Callback] = (),
    ) -> None:
        if save_every < 1:
            raise InputError("save_every is too small", expected="1 or more", received=str(save_every))
        self.strategy, self.model_dir = strategy, Path(model_dir)
        self._save_every, self._callbacks = save_every, list(callbacks)
        with strategy.scope():
            made = model if isinstance(model, keras.Model) else model()
        if not isinstance(made, keras.Model) or getattr(made, "optimizer", None) is None:
            raise InputError(
                "the estimator's model cannot be trained",
                expected="a compiled Keras model, or a function that returns one",
                received=type(made).__name__ if not isinstance(made, keras.Model) else "a model without an optimizer",
                fix="call model.compile(strategy.optimizer(...), loss=...)",
            )
        self.model: keras.Model = made
        self._loaded: str | None = None

    @property
    def checkpoint(self) -> Path:
        return self.model_dir / "checkpoint"

    def train(self, input_fn: InputFn, max_steps: int) -> int:
        """Train to step ``max_steps``, repeating the data if needed. Return the last step. All ranks must call it."""
        return self._train(input_fn, max_steps, None)

    def evaluate(self, input_fn: InputFn, steps: int | None = None) -> dict[str, float]:
        """Return the loss and metrics over ``steps`` batches of each rank (default: all). All ranks must call it."""
        self._load(optimizer=False)
        return self._evaluate(input_fn, steps)

    def train_and_evaluate(self, train_spec: TrainSpec, eval_spec: EvalSpec) -> dict[str, float]:
        """Train, evaluating at each checkpoint. Return the results of a final evaluation. All ranks must call it."""
        self._train(*train_spec, eval_spec)
        return self._evaluate(*eval_spec)

    def export_saved_model(
        self, folder: str | Path, signatures: Mapping[str, Signature] | None = None, *, track: Sequence[Any] = ()
    ) -> Path:
        """Write a SavedModel of the trained model; see ``saved_model.export_saved_model``. All ranks must call it."""
        self._load(optimizer=False)
        tables, communicator = tables_of(self.model), self.strategy.communicator
        return export_saved_model(folder, signatures or self.model, tables, communicator, track=track)

    def _train(self, input_fn: InputFn, max_steps: int, eval_spec: EvalSpec | None) -> int:
        step = self._load(optimizer=True)
        if step >= max_steps:
            log.info("%s: step %d/%d: nothing to train", self.model_dir, step, max_steps)
            return step
        batches = getattr(self.model.optimizer, "batches_per_step", 1)
        data = self._data(input_fn).repeat().skip(step * batches)
        progress = keras.callbacks.ProgbarLogger()
        last = _LastEpoch(progress, max_steps, (max_steps - step) * batches)
        callbacks = [last, progress, *self._callbacks]
        if self.strategy.rank() == 0:
            where = str(self.model_dir / "train")
            callbacks += [keras.callbacks.TensorBoard(where, write_graph=False), TrafficSummaries(where)]
        callbacks.append(keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: self._after_epoch(eval_spec)))
        self.model.fit(
            data,
            # An epoch ends with each checkpoint; the last one ends at max_steps.
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
        with same_steps_on_all_ranks(self.strategy.communicator):  # one rank, too, refuses data without batches
            return self.model.evaluate(data if steps is None else data.take(steps), verbose=0, return_dict=True)

    def _load(self, optimizer: bool) -> int:
        """Load the checkpoint if there is one and it is not loaded yet, and return the number of completed steps."""
        communicator = self.strategy.communicator
        if self._loaded not in ("all", "all" if optimizer else "model"):
            if has_checkpoint(self.checkpoint, communicator):
                step = load_training(self.checkpoint, self.model, communicator, optimizer=optimizer)
                log.info("resuming from step %d of %s", step, self.checkpoint)
            self._loaded = "all" if optimizer else "model"
        return int(self.model.optimizer.iterations)

    def _data(self, input_fn: InputFn) -> tf.data.Dataset:
        size, rank = self.strategy.world_size(), self.strategy.rank()
        parameters = inspect.signature(input_fn).parameters.values()
        if any(one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters):
            return input_fn(tf.distribute.InputContext(size, rank, size))
        return input_fn().shard(size, rank)


class _LastEpoch(keras.callbacks.Callback):
    """A callback that ends training at a given step, after at least ``batches`` batches."""

    def __init__(self, progress: keras.callbacks.ProgbarLogger, max_steps: int, batches: int) -> None:
        super().__init__()
        self._progress, self._max_steps, self._batches = progress, max_steps, batches

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._progress.target = min(self._progress.target, self._batches)  # the last epoch may be shorter

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._batches -= 1
        # With loss scaling, some batches make no step.
        if self._batches <= 0 and int(self.model.optimizer.iterations) >= self._max_steps:
            self.model.stop_training = True


def check_no_model_fn(options: Mapping[str, Any]) -> None:
    """Raise InputError for arguments of TensorFlow 1 estimators, and name their replacements."""
    if found := [name for name in ("model_fn", "config", "params", "warm_start_from") if name in options]:
        raise InputError(
            f"strategy.estimator({', '.join(f'{name}=…' for name in found)})",
            expected="strategy.estimator(make_model, model_dir), where make_model() returns a compiled Keras model: "
            "TensorFlow 2.16 removed tf.estimator, and with it EstimatorSpec and model_fn",
            received="the arguments of tf.estimator.Estimator",
            fix="build the model in make_model: embedding_column -> keras.layers.Embedding in embedding_scope(), "
            "minimize -> model.compile(optimizer, loss), tf.estimator.TrainSpec and EvalSpec -> those of "
            "xmc_tf.collective.estimator, export_saved_model(folder, input_receiver) -> export_saved_model(folder). "
            "docs/how-to/tensorflow-1.md describes all steps",
        )
