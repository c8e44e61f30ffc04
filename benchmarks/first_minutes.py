"""What a new user waits for: the installation, the first training and prediction, later queries, and `make demo`.

    python -m benchmarks.first_minutes [--runs 7] [--demo]

Makes a virtual environment, installs the core of this checkout with pip, trains on a small table with an empty cache of
kernels, and asks the model; then asks again from the shell, with the kernels in the cache. With ``--demo``, it also
runs ``make demo`` in a clone of the last commit. Prints one line of JSON, in seconds by the clock and of processors.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_TOPICS = ("library", "kitchen", "harbour", "forest", "theatre", "station", "garden", "museum")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7, help="number of later queries")
    parser.add_argument("--demo", action="store_true", help="also run make demo in a clone, which takes minutes")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="xmc-tf-first-") as name:
        folder = Path(name)
        found: dict[str, Any] = {"install": _taken(folder, [sys.executable, "-m", "venv", "venv"])}
        python = str(folder / "venv" / "bin" / "python")
        pip = _taken(folder, [python, "-m", "pip", "install", "-q", "-c", str(_ROOT / "constraints.txt"), str(_ROOT)])
        found["install"] = {unit: round(found["install"][unit] + pip[unit], 1) for unit in pip}
        rows = [f"{number} word{number % 40} {_TOPICS[number % 8]},{_TOPICS[number % 8]}" for number in range(400)]
        (folder / "data.csv").write_text("\n".join(["text,labels", *rows]) + "\n")
        xmc_tf, query = [python, "-m", "xmc_tf"], ["predict", "-m", "model", "-q", "the museum of the city"]
        found["first_training"] = _taken(folder, [*xmc_tf, "train", "data.csv", "-m", "model"])
        found["first_query"] = _taken(folder, [*xmc_tf, *query])
        later = [_taken(folder, [*xmc_tf, *query]) for _ in range(a.runs)]
        found["query"] = {unit: statistics.median(one[unit] for one in later) for unit in later[0]}
        found["to_first_answer_s"] = round(
            sum(found[part]["clock_s"] for part in ("install", "first_training", "first_query")), 1
        )
        if a.demo:
            subprocess.run(["git", "clone", "-q", str(_ROOT), "clone"], cwd=folder, check=True)
            found["demo"] = _taken(folder / "clone", ["make", "demo"])
    print(json.dumps({"figure": "first_minutes", "load": round(os.getloadavg()[0], 1), **found}))


def _taken(folder: Path, command: list[str]) -> dict[str, float]:
    """Run a command, and return its seconds by the clock and of processors."""
    environment = {**os.environ, "XMC_TF_CACHE": str(folder / "cache")}
    environment.pop("PYTHONPATH", None)  # the installed package, not this checkout
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        command, cwd=folder, env=environment, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr
    )  # fmt: skip
    clock, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"clock_s": round(clock, 2), "cpu_s": round(cpu, 2)}


if __name__ == "__main__":
    main()
