"""The speed of the encoder: training steps and forward passes, compared with PyTorch.

    python -m benchmarks.encoder_speed [--peer PYTHON] [--rounds 3]

PYTHON runs an environment with torch and transformers; it trains with fused AdamW, in float32 and, where the processor
has instructions for it, with autocast to bfloat16. The encoder is that of all-MiniLM-L6-v2, with dropout and 2,842
labels. The sides take turns. Prints a JSON line per shape: medians of the milliseconds of the processor (all threads)
and of the clock, and how many times as fast we are by the processor.

On a busy machine, compare on one processor (``OMP_NUM_THREADS=1 taskset -c 0 python …``): PyTorch's threads wait for
each other by running, which counts as time of the processor.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

_SIDE = Path(__file__).with_name("sides") / "encoder_side.py"
_ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="a Python with torch and transformers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", nargs="+", default=list(_shapes()), choices=list(_shapes()))
    a = parser.parse_args()
    shapes = {name: lengths for name, lengths in _shapes().items() if name in a.shapes}
    # Without instructions for it, a step in bfloat16 takes minutes.
    kinds = ("float32", "bf16") if _has_bfloat16() else ("float32",)
    sides = {f"ours {kind}": (sys.executable, "tensorflow", kind) for kind in kinds}
    if a.peer:
        sides |= {f"pytorch {kind}": (a.peer, "pytorch", kind) for kind in kinds}
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for _ in range(a.rounds):
        for side, (python, *arguments) in sides.items():
            found[side].append(_run(python, [*arguments, json.dumps(shapes)]))
    for name in shapes:
        for kind in ("step", "forward"):
            taken = {
                side: [statistics.median(one["shapes"][name][kind][which] for one in runs) for which in (0, 1)]
                for side, runs in found.items()
            }
            ours = min(taken[side][1] for side in taken if side.startswith("ours"))
            others = {side: one[1] / ours for side, one in taken.items() if not side.startswith("ours")}
            print(json.dumps({
                "figure": "encoder_speed", "shape": name, "of": kind,
                "processor_ms": {side: round(1e3 * one[1], 1) for side, one in taken.items()},
                "clock_ms": {side: round(1e3 * one[0], 1) for side, one in taken.items()},
                "times_as_fast": {side: round(ratio, 2) for side, ratio in others.items()},
            }), flush=True)  # fmt: skip
    memory = {side: max(one["memory"] for one in runs) for side, runs in found.items()}
    print(json.dumps({"figure": "encoder_speed", "largest_memory_mib": memory}))


def _has_bfloat16() -> bool:
    """Return whether the processor has such products, and ONEDNN_MAX_CPU_ISA does not exclude them."""
    flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split()
    excluded = os.environ.get("ONEDNN_MAX_CPU_ISA", "").startswith(("SSE41", "AVX2", "AVX512_CORE_VNNI"))
    return not excluded and not {"avx512_bf16", "amx_bf16"}.isdisjoint(flags)


def _shapes() -> dict[str, list[int]]:
    """Return the lengths of each batch's documents; the mixed ones are a random batch of short abstracts and titles."""
    lengths = np.clip(np.random.default_rng(0).lognormal(3.2, 0.7, 32), 4, 128).astype(int)
    return {"1x32": [32], "32x64": [64] * 32, "8x512": [512] * 8, "mixed": sorted(map(int, lengths))}


def _run(python: str, arguments: list[str]) -> dict[str, Any]:
    environment = os.environ | {"PYTHONPATH": str(_ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([python, str(_SIDE), *arguments], capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(arguments[:2])} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
