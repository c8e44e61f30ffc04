"""Errors for models, layers and optimizers of tf_keras (Keras 2), which each rank would train alone."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from xmc_tf.collective.blocks import replaced
from xmc_tf.common.errors import InputError


def check_keras_3(what: str, value: Any) -> None:
    """Refuse an object of Keras 2, which the error calls ``what``."""
    if type(value).__module__.startswith("tf_keras"):
        raise InputError(
            what,
            expected="Keras 3",
            received="Keras 2",
            fix="write `import keras` instead of `import tf_keras`, or, if you use tf.keras, unset TF_USE_LEGACY_KERAS",
        )


@contextmanager
def keras_2_refused(owner: str, method: str, what: str) -> Iterator[None]:
    """Refuse calls of a method of a class of Keras 2, such as ``layers.Embedding``, in the block."""
    if "tf_keras" not in sys.modules:
        yield
        return
    refuse = {method: lambda self, *args, **kwargs: check_keras_3(what, self)}
    with replaced(attrgetter(owner)(sys.modules["tf_keras"]), **refuse):
        yield
