from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from xmc_tf.common.errors import InputError

# A GPU whose memory or time is used more than this is not free: a training would fail, or share it.
BUSY_MEMORY, BUSY_TIME = 0.5, 0.5


class Gpu(NamedTuple):
    """A GPU: its name for ``CUDA_VISIBLE_DEVICES``, and the used fractions of its memory and time."""

    name: str
    memory: float
    utilisation: float

    @property
    def free(self) -> bool:
        return self.memory < BUSY_MEMORY and self.utilisation < BUSY_TIME


def visible_gpus(environment: Mapping[str, str], library: Any = None) -> list[Gpu]:
    """Return the visible GPUs, least busy first, or none if the driver or nvidia-ml-py (``library``) is missing."""
    try:
        nvml = import_module("pynvml") if library is None else library
    except ImportError:
        return []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    try:
        all_gpus = [_gpu(nvml, number) for number in range(nvml.nvmlDeviceGetCount())]
    finally:
        nvml.nvmlShutdown()
    chosen = _visible(environment.get("CUDA_VISIBLE_DEVICES"), all_gpus)
    return sorted(chosen, key=lambda gpu: (round(gpu.memory, 2), gpu.utilisation))


def least_busy(gpus: list[Gpu], count: int) -> list[str]:
    if count > len(gpus):
        fix = "start fewer ranks, or make more GPUs visible (CUDA_VISIBLE_DEVICES)"
        raise InputError("too few GPUs on this host", expected=f"{count}", received=f"{len(gpus)} visible", fix=fix)
    return [gpu.name for gpu in gpus[:count]]


def _gpu(nvml: Any, number: int) -> tuple[Gpu, str]:
    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    try:
        utilisation = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    except nvml.NVMLError:  # not supported by parts of a GPU (MIG)
        utilisation = 0.0
    uuid = nvml.nvmlDeviceGetUUID(handle)
    used = memory.used / max(1, memory.total)
    return Gpu(str(number), used, utilisation), uuid.decode() if isinstance(uuid, bytes) else uuid


def _visible(variable: str | None, gpus: list[tuple[Gpu, str]]) -> list[Gpu]:
    """Return the GPUs that are visible to CUDA, which ignores the first invalid name and all names after it."""
    if variable is None:
        return [gpu for gpu, _ in gpus]
    found = []
    for name in (part.strip() for part in variable.split(",")):
        if name.isdecimal() and len(name) < 10 and int(name) < len(gpus):
            found.append(gpus[int(name)][0])
        elif name.startswith(("GPU-", "MIG-")) and (same := [gpu for gpu, uuid in gpus if uuid.startswith(name)]):
            found.append(same[0]._replace(name=name))
        else:
            break
    return found
