"""What the first use costs, and what each later start: training and prediction of a small model, and one query.

    python -m tests.benchmarks.first_compile [--before DIR] [--runs 7]

Runs ``tests/installation/first_linear.py`` with an empty cache of kernels, and then ``xmc-tf predict -q`` with the
kernels in the cache, in turns with those of ``--before``, a folder with another version of the package. Prints one JSON
line; for ``now`` and ``before``:

``first_compile_cpu_s``  processor seconds of compiling the kernels
``kernels``              number of kernels that were compiled, and of ``functions``, those inside kernels included
``query_cpu_s``          processor seconds of a query from the shell, median

``same``                 both trained the same model, bit for bit (with ``--before``)
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

_REPOSITORY = Path(__file__).parents[2]
_SIDE = Path(__file__).parent / "sides" / "first_compile_side.py"
_SCRIPT = _REPOSITORY / "tests" / "installation" / "first_linear.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a folder with another version of the package to compare with")
    parser.add_argument("--runs", type=int, default=7, help="number of queries")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        sides = {"now": _Side(_REPOSITORY, Path(name, "now"))}
        if a.before:
            sides["before"] = _Side(a.before.resolve(), Path(name, "before"))
        line: dict[str, Any] = {side: one.first() for side, one in sides.items()}
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        for run in range(a.runs + 1):
            for side, one in sides.items():
                taken = one.query()
                seconds[side] += [taken] if run else []  # the first fills the page cache
        for side in sides:
            line[side]["query_cpu_s"] = round(median(seconds[side]), 3)
        digests = {one.pop("digest") for one in line.values()}
    same = {"same": len(digests) == 1} if a.before else {}
    print(json.dumps({"figure": "first_compile", "load": os.getloadavg()[0], **line, **same}))


class _Side(NamedTuple):
    """A version of the package, and a folder of its own."""

    package: Path
    folder: Path

    def first(self) -> dict[str, Any]:
        """Train and predict with an empty cache; return the figures."""
        self.folder.mkdir()
        out = self._run(str(_SIDE), str(_SCRIPT)).stdout
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        return {"first_compile_cpu_s": found.pop("cpu_s"), **found}

    def query(self) -> float:
        """Answer a query from the shell; return the processor seconds."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self._run("-m", "xmc_tf", "predict", "-m", "model", "-q", "the museum of the city")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(self.package), "XMC_TF_CACHE": str(self.folder / "cache")}
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env=environment, check=True, capture_output=True, text=True
        )


if __name__ == "__main__":
    main()
