"""Error messages for models, layers and optimizers of tf_keras (Keras 2). Each rank would train them separately."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from xmc_tf.collective.blocks import patched
from xmc_tf.common.errors import InputError


def check_keras_3(what: str, value: Any) -> None:
    """Raise InputError if an object is from Keras 2. The message calls the object ``what``."""
    if type(value).__module__.startswith("tf_keras"):
        raise InputError(
            f"{what} is from tf_keras",
            expected="Keras 3",
            received="Keras 2",
            fix="write `import keras` instead of `import tf_keras`, or, if you use tf.keras, unset TF_USE_LEGACY_KERAS",
        )


@contextmanager
def keras_2_refused(owner: str, method: str, what: str) -> Iterator[None]:
    """Raise InputError in the block when a method of a Keras 2 class, such as ``layers.Embedding``, is called."""
    if "tf_keras" not in sys.modules:
        yield
        return
    refuse = {method: lambda self, *args, **kwargs: check_keras_3(what, self)}
    with patched(attrgetter(owner)(sys.modules["tf_keras"]), **refuse):
        yield
