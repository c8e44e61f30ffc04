"""``python -m tests.installation``: install without constraints.txt, as a user of pip does, and train.

- ``newest``: an empty environment of the newest Python with ``xmc_tf[tf,mpi]``, in the versions that pip chooses today.
  A linear model and a tiny XR-Transformer are trained from text, the latter alone and on two ranks under mpiexec,
  exported and asked. No compiler is on the path.
- ``oldest``: the same with the oldest Python, and the oldest allowed version of every direct dependency.
- ``core``: the light installation, without TensorFlow (``core.py``).
- ``arm64``: the light installation for ARM64, under emulation (``arm64.py``); half an hour, so only if it is named.

By default newest and core are tried. The environment of newest is kept in the cache under the versions that pip
chose, since TensorFlow takes minutes to install: an empty one is made when a version changes. ``--full`` makes all
environments again (1.5 GB each), tries oldest too, and core with each Python and with all tests that need no extra. Run
it after a change of a range in setup.cfg. Needs a package index.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from configparser import ConfigParser
from pathlib import Path
from types import MappingProxyType

from tests.installation.arm64 import attempt_arm64
from tests.installation.core import MINORS, attempt_core, find_python

_ROOT = Path(__file__).parents[2]
_ENDS = ("newest", "oldest")
_PROGRAM = _ROOT / "tests/installation/first_training.py"
_EXTRAS = "[tf,mpi]"
_CACHE = Path(os.environ.get("XMC_TF_TEST_CACHE", Path.home() / ".cache" / "xmc_tf"))


def main() -> None:
    """Tries what was named and exits with 1 if something fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.installation", description=__doc__)
    parser.add_argument(
        "ends", nargs="*", metavar="newest|oldest|core|arm64", help="which to try (default: newest and core)"
    )
    parser.add_argument("--full", action="store_true", help="make all environments again, and try oldest too")
    arguments = parser.parse_args()
    if wrong := set(arguments.ends) - {*_ENDS, "core", "arm64"}:
        parser.error(f"expected newest, oldest, core or arm64, got {', '.join(wrong)}")
    tried = arguments.ends or (["core", *_ENDS] if arguments.full else ["core", "newest"])
    good = True
    with tempfile.TemporaryDirectory(prefix="xmc-tf-wheel-") as folder:
        _run(
            sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps", "-w", folder, _ROOT
        )
        (wheel,) = Path(folder).glob("*.whl")
        for one in tried:
            if one == "core":
                good &= attempt_core(_run, wheel, arguments.full)
            elif one == "arm64":
                good &= attempt_arm64(_run, wheel)
            else:
                good &= attempt(one, wheel, arguments.full)
    sys.exit(0 if good else 1)


def attempt(end: str, wheel: Path, full: bool) -> bool:
    """Installs, trains, and prints one line; the output of what failed is printed too."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="xmc-tf-installation-") as name:
        folder = Path(name)
        try:
            python, chosen = install(end, wheel, folder, full)
            installed = time.monotonic()
            (folder / "work").mkdir()
            # As on a machine without a compiler, on which kernels have not been compiled yet.
            places = {"PATH": str(python.parent), "XMC_TF_CACHE": str(folder / "cache")}
            _run(python, _PROGRAM, cwd=folder / "work", env=places)
        except subprocess.CalledProcessError as error:
            command = " ".join(map(str, error.cmd))
            print(f"installation, {end}: FAILED\n$ {command}\n{error.stdout[-8000:]}", flush=True)
            return False
    times = f"installed in {installed - start:.0f} s, trained in {time.monotonic() - installed:.0f} s"
    print(f"installation, {end}: {times}, with {', '.join(chosen)}", flush=True)
    return True


def install(end: str, wheel: Path, folder: Path, full: bool) -> tuple[Path, list[str]]:
    """Make an environment with the package in it.

    Returns:
        Its Python, and the versions of Python and of the direct dependencies.
    """
    there = [python for minor in MINORS if (python := find_python(minor))]
    python, constraint = there[-1 if end == "newest" else 0], []
    if end == "oldest":
        (folder / "oldest.txt").write_text("".join(f"{name}=={low}\n" for name, low in lower_bounds().items()))
        constraint = ["-c", str(folder / "oldest.txt")]
    venv, report = folder / "venv", folder / "report.json"
    _run(python, "-m", "venv", venv)
    if not full:
        pip = _pip(venv)
        _run(*pip, "install", "-q", "--dry-run", "--report", report, *constraint, f"{wheel}{_EXTRAS}")
        versions = sorted(
            f"{one['metadata']['name']}=={one['metadata']['version']}"
            for one in json.loads(report.read_text())["install"]
        )
        key = hashlib.sha256("\n".join([python, *versions]).encode()).hexdigest()[:16]
        venv = _kept_environment(python, _CACHE / f"installation-{end}-{key}", f"{wheel}{_EXTRAS}", constraint)
        _run(*_pip(venv), "install", "-q", "--no-deps", "--force-reinstall", wheel)
    else:
        _run(*_pip(venv), "install", "-q", *constraint, f"{wheel}{_EXTRAS}")
    listed = json.loads(_run(*_pip(venv), "list", "--format=json"))
    found = {_normal(one["name"]): one["version"] for one in listed}
    named = [f"{name} {found[_normal(name)]}" for name in lower_bounds()]
    return venv / "bin/python", [_run(python, "--version").strip(), *named]


def _kept_environment(python: str, folder: Path, wanted: str, constraint: list[str]) -> Path:
    """Return an environment of the cache, which is made if it is not there; older ones are removed."""
    if not (folder / "ready").exists():
        for older in _CACHE.glob(f"{folder.name.rpartition('-')[0]}-*"):
            shutil.rmtree(older)
        _run(python, "-m", "venv", folder)
        _run(*_pip(folder), "install", "-q", "--no-compile", *constraint, wanted)  # half of its modules are never used
        (folder / "ready").touch()
    return folder


def _pip(venv: Path) -> tuple[object, ...]:
    return (venv / "bin/python", "-m", "pip", "--disable-pip-version-check")


def lower_bounds() -> dict[str, str]:
    """The oldest allowed version of each direct dependency of the core and of the extras."""
    config = ConfigParser()
    config.read(_ROOT / "setup.cfg")
    extras = config["options.extras_require"]
    lines = "\n".join([config["options"]["install_requires"], extras["tf"], extras["mpi"]]).split("\n")
    found = (re.fullmatch(r"([\w-]+) >=([\d.]+)(,<[\d.]+)?", line) for line in lines if line)
    return {one[1]: one[2] for one in found if one}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _run(*command: object, cwd: object = None, env: Mapping[str, str] = MappingProxyType({})) -> str:
    # Where this process finds its modules is no concern of the other environment.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(part) for part in command],
        cwd=None if cwd is None else str(cwd), env={**environment, **env}, check=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ).stdout  # fmt: skip


if __name__ == "__main__":
    main()
