"""Memory and time of the preparation of interactions, and whether a run after a killed one gives the same result.

    python -m benchmarks.sequences_prepare [--interactions 10000000]

Prints one JSON line. The interactions are generated: users are drawn evenly, items by a power law.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

AIM_MB = 1500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interactions", type=int, default=10_000_000)
    parser.add_argument("--users", type=int, default=500_000)
    parser.add_argument("--items", type=int, default=200_000)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = write(folder / "interactions.csv", a.interactions, a.users, a.items)
        start = time.perf_counter()
        peak = prepared(table, folder / "whole")
        seconds = time.perf_counter() - start
        killed_at = prepared(table, folder / "broken", kill_after=seconds / 2)
        prepared(table, folder / "broken")
        same = all(
            path.read_bytes() == (folder / "broken" / path.name).read_bytes() for path in (folder / "whole").iterdir()
        )
        header = json.loads((folder / "whole" / "prepared.json").read_text())
        size = table.stat().st_size
    figures = {
        "figure": "sequences_prepare", "interactions": a.interactions, "users": header["users"],
        "items": header["items"], "table_mb": round(size / 2**20), "peak_mb": round(peak), "aim_mb": AIM_MB,
        "seconds": round(seconds, 1), "interactions_per_second": round(a.interactions / seconds),
        "killed": killed_at < 0, "same_after_a_kill": same,
    }  # fmt: skip
    print(json.dumps(figures))
    sys.exit(peak > AIM_MB or not same)


def write(path: Path, count: int, users: int, items: int) -> Path:
    """Write a CSV of interactions."""
    draw = np.random.default_rng(0)
    with path.open("w") as file:
        file.write("user_id,item_id,timestamp\n")
        for low in range(0, count, 1 << 18):
            size = min(1 << 18, count - low)
            columns = (
                draw.integers(0, users, size),
                np.minimum(draw.zipf(1.2, size), items),
                draw.integers(1_500_000_000, 1_700_000_000, size),
            )
            rows = zip(*(column.tolist() for column in columns), strict=True)
            file.writelines(f"user-{user},item-{item},{at}\n" for user, item, at in rows)
    return path


def prepared(table: Path, folder: Path, kill_after: float | None = None) -> float:
    """Prepare in a process; return its peak of memory in MiB, or a negative number if it was killed."""
    command = [sys.executable, "-m", "xmc_tf.sequences.prepare", str(table), "-o", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if kill_after is not None:
        time.sleep(kill_after)
        process.kill()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        assert kill_after is not None, f"the preparation ended with {process.returncode}"
        return -1.0
    return used.ru_maxrss / 1024


if __name__ == "__main__":
    main()
