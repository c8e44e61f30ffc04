"""Run a command and record its time and memory: ``measured.py FOLDER command …``; under mpiexec a file a rank.

``own_mb`` is the most memory that the command has held for itself, looked at four times a second: other than the
system's own count, ``peak_mb``, without the files that it maps, which the system may drop. Uses nothing but Python
itself, so that both sides of a comparison can be run by it.
"""

import json
import os
import resource
import subprocess
import sys
import threading
import time

_LOOK_S = 0.25


def own_mb(process: int) -> float:
    """Return the private memory of a process; 0 if it has ended."""
    try:
        with open(f"/proc/{process}/status", encoding="utf-8") as file:
            return max(int(line.split()[1]) / 1024 for line in file if line.startswith("RssAnon:"))
    except (OSError, ValueError):
        return 0.0


def watch(process: int, done: threading.Event, looks: list[float]) -> None:
    """Watch the process until it ends."""
    while not done.wait(_LOOK_S):
        looks.append(own_mb(process))


folder, command = sys.argv[1], sys.argv[2:]
started = time.monotonic()
child = subprocess.Popen(command)
done, looks = threading.Event(), [0.0]
threading.Thread(target=watch, args=(child.pid, done, looks), daemon=True).start()
code = child.wait()
done.set()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
figures = {
    "seconds": round(time.monotonic() - started, 2),
    "cpu_s": round(used.ru_utime + used.ru_stime, 2),
    "peak_mb": round(used.ru_maxrss / 1024, 1),
    "own_mb": round(max(looks), 1),
}
with open(os.path.join(folder, f"{rank}.json"), "w", encoding="utf-8") as file:
    json.dump(figures, file)
sys.exit(code)
