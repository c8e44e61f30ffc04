"""The error for models, layers and optimizers of tf_keras (Keras 2), of which the ranks would train different ones."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from xmc_tf.common.errors import InputError


def check_keras_3(what: str, value: Any) -> None:
    """Refuse an object of Keras 2.

    Args:
        what: what the error calls it.
        value: the object.
    """
    if type(value).__module__.startswith("tf_keras"):
        raise InputError(
            what,
            expected="Keras 3",
            received="Keras 2",
            fix="write `import keras` instead of `import tf_keras`, or, if you use tf.keras, unset TF_USE_LEGACY_KERAS",
        )


@contextmanager
def keras_2_refused(owner: str, method: str, what: str) -> Iterator[None]:
    """Refuse calls of a method of Keras 2 in the block.

    Args:
        owner: its class, as ``layers.Embedding``.
        method: its name.
        what: what the error calls it.
    """
    if "tf_keras" not in sys.modules:
        yield
        return
    refused = attrgetter(owner)(sys.modules["tf_keras"])
    original = getattr(refused, method)
    setattr(refused, method, lambda self, *args, **kwargs: check_keras_3(what, self))
    try:
        yield
    finally:
        setattr(refused, method, original)
