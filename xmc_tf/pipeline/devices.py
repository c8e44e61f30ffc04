"""The device and the precision of a process."""

from collections.abc import Iterator
from contextlib import contextmanager

from xmc_tf.common.process.quiet import muted_stderr
from xmc_tf.ranks.communicator import Communicator


def choose_device(communicator: Communicator, use_gpu: bool = True) -> str:
    """Assign this process its own GPU, if its host has one; must be called before TensorFlow computes anything.

    Args:
        communicator: tells which of the host's processes this is.
        use_gpu: false for the CPU even where there are GPUs.

    Returns:
        What was chosen, in words.
    """
    with muted_stderr():
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
        if not gpus or not use_gpu:
            tf.config.set_visible_devices([], "GPU")
            return "CPU"
        if communicator.size > 1:
            gpus = [gpus[communicator.local_rank % len(gpus)]]
            tf.config.set_visible_devices(gpus, "GPU")
        for gpu in gpus:
            # All of the memory at once would leave none to a second process, nor to a look at nvidia-smi.
            tf.config.experimental.set_memory_growth(gpu, True)
    return ", ".join(gpu.name.removeprefix("/physical_device:") for gpu in gpus)


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Set the precision of models that are built inside: ``off`` for full precision, ``fp16``, ``bf16``."""
    import tf_keras

    policy = {"off": "float32", "fp16": "mixed_float16", "bf16": "mixed_bfloat16"}[name]
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy(policy)
    try:
        yield
    finally:
        tf_keras.mixed_precision.set_global_policy(before)
