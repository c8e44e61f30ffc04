"""Tests of the choice of GPUs, with a fake of NVIDIA's library."""

from types import SimpleNamespace

import pytest

from tests.refusals import refused
from xmc_tf.launch.gpus import least_busy, visible_gpus


class NVMLError(Exception):
    """NVIDIA's error."""


def fake_of(*gpus, driver=True):
    """Return ``pynvml`` with GPUs of the given used memory and utilisation, in percent; it counts calls in ``open``."""

    def init():
        if not driver:
            raise NVMLError
        fake.open += 1

    def utilisation(number):
        if gpus[number][1] is None:
            raise NVMLError
        return SimpleNamespace(gpu=gpus[number][1])

    fake = SimpleNamespace(
        open=0, NVMLError=NVMLError, nvmlInit=init, nvmlShutdown=lambda: setattr(fake, "open", fake.open - 1),
        nvmlDeviceGetCount=lambda: len(gpus), nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetMemoryInfo=lambda number: SimpleNamespace(used=gpus[number][0], total=100),
        nvmlDeviceGetUtilizationRates=utilisation, nvmlDeviceGetUUID=lambda number: f"GPU-{number}abc",
    )  # fmt: skip
    return fake


def names(fake, variable=None):
    return [gpu.name for gpu in visible_gpus({} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}, fake)]


def test_the_least_busy_gpus_come_first_by_memory_and_then_by_utilisation():
    fake = fake_of((80, 0), (10, 90), (10, 5), (0, None))
    assert names(fake) == ["3", "2", "1", "0"]
    assert fake.open == 0
    assert least_busy(visible_gpus({}, fake), 2) == ["3", "2"]
    assert [gpu.free for gpu in visible_gpus({}, fake)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("variable", "expected"),
    [("2,0", ["2", "0"]), ("", []), ("-1", []), ("1,9,0", ["1"]), ("GPU-2,0", ["GPU-2", "0"]), ("0", ["0"])],
)
def test_only_visible_gpus_are_used_as_cuda_reads_the_variable(variable, expected):
    assert names(fake_of((30, 0), (20, 0), (10, 0)), variable) == expected


def test_a_host_without_a_driver_has_no_gpus():
    assert names(fake_of((0, 0), driver=False)) == []


def test_too_few_gpus_are_reported():
    refused("too few GPUs on this host", least_busy, visible_gpus({}, fake_of((0, 0))), 2)
