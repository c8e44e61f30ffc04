"""Compile the rankers' kernels in a second process during the first training run on a machine.

A process compiles one kernel at a time. While the training run compiles the kernels that read texts, another process
trains tiny models, so that the kernels of rankers, search and trees are already in the cache when they are needed. A
training run that needs them sooner compiles kernels that it needs later, and waits: it does not compile the same ones.
"""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.compiled import kernel_folder
from xmc_tf.common.threads import thread_count
from xmc_tf.label_names.find_mentions import count_documents, find_matches
from xmc_tf.label_names.index import build_index, words_of_names
from xmc_tf.label_names.reading import as_written
from xmc_tf.metrics import evaluate

_PROGRAM = "xmc_tf.models.linear.tiny_trainings"


@contextmanager
def compiling_beside(ranks: int = 1) -> Iterator[None]:
    """Compile kernels in a second process during the ``with`` block, if none is cached and there is a second core."""
    # Numba makes the folder when it reads a module with kernels; a compiled one has an index.
    if ranks > 1 or any(kernel_folder().rglob("*.nbi")) or thread_count(-1) < 2:
        yield
        return
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", _PROGRAM],  # -P: files of the current folder are no modules
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # the training run repeats what failed here and reports it
        bufsize=0,
    )
    _beside.append(_WarmupProcess(process))
    try:
        yield
    finally:
        _beside.pop()
        process.terminate()
        with process:  # waits, and closes the pipe
            pass


class _WarmupProcess:
    """The second process. It writes a line when all kernels for few labels are in the cache, and one for many."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._lines, self._count = process.stdout, 0

    def wait(self, count: int) -> None:
        meanwhile = [compile_names, compile_measures]
        while self._count < count:
            if meanwhile and not select.select([self._lines], [], [], 0)[0]:
                meanwhile.pop()()
            elif self._lines.readline():
                self._count += 1
            else:  # the process has ended
                break


_beside: list[_WarmupProcess] = []  # none, or the one of this process


def wait_for_kernels(*, clusters: bool) -> None:
    """Wait until the second process, if there is one, has compiled the kernels of rankers and of clusters of labels."""
    for beside in _beside:
        beside.wait(1 + clusters)


def compile_names() -> None:
    reading, names = as_written(), ["name"]
    words = words_of_names(names, np.zeros(1, np.int32), reading)
    find_matches(build_index(words, count_documents(words.words, names, reading, 1), 1), names, reading, 1)


def compile_measures() -> None:
    evaluate(csr_matrix(np.eye(1)), csr_matrix(np.eye(1)), (1,))
