"""Linux on ARM64: a linear model is trained by Debian's Python for arm64 under user-mode emulation, and compared.

Needs Debian's apt-get and dpkg-deb, ``qemu-user-static``, a package index, and half an hour: kernels are compiled under
emulation. Nothing is installed on this machine.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PROGRAM = _ROOT / "tests/installation/first_linear.py"
_QEMU = "qemu-aarch64-static"
_MINOR = 11
# Python's own modules load these, and the wheels the last two.
_DEBIAN = (f"python3.{_MINOR}-minimal", f"libpython3.{_MINOR}-stdlib", "libstdc++6", "libgomp1")
_GLIBC = (17, 26, 27, 28)  # of the wheels' platforms; Debian 12 has 2.36
_LABELS = "import json; from xmc_tf import XRLinear; print(json.dumps(XRLinear.load('model').best({texts!r}, k=1)))"
_TEXTS = [f"a text about the {topic}" for topic in ("library", "kitchen", "harbour", "forest", "theatre", "museum")]


def attempt_arm64(run: Callable[..., str], wheel: Path) -> bool:
    """Train on both architectures, print a JSON line, and return whether the best labels are the same.

    Args:
        run: runs a command and returns its output; raises CalledProcessError.
        wheel: the package.
    """
    if shutil.which(_QEMU) is None or shutil.which("apt-get") is None:
        print(f"installation, arm64: FAILED: needs apt-get and {_QEMU} (apt-get install qemu-user-static)", flush=True)
        return False
    with tempfile.TemporaryDirectory(prefix="xmc-tf-arm64-") as name:
        folder = Path(name)
        try:
            python = _python(run, folder)
            _packages(run, folder / "site", wheel)
            emulated = {"PYTHONPATH": str(folder / "site"), "XMC_TF_CACHE": str(folder / "cache")}
            there = _best(run, python, folder / "arm64", emulated)
            here = _best(run, sys.executable, folder / "here", {"PYTHONPATH": str(_ROOT)})
        except subprocess.CalledProcessError as error:
            print(f"installation, arm64: FAILED\n{error.stdout[-8000:]}", flush=True)
            return False
        machine = run(python, "-c", "import platform; print(platform.machine())").strip()
    same = [name for ((name, _),) in there] == [name for ((name, _),) in here]
    print(json.dumps({"figure": "installation_arm64", "machine": machine, "same": same, "labels": there}), flush=True)
    return same


def _python(run: Callable[..., str], folder: Path) -> Path:
    """Unpack Debian's Python for arm64, and return a program that runs it under emulation."""
    for part in ("state/lists/partial", "cache/archives/partial", "root"):
        (folder / part).mkdir(parents=True)
    (folder / "status").touch()
    places = {
        "APT::Architecture": "arm64", "APT::Architectures": "arm64", "Dir::State": folder / "state",
        "Dir::State::status": folder / "status", "Dir::Cache": folder / "cache", "APT::Sandbox::User": "root",
    }  # fmt: skip
    apt = ("apt-get", "-qq", *(part for name, value in places.items() for part in ("-o", f"{name}={value}")))
    run(*apt, "update")
    run(*apt, "install", "-y", "--download-only", "--no-install-recommends", *_DEBIAN)
    for package in (folder / "cache/archives").glob("*.deb"):
        run("dpkg-deb", "-x", package, folder / "root")
    root, python = folder / "root", folder / "python"
    # Python starts processes by the name of its program, which has to start the emulator.
    python.write_text(
        f"#!/bin/sh\nexec {shutil.which(_QEMU)} -0 {python} -L {root} -E PYTHONHOME={root}/usr "
        f'{root}/usr/bin/python3.{_MINOR} "$@"\n'
    )
    python.chmod(0o755)
    return python


def _packages(run: Callable[..., str], site: Path, wheel: Path) -> None:
    """Install the package and the wheels for aarch64 that it needs into a folder."""
    tags = [f"manylinux_2_{minor}_aarch64" for minor in _GLIBC] + ["manylinux2014_aarch64"]
    platforms = [part for tag in tags for part in ("--platform", tag)]
    run(
        sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--only-binary", ":all:",
        "--python-version", f"3.{_MINOR}", "--implementation", "cp", *platforms, "--target", site, wheel,
    )  # fmt: skip


def _best(run: Callable[..., str], python: object, folder: Path, places: dict[str, str]) -> list:
    """Train in a new folder, and return the best label of some texts."""
    folder.mkdir()
    run(python, _PROGRAM, cwd=folder, env=places)
    return json.loads(run(python, "-c", _LABELS.format(texts=_TEXTS), cwd=folder, env=places).splitlines()[-1])
