"""Peak memory of preparing a table and of labelling it, at one number of rows and at four times as many.

    python -m benchmarks.table_memory [--rows 250000]

The labels come from linear rankers on four labels, so that reading, features and writing dominate. Prints one JSON
line; the aim: labelling four times the rows takes less than 1.1 times the memory, and preparing a million 1.5 GB.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from xmc_tf.common.process.versions import package_versions

WORDS = {
    "sports": "match goal team",
    "cooking": "oven flour butter",
    "music": "concert guitar",
    "travel": "hotel beach",
}


def main() -> None:
    """Measure both commands at both sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=250_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory(prefix="xmc-tf-bench-") as place:
        folder = Path(place)
        model = ["-m", str(folder / "model")]
        peak_mb(["train", str(table(folder / "small.csv", 2000)), *model, "--effort", "fast"])
        found: dict[str, list[float]] = {"prepare": [], "predict": []}
        for count in (rows, 4 * rows):
            path = str(table(folder / f"{count}.csv", count))
            found["prepare"].append(peak_mb(["prepare", path, "-o", str(folder / f"{count}.sqlite")]))
            found["predict"].append(peak_mb(["predict", path, *model, "-o", str(folder / "out.csv")]))
    result = {"benchmark": "table_memory", "rows": [rows, 4 * rows], "peak_mb": found}
    ratios = {name: round(large / small, 3) for name, (small, large) in found.items()}
    print(json.dumps({**result, "ratio": ratios, "versions": package_versions("tensorflow")}))


def table(path: Path, rows: int) -> Path:
    """Write a table of texts of 60 words."""
    draw, names = np.random.default_rng(0), list(WORDS)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["text", "label"])
        for number, label in enumerate(draw.integers(0, len(names), rows)):
            words = WORDS[names[label]].split() * 30
            out.writerow([" ".join([*words[:59], str(number)]), names[label]])
    return path


def peak_mb(command: list[str]) -> float:
    """Run a command in a process of its own, and return the peak of its memory."""
    process = subprocess.Popen([sys.executable, "-m", "xmc_tf", *command], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"xmc-tf {' '.join(command)} failed")
    return round(used.ru_maxrss / 1024, 1)


if __name__ == "__main__":
    main()
