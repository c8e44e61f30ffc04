"""Tests of the choice of GPUs, with a fake of NVIDIA's library."""

from types import SimpleNamespace

import pytest

from xmc_tf.common.errors import InputError
from xmc_tf.launch.gpus import least_busy, visible_gpus


class Fake:
    """``pynvml`` with GPUs of the given used memory and utilisation, in percent."""

    class NVMLError(Exception):
        pass

    def __init__(self, *gpus, driver=True):
        self.gpus, self.driver, self.open = gpus, driver, 0

    def nvmlInit(self):  # noqa: N802
        if not self.driver:
            raise self.NVMLError
        self.open += 1

    def nvmlShutdown(self):  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self):  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, number):  # noqa: N802
        return number

    def nvmlDeviceGetMemoryInfo(self, number):  # noqa: N802
        return SimpleNamespace(used=self.gpus[number][0], total=100)

    def nvmlDeviceGetUtilizationRates(self, number):  # noqa: N802
        if self.gpus[number][1] is None:
            raise self.NVMLError
        return SimpleNamespace(gpu=self.gpus[number][1])

    def nvmlDeviceGetUUID(self, number):  # noqa: N802
        return f"GPU-{number}abc"


def names(fake, variable=None):
    return [gpu.name for gpu in visible_gpus({} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}, fake)]


def test_the_least_busy_gpus_come_first_by_memory_and_then_by_utilisation():
    fake = Fake((80, 0), (10, 90), (10, 5), (0, None))
    assert names(fake) == ["3", "2", "1", "0"]
    assert fake.open == 0
    assert least_busy(visible_gpus({}, fake), 2) == ["3", "2"]
    assert [gpu.free for gpu in visible_gpus({}, fake)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("variable", "expected"),
    [("2,0", ["2", "0"]), ("", []), ("-1", []), ("1,9,0", ["1"]), ("GPU-2,0", ["GPU-2", "0"]), ("0", ["0"])],
)
def test_only_visible_gpus_are_used_as_cuda_reads_the_variable(variable, expected):
    assert names(Fake((30, 0), (20, 0), (10, 0)), variable) == expected


def test_a_host_without_a_driver_has_no_gpus():
    assert names(Fake((0, 0), driver=False)) == []


def test_too_few_gpus_are_reported():
    with pytest.raises(InputError, match="too few GPUs on this host"):
        least_busy(visible_gpus({}, Fake((0, 0))), 2)
