"""One rank of a test run: sends its output to a file of its own, then becomes the worker.

``python -m tests.distributed.rank FOLDER WORKER [argument …]``, started by ``launch.py`` through a launcher.
"""

import os
import runpy
import sys
from pathlib import Path

RANK_VARIABLES = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK")


def main() -> None:
    """Find out which rank this is, redirects, and runs the worker."""
    folder, worker = Path(sys.argv[1]), sys.argv[2]
    rank = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), "0")
    (folder / f"{rank}.pid").write_text(str(os.getpid()))
    # The descriptors themselves, not sys.stdout: C++ libraries and the interpreter's last words go there too.
    output = os.open(folder / f"{rank}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = sys.argv[2:]
    if worker.startswith("module:"):
        runpy.run_module(worker.removeprefix("module:"), run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(worker).parent))
        runpy.run_path(worker, run_name="__main__")


if __name__ == "__main__":
    main()
