"""An old Python is refused before anything is downloaded, with the fix; a newer one than tested gets a warning."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

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
    monkeypatch.setattr("setuptools.setup", lambda: None)
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
