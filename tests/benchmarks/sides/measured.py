"""Runs a command and writes down what it took: ``measured.py FOLDER command …``; under mpiexec a file a rank.

Uses nothing but Python itself, so that both sides of a comparison can be run by it.
"""

import json
import os
import resource
import subprocess
import sys
import time

folder, command = sys.argv[1], sys.argv[2:]
started = time.monotonic()
code = subprocess.run(command, check=False).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
figures = {
    "seconds": round(time.monotonic() - started, 2),
    "cpu_s": round(used.ru_utime + used.ru_stime, 2),
    "peak_mb": round(used.ru_maxrss / 1024, 1),
}
with open(os.path.join(folder, f"{rank}.json"), "w", encoding="utf-8") as file:
    json.dump(figures, file)
sys.exit(code)
