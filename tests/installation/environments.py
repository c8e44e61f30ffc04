"""Environments that have nothing but xmc_tf and the packages of some extras, made in seconds without a package index.

Each package is a link into the environment that runs this. Which ones, the metadata of the installed packages say, so
that there is no list to keep.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path
from types import MappingProxyType
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


class Environment:
    """A virtual environment with the core of xmc_tf and some extras, and without pip.

    Args:
        folder: where to make it.
        extras: names of extras.
        install: whether to install xmc_tf itself, by ``pip install .`` without an index.
    """

    def __init__(self, folder: Path, extras: Iterable[str] = (), *, install: bool = True) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        for package in packages(extras):
            _link(package, site)
        if not install:
            return
        _link(distribution("setuptools"), builder := folder / "builder")  # not in the environment, as with an index
        pip = (sys.executable, "-m", "pip", "--python", folder, "install", "-q", "--no-index", "--no-deps")
        _checked([*pip, "--no-build-isolation", ROOT], env={**os.environ, "PYTHONPATH": str(builder)})

    def run(self, *command: object, cwd: Path, env: Mapping[str, str] = MappingProxyType({})) -> str:
        """Run a command, as a shell with no variables of ours does, and return what it prints."""
        places = {"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "LANG": "C.UTF-8", "OPAL_PREFIX": str(self.folder)}
        return _checked(command, cwd=cwd, env={**places, **env})


def _checked(command: Sequence[object], **options: Any) -> str:
    done = subprocess.run(
        [*map(str, command)], text=True, timeout=900, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def packages(extras: Iterable[str]) -> list[Distribution]:
    """Return the installed packages that the core and some extras of xmc_tf need, without xmc_tf itself."""
    found: dict[str, Distribution] = {}
    asked = [Requirement(f"xmc_tf[{','.join(extras)}]")]
    done = set()
    while asked:
        one = asked.pop()
        for extra in ("", *one.extras):
            if (one.name, extra) in done:
                continue
            done.add((one.name, extra))
            package = found[one.name] = distribution(one.name)
            needed = (Requirement(line) for line in package.requires or ())
            asked += [each for each in needed if each.marker is None or each.marker.evaluate({"extra": extra})]
    return [package for name, package in found.items() if name != "xmc_tf"]


def _link(package: Distribution, site: Path) -> None:
    """Link the files of a package into an environment, whole folders where they belong to this package alone."""
    source, linked = Path(str(package.locate_file("."))), set()
    for file in package.files or ():
        parts, depth = file.parts, 1
        if parts[0] in linked:
            continue
        if parts[0] == "..":  # programs and libraries, such as MPI's
            link, path = (Path(os.path.normpath(place / file)) for place in (site, source))
            if b"python" in path.read_bytes()[:200].partition(b"\n")[0]:  # the script would start the other Python
                continue
        else:
            # Several packages can share a folder without __init__.py, such as google/.
            while depth < len(parts) - 1 and not (
                source.joinpath(*parts[:depth], "__init__.py").exists() or parts[depth - 1].endswith(".dist-info")
            ):
                depth += 1
            linked |= {parts[0]} if depth == 1 else set()
            link, path = site.joinpath(*parts[:depth]), source.joinpath(*parts[:depth])
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
