"""Processes that start in a blink: one that has imported what takes seconds becomes each of them by a fork.

What runs is the same: ``horovodrun`` itself, and each rank a process of its own with its own environment, that can be
killed by its number. Only the interpreter's start and its imports are shared, two thirds of the time of a training on
a few documents. At the fork nothing has begun that a fork would break: no thread, no TensorFlow operation, no Horovod.

``python -m tests.distributed.warm SOCKET`` waits at the socket; ``warm_client.py`` stands in for the process there.
"""

import array
import atexit
import contextlib
import gc
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
CLIENT = Path(__file__).with_name("warm_client.py")
START_S = 480.0


@contextmanager
def warm(folder: Path, environment: dict[str, str], *, horovod: bool = True) -> Iterator[list[str]]:
    """Yield the beginning of command lines that start fast; ``-m module arguments …`` must follow.

    Example:
        >>> with warm(tmp_path, environment) as python:
        ...     subprocess.run([*python, "-m", "xmc_tf.train", "--help"])

    Args:
        folder: for the socket and the log.
        environment: with which the imports are made.
        horovod: whether Horovod is imported, too; ranks of the other engine must not have it.
    """
    path, log = folder / "warm.socket", folder / "warm.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.distributed.warm", str(path), *(["horovod"] if horovod else [])],
            cwd=REPOSITORY, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        end = time.monotonic() + START_S
        while not path.exists():
            if server.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"the warm process does not come up:\n{log.read_text(errors='replace')}")
            time.sleep(0.05)
        # Isolated and without site-packages: 20 ms.
        yield [sys.executable, "-IS", str(CLIENT), str(path)]
    finally:
        server.terminate()
        server.wait(60)


def main() -> None:
    """Import the modules, and then fork a child for each request."""
    path = Path(sys.argv[1])
    _import_all("horovod" in sys.argv[2:])
    gc.freeze()  # no child looks for garbage among the modules, which would copy their memory
    alone = len(os.listdir("/proc/self/task"))
    assert alone == 1, f"{alone} threads: a fork would lose them"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path.with_suffix(".part")))
    server.listen(64)
    path.with_suffix(".part").rename(path)
    children: dict[socket.socket, tuple[int, int]] = {}  # by client connection: the child's pid and descriptor

    def end(*_: object) -> None:
        for pid, _descriptor in children.values():
            _kill(pid)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        ends = {descriptor: client for client, (_, descriptor) in children.items()}
        for ready in select.select([server, *children, *ends], [], [])[0]:
            if ready is server:
                client, _ = server.accept()
                children[client] = _start(client, [server, *children])
            elif ready in children:
                _forward(ready, children[ready][0])
            elif (client := ends[ready]) in children:
                pid, descriptor = children.pop(client)
                _tell(client, os.waitpid(pid, 0)[1])
                os.close(descriptor)


def _import_all(horovod: bool) -> None:
    """Import what trainings and the launcher need."""
    if horovod and importlib.util.find_spec("horovod"):
        for name in ("horovod.runner.launch", "horovod.tensorflow", "xmc_tf.ranks.horovod_backend"):
            importlib.import_module(name)
    for name in (
        "transformers.models.bert.configuration_bert", "xmc_tf.encoder", "xmc_tf.features", "xmc_tf.matcher.matcher",
        "xmc_tf.models.xtransformer", "xmc_tf.jobs.train_flags",
    ):  # fmt: skip
        importlib.import_module(name)


def _start(client: socket.socket, others: list[socket.socket]) -> tuple[int, int]:
    """Fork a child that runs the client's command; return its pid and a descriptor of its end."""
    descriptors = array.array("i")
    data, more, _, _ = client.recvmsg(1 << 20, socket.CMSG_SPACE(2 * descriptors.itemsize))
    descriptors.frombytes(more[0][2])
    asked: dict[str, Any] = json.loads(data)
    pid = os.fork()
    if pid:
        for descriptor in descriptors:
            os.close(descriptor)
        return pid, os.pidfd_open(pid)
    code = 1
    try:
        for one in (client, *others):
            one.close()
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        atexit._clear()
        for target, descriptor in enumerate(descriptors, 1):
            os.dup2(descriptor, target)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["folder"])
        code = _become(asked["arguments"])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _become(arguments: list[str]) -> int:
    """Run ``-m module arguments …`` as the interpreter does; return the exit code."""
    sys.argv = arguments[1:]
    sys.modules.pop(arguments[1], None)  # or runpy warns that it runs twice
    try:
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    except SystemExit as left:
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException as error:  # noqa: BLE001  as the interpreter does
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    finally:
        atexit._run_exitfuncs()
        if "mpi4py.MPI" in sys.modules:
            _finalize_mpi()
    return 0


def _finalize_mpi() -> None:
    """Finalize MPI, which otherwise happens at the end of the interpreter, and mpiexec insists on it."""
    from mpi4py import MPI

    if MPI.Is_initialized() and not MPI.Is_finalized():
        MPI.Finalize()


def _forward(client: socket.socket, pid: int) -> None:
    """Forward signals from the client to the child; the end of the client ends the child."""
    try:
        sent = client.recv(64)
    except ConnectionError:
        sent = b""
    for number in sent or [signal.SIGKILL]:
        _kill(pid, number)


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _tell(client: socket.socket, status: int) -> None:
    with contextlib.suppress(OSError):  # it has gone
        client.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    client.close()


if __name__ == "__main__":
    main()
