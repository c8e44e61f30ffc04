"""The light installation is light, a missing extra is named, and an unsupported Python is refused with the fix."""

import os
import re
import runpy
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from xmc_tf.common.process import cli, extras
from xmc_tf.common.process.extras import EXTRAS, missing_package, pip_install

CONFIG = ConfigParser()
CONFIG.read(Path(__file__).parents[2] / "setup.cfg")


def packages(text):
    return {re.split(r"[ <>=]", line)[0] for line in text.split("\n") if line and not line.startswith("#")}


def test_the_core_needs_seven_packages():
    assert packages(CONFIG["options"]["install_requires"]) == {
        "jinja2", "msgpack", "numba", "numpy", "py3langid", "scipy", "simplemma",
    }  # fmt: skip


def test_every_data_file_is_installed():
    root = Path(__file__).parents[2] / "xmc_tf"
    patterns = [Path(pattern) for pattern in CONFIG["options.package_data"]["*"].split(", ")]
    for file in root.rglob("*"):
        if file.is_file() and file.suffix not in (".py", ".pyc", ".nbi", ".nbc"):
            # Patterns count from the package, which is a folder with an __init__.py, and do not reach into folders.
            package = next(folder for folder in file.parents if (folder / "__init__.py").exists())
            name = file.relative_to(package)
            assert any(len(one.parts) == len(name.parts) and name.match(str(one)) for one in patterns), file


def test_every_extra_that_is_named_exists():
    assert set(EXTRAS.values()) <= set(CONFIG["options.extras_require"])


@pytest.mark.parametrize(
    ("module", "extra"), [("tensorflow.python.framework", "tf"), ("mpi4py", "mpi"), ("pyarrow", "tables")]
)
def test_a_command_names_the_missing_extra(module, extra, capsys):
    def main(_):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    with pytest.raises(SystemExit) as ended:
        cli.run(main, [])
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert f"{module.split('.')[0]} is not installed" in message
    assert pip_install(extra) in message
    assert "Traceback" not in message


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'xmc_tf[tf]'"),
        ("not JSON", "pip install 'xmc_tf[tf]'"),
        ('{"url": "file:///home/me/my%20copy", "dir_info": {}}', "pip install '/home/me/my copy[tf]'"),
        (
            '{"url": "https://example.org/xmc_tf", "vcs_info": {"vcs": "git"}}',
            "pip install 'xmc_tf[tf] @ git+https://example.org/xmc_tf'",
        ),
    ],
)
def test_an_extra_is_installed_from_where_this_copy_came(origin, command, monkeypatch):
    class Distribution:
        def read_text(self, name):
            assert name == "direct_url.json"
            return origin

    monkeypatch.setattr(extras, "distribution", lambda name: Distribution())
    assert pip_install("tf") == command


def test_a_module_of_no_extra_stays_an_error():
    assert missing_package(ModuleNotFoundError("No module named 'nothing'", name="nothing")) is None


ROOT = Path(__file__).parents[2]


def test_pip_stops_while_it_reads_the_metadata(monkeypatch):
    """pip runs setup.py first; some versions of pip compare python_requires only after they have downloaded."""
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(ROOT / "setup.py"))
    message = str(stopped.value)
    assert "Python 3.10" in message
    assert "expected: CPython 3.11 or later" in message
    assert "fix:" in message


def test_a_newer_python_is_installed_with_a_warning(monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    runpy.run_path(str(ROOT / "setup.py"))
    assert "tested with Python 3.11 to 3.13, not with 3.14" in capsys.readouterr().err


def test_make_says_how_to_get_python(tmp_path):
    for name in ("python3.13", "python3.12", "python3.11", "python3", "python"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    run = subprocess.run(
        ["bash", ROOT / "tools" / "make_venv.sh", tmp_path / "venv"],
        env={**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHON": ""}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert run.returncode != 0
    assert "CPython 3.11, 3.12 or 3.13 was not found" in run.stderr
    assert "apt install python3 " in run.stderr
    assert not (tmp_path / "venv").exists()
