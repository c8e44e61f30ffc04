"""The device and the precision of a process."""

import logging

from xmc_tf.common.process.quiet import muted_stderr
from xmc_tf.ranks.communicator import Communicator

_LOG = logging.getLogger(__name__)


def choose_device(communicator: Communicator, use_gpu: bool = True) -> str:
    """Select the GPUs of this process, before TensorFlow starts computing. Return their names, or "CPU" for none."""
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
            # Leave memory to other processes, instead of reserving all of it at the start.
            tf.config.experimental.set_memory_growth(gpu, True)
    return ", ".join(gpu.name.removeprefix("/physical_device:") for gpu in gpus)


def choose_precision(communicator: Communicator, name: str) -> str:
    """Return "off", "fp16" or "bf16", the same on all ranks. "auto" selects bfloat16 if it is faster on all ranks."""
    if name != "auto":
        return name
    from xmc_tf.encoder.precision import fastest_precision

    everywhere = set(communicator.allgather(fastest_precision()))
    chosen = everywhere.pop() if len(everywhere) == 1 else "off"
    if chosen != "off":
        _LOG.info("matrix products are computed in %s, which is faster here (--mixed-precision off: float32)", chosen)
    return chosen
