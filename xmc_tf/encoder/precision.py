"""The number format of an encoder's matrix products, and the choice of the fastest one for this machine."""

import os
from pathlib import Path

import tensorflow as tf

from xmc_tf.common.errors import InputError

DTYPES = {"off": tf.float32, "fp16": tf.float16, "bf16": tf.bfloat16}
_CPU = Path("/proc/cpuinfo")
_TENSOR_CORES = (8, 0)  # compute capability of GPUs with products in bfloat16
# oneDNN's names of instruction sets up to which ONEDNN_MAX_CPU_ISA limits it, without products in bfloat16.
_WITHOUT_AMX = (
    "SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI", "AVX512_CORE_BF16",
    "AVX10_1_512", "AVX512_CORE_FP16",
)  # fmt: skip
_WITHOUT_BF16 = _WITHOUT_AMX[:4]
# On processors with one of these flags, TensorFlow leaves products in bfloat16 to oneDNN, whatever its limit.
# On others, it computes them itself, slowly.
_BF16 = {"avx512f", "avx_ne_convert"}


def fastest_precision() -> str:
    """Return "bf16" where it is faster (CPUs with AMX, AMD with AVX512-BF16, GPUs since Ampere), else "off"."""
    if gpus := _visible_gpus():
        details = (tf.config.experimental.get_device_details(gpu) for gpu in gpus)
        fast = all(tuple(one.get("compute_capability", (0, 0))) >= _TENSOR_CORES for one in details)
    else:
        # With AVX512-BF16 alone, AMD's processors train 1.6 times as fast in bfloat16, Intel's slower than in float32.
        flags = _flags()
        of_amd = "avx512_bf16" in flags and _field("vendor_id") == "AuthenticAMD"
        fast = ({"amx_bf16", "amx_tile"} <= flags or of_amd) and _limit() not in _WITHOUT_AMX and _onednn()
    return "bf16" if fast else "off"


def check_precision(name: str) -> None:
    """Raise an InputError if bfloat16 would crash the process, because oneDNN is barred from its instructions."""
    on_onednn = name == "bf16" and not _visible_gpus() and _onednn()
    if on_onednn and _flags() & _BF16 and _limit() in _WITHOUT_BF16:
        raise InputError(
            "--mixed-precision bf16: matrix products in bfloat16 would crash the process",
            expected="an instruction set with such products, for example AVX512_CORE_AMX",
            received=f"ONEDNN_MAX_CPU_ISA={_limit()}",
            fix="use --mixed-precision off or --mixed-precision auto",
        )


def _limit() -> str:
    """Return the instruction set that oneDNN is limited to; empty if there is no limit."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or ""
    return limit.upper().removesuffix("_DEFAULT")


def _onednn() -> bool:
    """Return whether TensorFlow uses oneDNN for matrix products."""
    return os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1") != "0"


def _flags() -> set[str]:
    return set(_field("flags").split())


def _field(name: str) -> str:
    """Return a field of the first processor in /proc/cpuinfo; empty if it is missing."""
    try:
        text = _CPU.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")


def _visible_gpus() -> list[tf.config.PhysicalDevice]:
    return tf.config.get_visible_devices("GPU")
