"""Where bfloat16 is chosen, and where it is refused."""

import pytest

from tests.refusals import refused
from xmc_tf.encoder import precision

AMX = "fpu avx2 avx512f avx512_bf16 amx_bf16 amx_tile amx_int8"
BF16 = "fpu avx2 avx512f avx512_bf16"
AVX2 = "fpu sse4_1 avx2 fma"


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return a function that makes this machine another one."""

    def make(flags, limit=None, onednn=None, vendor="GenuineIntel"):
        cpu = tmp_path / "cpuinfo"
        one = "processor\t: {}\nvendor_id\t: {}\nflags\t\t: {}\nbogomips\t: 1\n\n"
        cpu.write_text("".join(one.format(number, vendor, flags) for number in range(2)))
        monkeypatch.setattr(precision, "_CPU", cpu)
        monkeypatch.setattr(precision, "_visible_gpus", list)
        for name, value in (("ONEDNN_MAX_CPU_ISA", limit), ("TF_ENABLE_ONEDNN_OPTS", onednn)):
            monkeypatch.delenv(name, raising=False)
            if value is not None:
                monkeypatch.setenv(name, value)

    return make


@pytest.mark.parametrize(
    ("flags", "limit", "chosen", "possible"),
    [
        (AMX, None, "bf16", True),
        (AMX, "AVX512_CORE_AMX", "bf16", True),
        (AMX, "avx512_core_bf16", "off", True),
        (AMX, "AVX2", "off", False),
        (BF16, None, "off", True),
        (BF16, "AVX2", "off", False),
        (AVX2, None, "off", True),
        ("", None, "off", True),
    ],
)
def test_by_processor(machine, flags, limit, chosen, possible):
    machine(flags, limit)
    assert precision.fastest_precision() == chosen
    precision.check_precision("off")
    precision.check_precision("fp16")
    if possible:
        precision.check_precision("bf16")
    else:
        refused(f"--mixed-precision bf16(.|\\n)*ONEDNN_MAX_CPU_ISA={limit}", precision.check_precision, "bf16")


@pytest.mark.parametrize(
    ("flags", "limit", "chosen"),
    [(BF16, None, "bf16"), (BF16, "AVX512_CORE_BF16", "off"), (BF16, "AVX2", "off"), (AVX2, None, "off")],
)
def test_by_processor_of_amd(machine, flags, limit, chosen):
    machine(flags, limit, vendor="AuthenticAMD")
    assert precision.fastest_precision() == chosen


def test_without_onednn_bfloat16_is_possible_and_slow(machine):
    machine(AMX, limit="AVX2", onednn="0")
    precision.check_precision("bf16")
    assert precision.fastest_precision() == "off"


def test_gpus(machine, monkeypatch):
    machine(AVX2)
    for capability, chosen in (((7, 5), "off"), ((8, 0), "bf16"), ((9, 0), "bf16")):
        monkeypatch.setattr(precision, "_visible_gpus", lambda: ["a GPU"])
        monkeypatch.setattr(
            precision.tf.config.experimental, "get_device_details", lambda _, it=capability: {"compute_capability": it}
        )
        assert precision.fastest_precision() == chosen
        precision.check_precision("bf16")


def test_a_processor_that_cannot_be_read(machine, monkeypatch, tmp_path):
    machine(AMX)
    monkeypatch.setattr(precision, "_CPU", tmp_path / "missing")
    assert precision.fastest_precision() == "off"
