"""A rank of a test run: redirects its output to a file, and then runs the program.

``launch.py`` starts it through a launcher: ``python -m tests.distributed.rank FOLDER PROGRAM [argument …]``.
"""

import gc
import os
import runpy
import sys
from pathlib import Path

RANK_VARIABLES = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK")


def main() -> None:
    """Redirect the output of this rank, and run the program."""
    folder, program = Path(sys.argv[1]), sys.argv[2]
    rank = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), "0")
    (folder / f"{rank}.pid").write_text(str(os.getpid()))
    # Redirect the descriptors, because C++ libraries and the exiting interpreter do not use sys.stdout.
    output = os.open(folder / f"{rank}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    gc.set_threshold(100_000, 20, 20)  # as in tests/conftest.py
    sys.argv = sys.argv[2:]
    if program.startswith("module:"):
        runpy.run_module(program.removeprefix("module:"), run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(program).parent))
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
