"""The light installation in an empty environment: its size, first prediction, the model's bytes, README, and its tests.

A CPython between the oldest and the newest is tried, since the trainings with TensorFlow try those; or all of them.
Those that the machine lacks are named.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tools.docs.blocks import blocks, commands

_ROOT = Path(__file__).parents[2]
MINORS = (11, 12, 13)
_AIM_MB, _AIM_S = 250, 40
# What the tests import: no TensorFlow. The cheap ones load every module that needs none, and compile little.
_TEST_TOOLS = ("hypothesis", "psutil", "pytest", "scikit-learn", "rdflib")
_MORE_TOOLS = ("pytest-xdist",)
_CHEAP = (
    "tests/test_layers.py::test_a_module_is_imported_with_the_extra_that_it_needs_alone[core]",
    "tests/label_names/test_characters.py",
    "tests/data/test_text.py",
    "tests/tables",
)
_PROGRAM = _ROOT / "tests/installation/first_linear.py"


def attempt_core(run: Callable[..., str], wheel: Path, every: bool) -> bool:
    """Install, train and predict with other Pythons; print a JSON line for each.

    Args:
        run: runs a command and returns its output; raises CalledProcessError.
        wheel: the package.
        every: whether to try all Pythons, with all tests; else one of them, with a few. Each compiles for a minute.

    Returns:
        Whether all installations worked, passed the tests, and wrote the model that this environment writes.
    """
    good = True
    with tempfile.TemporaryDirectory(prefix="xmc-tf-core-") as name:
        folder = Path(name)
        (folder / "here").mkdir()
        here = _files(run(sys.executable, _PROGRAM, cwd=folder / "here", env={"PYTHONPATH": str(_ROOT)}))
        for minor in _chosen(every):
            python = find_python(minor)
            assert python is not None
            try:
                result = _attempt(run, python, wheel, folder / f"3.{minor}", every)
            except subprocess.CalledProcessError as error:
                print(f"installation, core, Python 3.{minor}: FAILED\n{error.stdout[-8000:]}", flush=True)
                good = False
                continue
            files = result.pop("files")
            result["differing_files"] = sorted(name for name in here if here[name] != files.get(name))
            good = good and not result["differing_files"]
            print(json.dumps({"figure": "installation_core", "python": f"3.{minor}", **result}), flush=True)
    return good


def _chosen(every: bool) -> list[int]:
    """Return the minor versions to try; name those that this machine lacks."""
    there = [minor for minor in MINORS if find_python(minor)]
    for minor in sorted(set(MINORS) - set(there)):
        print(f"installation, core: this machine has no Python 3.{minor}; not tried", flush=True)
    return there if every else [there[len(there) // 2]]


def find_python(minor: int) -> str | None:
    """Return a CPython 3.``minor`` of this machine."""
    if sys.version_info[:2] == (3, minor):
        return sys.executable
    # A shim of pyenv fails for versions that are installed and not chosen.
    managed = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"), reverse=True)
    for found in filter(None, [*map(str, managed), shutil.which(f"python3.{minor}")]):
        if subprocess.run([found, "--version"], capture_output=True).returncode == 0:
            return found
    return None


def _attempt(run: Callable[..., str], python: str, wheel: Path, folder: Path, every: bool) -> dict:
    folder.mkdir()
    start = time.monotonic()
    run(python, "-m", "venv", folder / "venv")
    own = folder / "venv/bin/python"
    pip = (own, "-m", "pip", "--disable-pip-version-check", "install", "-q")
    before = _megabytes(folder / "venv")
    run(*pip, wheel)
    installed = time.monotonic()
    files = _files(run(own, _PROGRAM, cwd=folder, env={"XMC_TF_CACHE": str(folder / "cache")}))
    done = time.monotonic()
    path = {"PATH": f"{folder / 'venv/bin'}:/usr/bin:/bin", "XMC_TF_CACHE": str(folder / "cache")}
    _, demo, *rest = commands(blocks(_ROOT / "README.md")[0])  # the first installs
    run("bash", "-c", demo, cwd=folder, env=path)
    keep_a_tenth(folder / "data.csv")
    for line in rest:
        run("bash", "-c", line, cwd=folder, env=path)
    megabytes = round(_megabytes(folder / "venv") - before)
    packages = json.loads(run(own, "-m", "pip", "--disable-pip-version-check", "list", "--format=json"))
    run(*pip, "--no-compile", *_TEST_TOOLS, *(_MORE_TOOLS if every else ()))  # most of their code is not used
    chosen = ("-n", 2, "--dist", "loadfile", "tests") if every else _CHEAP
    pytest = (own, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--core", "-m", "not distributed")
    places = {"PYTHONPATH": str(_ROOT), "PYTHONDONTWRITEBYTECODE": "1", "XMC_TF_CACHE": str(folder / "cache")}
    tested = run(*pytest, *chosen, cwd=_ROOT, env=places).splitlines()
    return {
        "packages": {one["name"]: one["version"] for one in packages if one["name"] not in ("pip", "setuptools")},
        "megabytes": megabytes,
        "aim_megabytes": _AIM_MB,
        "install_s": round(installed - start, 1),
        "first_prediction_s": round(done - start, 1),
        "aim_s": _AIM_S,
        "tests": tested[-1],
        "tests_left_out": next(line for line in tested if line.startswith("left out: ")),
        "files": files,
    }


def keep_a_tenth(table: Path) -> None:
    """Leave out most rows of README's table, because it takes minutes to train on all."""
    header, *rows = table.read_text(encoding="utf-8").splitlines(keepends=True)
    table.write_text("".join([header, *rows[::10]]), encoding="utf-8")


def _files(output: str) -> dict[str, str]:
    return json.loads(output.splitlines()[-1])


def _megabytes(folder: Path) -> float:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
