"""``python -m tests.installation``: install without constraints.txt, as a user of pip does, and train.

The ranges in setup.cfg are tried at both ends: once with the newest version of every package that pip chooses today,
and once with the oldest allowed version of every direct dependency. Each time a linear model and a tiny XR-Transformer
are trained from text, exported and asked. Beside them the light installation, without TensorFlow, is tried in an empty
environment of another Python (``core``), with the cheapest of its tests.

By default only the packages that differ from this environment are installed, into a temporary environment that takes
all others from this one; TensorFlow itself is always taken from this one. With the newest packages, the package is that
of this folder, so that kernels which the tests have compiled need not be compiled again; with the oldest ones and in
the light installation it is the wheel. ``--full`` installs everything (1.5 GB each), and tries the light installation
with each Python from 3.10 to 3.13 and with all tests that need no extra.
Needs a package index.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from configparser import ConfigParser
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType

from tests.installation.core import attempt_core

_ROOT = Path(__file__).parents[2]
_ENDS = ("newest", "oldest")
# 600 MB, and binary compatible within a minor version.
_TAKEN_FROM_HERE = {"tensorflow"}
# What pip itself needs; it is no dependency of the package.
_NOT_IMPORTED = {"pip", "setuptools", "wheel"}


def main() -> None:
    """Tries the ends that were named and exits with 1 if one of them fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.installation", description=__doc__)
    parser.add_argument("ends", nargs="*", metavar="newest|oldest|core", help="which to try (default: all)")
    parser.add_argument("--full", action="store_true", help="install every package, TensorFlow included")
    arguments = parser.parse_args()
    if wrong := set(arguments.ends) - {*_ENDS, "core"}:
        parser.error(f"expected newest, oldest or core, got {', '.join(wrong)}")
    ends = [end for end in _ENDS if end in arguments.ends or not arguments.ends]
    with tempfile.TemporaryDirectory(prefix="xmc-tf-wheel-") as folder:
        # Once, because two builds at a time would write to the same folder of the repository.
        _run(
            sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps", "-w", folder, _ROOT
        )
        (wheel,) = Path(folder).glob("*.whl")
        attempts = [partial(attempt, end, wheel, arguments.full) for end in ends]
        if "core" in arguments.ends or not arguments.ends:
            attempts.insert(0, partial(attempt_core, _run, wheel, arguments.full))  # first: it takes longest
        with ThreadPoolExecutor(1 if arguments.full else 2) as pool:
            results = list(pool.map(lambda one: one(), attempts))
    sys.exit(0 if all(results) else 1)


def attempt(end: str, wheel: Path, full: bool) -> bool:
    """Installs, trains, and prints one line; the output of what failed is printed too."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="xmc-tf-installation-") as folder:
        try:
            chosen = install(end, wheel, Path(folder), full)
            places = {"PYTHONPATH": str(_ROOT)} if end == "newest" and not full else {}
            python = Path(folder, "venv", "bin", "python")
            _run(python, _ROOT / "tests/installation/first_training.py", cwd=folder, env=places)
        except subprocess.CalledProcessError as error:
            command = " ".join(map(str, error.cmd))
            print(f"installation, {end}: FAILED\n$ {command}\n{error.stdout[-8000:]}", flush=True)
            return False
    seconds = time.monotonic() - start
    print(f"installation, {end}: trained in {seconds:.0f} s with {', '.join(chosen)}", flush=True)
    return True


def install(end: str, wheel: Path, folder: Path, full: bool) -> list[str]:
    """Makes ``folder/venv`` with the package in it.

    Returns:
        The versions of the direct dependencies, and those of what was installed.
    """
    venv, site = folder / "venv", folder / "venv/lib/python3.11/site-packages"
    constraint: list[str | Path] = []
    if end == "oldest":
        (folder / "oldest.txt").write_text("".join(f"{name}=={low}\n" for name, low in lower_bounds().items()))
        constraint = ["-c", folder / "oldest.txt"]
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    if full:
        _run(sys.executable, "-m", "venv", venv)
        _run(*pip, "--python", venv / "bin/python", "install", "-q", *constraint, f"{wheel}[tf]")
        listed = json.loads(_run(*pip, "--python", venv / "bin/python", "list", "--format=json"))
        versions = {_normal(one["name"]): one["version"] for one in listed}
        return [f"{name} {versions[_normal(name)]}" for name in lower_bounds()]
    # pip decides, as it does for a user whose environment is empty.
    report = folder / "report.json"
    _run(*pip, "install", "-q", "--dry-run", "--ignore-installed", "--report", report, *constraint, f"{wheel}[tf]")
    resolved = [one["metadata"] for one in json.loads(report.read_text())["install"]]
    versions = {_normal(one["name"]): one["version"] for one in resolved}
    differing = [
        f"{name}=={version}"
        for name, version in versions.items()
        if name not in _TAKEN_FROM_HERE | _NOT_IMPORTED | {"xmc-tf"} and version != _installed(name)
    ]
    _run(sys.executable, "-m", "venv", "--without-pip", venv)
    (site / "shared.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    _run(*pip, "install", "-q", "--no-deps", "--target", site, *differing, wheel)
    return [f"{name} {versions[_normal(name)]}" for name in lower_bounds() if name not in _TAKEN_FROM_HERE]


def lower_bounds() -> dict[str, str]:
    """The oldest allowed version of each direct dependency, also of those of TensorFlow's extra, whose ranges win."""
    config = ConfigParser()
    config.read(_ROOT / "setup.cfg")
    lines = [*config["options"]["install_requires"].split("\n"), *config["options.extras_require"]["tf"].split("\n")]
    found = (re.fullmatch(r"([\w-]+) >=([\d.]+)(,<[\d.]+)?", line) for line in lines if line)
    return {one[1]: one[2] for one in found if one}


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


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
