"""One process of ``first_compile``: run a script, and say what compiling its kernels took.

    python first_compile_side.py SCRIPT

The last line is JSON: digest of what the script printed last, processor seconds of compiling, and numbers of kernels
(which Python calls) and of functions (with those inside kernels, Numba's own included).
"""

import contextlib
import hashlib
import io
import json
import runpy
import sys
import time
from typing import Any

from numba.core import event


class Compiling(event.Listener):
    """Adds up the processor seconds of compilations, which contain each other."""

    def __init__(self) -> None:
        self.cpu_s, self.kernels, self.functions = 0.0, 0, 0
        self._depth, self._began = 0, 0.0

    def on_start(self, _: Any) -> None:
        if self._depth == 0:
            self._began = time.process_time()
        self._depth += 1

    def on_end(self, _: Any) -> None:
        self._depth -= 1
        self.functions += 1
        if self._depth == 0:
            self.kernels += 1
            self.cpu_s += time.process_time() - self._began


def main() -> None:
    compiling = Compiling()
    event.register("numba:compile", compiling)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(sys.argv[1])
    found = {"cpu_s": round(compiling.cpu_s, 1), "kernels": compiling.kernels, "functions": compiling.functions}
    print(json.dumps(found | {"digest": hashlib.sha256(printed.getvalue().encode()).hexdigest()}))


if __name__ == "__main__":
    main()
