"""Tests that only temporary folders of killed runs are removed."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from xmc_tf.common.process.temporary import TemporaryFolder, remove_leftovers


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Return an empty folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_folders_in_use_and_those_of_others_stay(temporary):
    others = [temporary / "data", temporary / "xmc-tf-mymodels"]
    for folder in others:
        folder.mkdir()
    link = temporary / "xmc-tf-temporary-12345678"
    link.symlink_to(others[0])
    with TemporaryFolder() as name:
        remove_leftovers()
        assert Path(name).is_dir()
    assert not Path(name).exists()
    assert link.is_symlink()
    assert all(folder.is_dir() for folder in others)


CODE = """
import os, signal, sys
from xmc_tf.common.process import cli, temporary
def main(argv):
    folder = temporary.TemporaryFolder()
    print(folder.name, flush=True)
    if argv:
        os.kill(os.getpid(), signal.SIGKILL)
cli.run(main, sys.argv[1:])
"""


def test_a_temporary_folder_is_removed_at_the_end_or_by_the_next_run(temporary):
    def program(*arguments):
        return subprocess.run(
            [sys.executable, "-c", CODE, *arguments], env=os.environ | {"TMPDIR": str(temporary)}, capture_output=True,
            text=True, timeout=60,
        )  # fmt: skip

    left = Path(program("kill").stdout.strip())
    assert left.is_dir()
    run = program()
    assert run.returncode == 0, run.stderr
    assert f"has left: {left}\n" in run.stderr
    assert not list(temporary.iterdir())
