"""Writing a large file at once and in small steps, in turns, after pauses in which free memory goes back to the host.

The small steps end where pages end, or (``across_pages``) within them.

    python -m tests.benchmarks.large_writes [--folder .] [--mb 64] [--rounds 3]

Prints one JSON line: the median seconds of each, and how many times as fast the steps from page to page are.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from xmc_tf.common.files.writing import write_in_steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=".", help="on the disk that is asked about")
    parser.add_argument("--mb", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pause", type=float, default=4.0, help="seconds before each file")
    a = parser.parse_args()
    data = np.ones(a.mb << 20, np.uint8).data
    seconds: dict[str, list[float]] = {"at_once": [], "across_pages": [], "in_steps": []}
    with tempfile.TemporaryDirectory(dir=a.folder) as name:
        for _ in range(a.rounds):
            for how, taken in seconds.items():
                time.sleep(a.pause)
                path, start = Path(name, how), time.perf_counter()
                with path.open("wb", buffering=0) as file:
                    if how == "at_once":
                        file.write(data)
                    else:
                        begin = file.write(b"head")
                        write_in_steps(file, data, begin if how == "in_steps" else 0)
                taken.append(time.perf_counter() - start)
                path.unlink()
    middle = {how: round(median(taken), 3) for how, taken in seconds.items()}
    times = {how: round(median(taken) / median(seconds["in_steps"]), 2) for how, taken in seconds.items()}
    print(json.dumps({"figure": "large_writes", "mb": a.mb, "seconds": middle, "times_as_fast": times}))


if __name__ == "__main__":
    main()
