"""The names of post-processors, and their numbers in kernels."""

from functools import lru_cache

from xmc_tf.common.errors import InputError
from xmc_tf.params import POST_PROCESSORS
from xmc_tf.rankers.kernels.postprocess import HINGE, LOG_HINGE, LOG_SIGMOID, NOOP, SIGMOID


@lru_cache
def post_processor_code(name: str) -> int:
    """Return a post-processor's number in kernels; the last digit of a hinge's number is its power."""
    if name not in POST_PROCESSORS:
        raise InputError(f"unknown post-processor {name!r}", expected=", ".join(POST_PROCESSORS), received=name)
    if name.endswith("-hinge"):
        power = int(name.removesuffix("-hinge")[-1])
        return (LOG_HINGE if name.startswith("log-") else HINGE) + power
    return {"noop": NOOP, "sigmoid": SIGMOID, "log-sigmoid": LOG_SIGMOID}[name]
