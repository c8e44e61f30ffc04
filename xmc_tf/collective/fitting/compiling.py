"""Changes ``model.compile`` inside ``strategy.scope()`` so that models train over all ranks."""

import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras

from xmc_tf.collective.blocks import patched
from xmc_tf.collective.dynamic_tables.keras_embedding import GrowingEmbedding
from xmc_tf.collective.embedding_collection.collection import EmbeddingCollection
from xmc_tf.collective.fitting.metrics import announce_own_metrics
from xmc_tf.collective.fitting.steps import normalized_over_ranks, take_steps_over_ranks
from xmc_tf.collective.keras_2 import check_keras_3, keras_2_refused
from xmc_tf.collective.optimizers.keras_optimizer import CollectiveOptimizer
from xmc_tf.collective.tables.keras_embedding import ShardedEmbedding
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator

log = logging.getLogger(__name__)

WITH_TABLES = (ShardedEmbedding, GrowingEmbedding, EmbeddingCollection)


def check_keras() -> None:
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise InputError(
            "Keras uses an unsupported backend",
            expected="tensorflow",
            received=backend,
            fix="set KERAS_BACKEND=tensorflow before `import keras`",
        )


@contextmanager
def compiled_over_ranks(
    communicator: Communicator,
    change: Callable[[keras.Model, CollectiveOptimizer | None], CollectiveOptimizer],
    large: Callable[[int, int], bool],
) -> Iterator[None]:
    """Make ``model.compile`` in the block set the optimizer to ``change(model, optimizer)``. ``optimizer`` is the one
    that was passed if it is a ``CollectiveOptimizer``, and None otherwise.
    """
    # The class that has the method: Keras does not recompile loaded models of a class with a method of its own.
    owner = next(one for one in keras.Model.__mro__ if "compile" in vars(one))
    original = owner.compile

    @functools.wraps(original)
    def compile_and_change(self: keras.Model, *args: Any, **kwargs: Any) -> None:
        given = inspect.signature(original).bind(self, *args, **kwargs)
        optimizer = given.arguments.get("optimizer", "rmsprop")
        check_keras_3(f"optimizer of model {self.name!r}", optimizer)
        passed = optimizer if isinstance(optimizer, CollectiveOptimizer) else None
        if passed is not None:
            given.arguments["optimizer"] = passed.of_user  # what saved models are compiled with
        if communicator.size > 1:
            if given.arguments.get("jit_compile", "auto") is True:
                raise InputError(
                    f"model {self.name!r}: jit_compile=True",
                    expected="jit_compile=False: XLA cannot compile exchanges between ranks",
                    fix="leave jit_compile out, and decorate the functions of your layers that need it with "
                    "@tf.function(jit_compile=True)",
                )
            given.arguments["jit_compile"] = False
            for layer in self._flatten_layers():
                if getattr(layer, "stateful", False):
                    raise InputError(
                        f"layer {layer.name!r}: stateful=True",
                        expected="layers whose states are the same on all ranks; a rank has only its own examples",
                        fix="pass the states of the examples as inputs (initial_state=...), or train in one process",
                    )
        original(*given.args, **given.kwargs)
        # TensorFlow does not track it: checkpoints find the user's optimizer by this name, as in plain Keras.
        object.__setattr__(self, "optimizer", change(self, passed))
        self.optimizer.check_tables([layer.name for layer in self._flatten_layers() if isinstance(layer, WITH_TABLES)])
        if communicator.size > 1:
            take_steps_over_ranks(self, communicator)
            if communicator.rank == 0:
                announce_own_metrics([*map(given.arguments.get, ("metrics", "weighted_metrics")), self.metrics])
            _warn_of_replicated_embeddings(self, large)

    with (
        patched(owner, compile=compile_and_change),
        keras_2_refused("Model", "compile", "a model inside strategy.scope()"),
        normalized_over_ranks(communicator),
    ):
        yield


def _warn_of_replicated_embeddings(model: keras.Model, large: Callable[[int, int], bool]) -> None:
    for layer in model._flatten_layers():
        if not isinstance(layer, keras.layers.Embedding) or getattr(layer, "is_sharded", False):
            continue
        if not large(layer.input_dim, layer.output_dim):
            continue
        log.warning(
            "embedding %r (%d rows of %d) was made outside strategy.embedding_scope(): every rank holds all of it. To "
            "shard it, make it inside `with strategy.embedding_scope():`",
            layer.name,
            layer.input_dim,
            layer.output_dim,
        )
