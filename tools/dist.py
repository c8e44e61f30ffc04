"""``make dist``: build the wheel and the source archive in ``dist``, look into them, and try each as its users will.

Each is installed into an empty environment, which then runs README's first block. Needs a package index.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tools.docs.blocks import blocks, commands
from tools.docs.examples import ROOT
from xmc_tf.common.version import __version__

_TOP = {"LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg", "setup.py"}


def build(folder: Path) -> list[Path]:
    """Build a wheel, a source archive, and a wheel of the latter, which has to be equal to the first.

    Returns:
        The source archive and the wheel.
    """
    make = (sys.executable, "-m", "build", "--no-isolation", "--outdir")
    _run(*make, folder, ROOT)
    source, wheel = next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))
    with tempfile.TemporaryDirectory() as again:
        with tarfile.open(source) as archive:
            archive.extractall(again, filter="data")
        _run(*make, again, "--wheel", next(Path(again).iterdir()))
        assert {*names(next(Path(again).glob("*.whl")))} == {*names(wheel)}, (
            "the source archive lacks files of the wheel"
        )
    return [source, wheel]


def names(archive: Path) -> Iterator[str]:
    """Yield the names of the files of an archive; the source archive's without the folder in which they all are."""
    if archive.suffix == ".whl":
        yield from zipfile.ZipFile(archive).namelist()
        return
    with tarfile.open(archive) as source:
        yield from (file.name.partition("/")[2] for file in source if file.isfile())


def strangers(archive: Path) -> list[str]:
    """Return the files that no archive should have: tests, tools, and what Git does not know."""
    kept = {name for name in _run("git", "ls-files", cwd=ROOT).split() if name.startswith("xmc_tf/")} | _TOP
    about = (f"xmc_tf-{__version__}.dist-info/", "xmc_tf.egg-info/")
    return [name for name in names(archive) if name not in kept and not name.startswith(about)]


def _try(archive: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="xmc-tf-dist-") as name:
        folder = Path(name)
        _run(sys.executable, "-m", "venv", folder / "venv")
        _run(folder / "venv/bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", archive)
        for line in commands(blocks(ROOT / "README.md")[0])[1:]:  # the first installs
            print(f"  {line}", flush=True)
            _run("bash", "-c", line, cwd=folder, env={"PATH": f"{folder / 'venv/bin'}:/usr/bin:/bin", "HOME": name})


def _run(*command: object, **options: object) -> str:
    done = subprocess.run([*map(str, command)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return str(done.stdout)


def main() -> None:
    """Build, look, try; ends with what is wrong at the first fault."""
    folder = ROOT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    archives = build(folder)
    for archive in archives:
        if wrong := strangers(archive):
            sys.exit(f"{archive.name} has files that do not belong into it: {', '.join(wrong[:5])}")
    _run(sys.executable, "-m", "twine", "check", "--strict", *archives)
    for archive in archives:
        size = f"{archive.stat().st_size / 1e6:.1f} MB, {len([*names(archive)])} files"
        print(f"{archive.relative_to(ROOT)}: {size}; in an empty environment:", flush=True)
        _try(archive)
    print("both archives install, and README's first block runs with each")


if __name__ == "__main__":
    main()
