"""An unsupported Python is refused before anything is downloaded, with the fix."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 14, 0)])
def test_pip_stops_while_it_reads_the_metadata(version, monkeypatch):
    """pip runs setup.py first; some versions of pip compare python_requires only after they have downloaded."""
    monkeypatch.setattr(sys, "version_info", version)
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(ROOT / "setup.py"))
    message = str(stopped.value)
    assert f"Python {version[0]}.{version[1]}" in message
    assert "expected: CPython 3.11, 3.12 or 3.13" in message
    assert "fix:" in message


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
