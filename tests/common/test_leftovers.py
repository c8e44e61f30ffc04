"""Tests that only leftovers of killed runs are removed from shared memory and temporary folders."""

import logging
import mmap
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from xmc_tf.common.process import leftovers
from xmc_tf.common.process.leftovers import TemporaryFolder, remove_leftovers

MEMORY = Path("/dev/shm")
HERE = leftovers._open_mpi_host()


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Return an empty folder for temporary files; segments may be of any age."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(leftovers, "_LEAST_AGE_S", -1.0)
    return tmp_path


@pytest.fixture
def segments():
    """Yield two files in shared memory with names that Open MPI uses, of this host and of another."""
    paths = [MEMORY / f"vader_segment.{host}.{os.getpid():x}.0" for host in (HERE, f"xmc-tf-test.{os.geteuid()}")]
    for path in paths:
        path.write_bytes(b"x" * 4096)
    yield paths
    for path in paths:
        path.unlink(missing_ok=True)


def test_leftovers_of_killed_runs_are_removed_and_named(temporary, segments, caplog):
    session, unlocked = temporary / f"ompi.{HERE}" / "pid.99999999", temporary / "xmc_tf-temporary-abcdefgh"
    for folder in (session / "0", unlocked / "model"):
        folder.mkdir(parents=True)
    with caplog.at_level(logging.INFO):
        remove_leftovers()
    assert [path.exists() for path in segments] == [False, True]
    assert f": {unlocked} {session} {segments[0]}" in caplog.text
    remove_leftovers()
    assert list(temporary.iterdir()) == []


def test_what_is_in_use_or_of_others_stays(temporary, segments):
    stays = [temporary / f"ompi.{HERE}" / f"pid.{os.getpid()}", temporary / "ompi.another.0" / "pid.99999999"]
    stays += [temporary / "xmc_tf-temporary", temporary / "data"]
    for folder in stays:
        folder.mkdir(parents=True)
    link = temporary / "xmc_tf-temporary-abcdefgh"
    link.symlink_to(stays[-1])
    with segments[0].open("r+b") as file, mmap.mmap(file.fileno(), 0), TemporaryFolder() as locked:
        remove_leftovers()
        assert all(path.exists() for path in (*stays, link, *segments, Path(locked)))
    assert not Path(locked).exists()


def test_young_segments_stay(temporary, segments, monkeypatch):
    monkeypatch.setattr(leftovers, "_LEAST_AGE_S", 3600.0)
    remove_leftovers()
    assert segments[0].exists()


CODE = """
import os, signal, sys
from xmc_tf.common.process import cli, leftovers
def main(argv):
    folder = leftovers.TemporaryFolder()
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
    assert f": {left}\n" in run.stderr
    assert list(temporary.iterdir()) == []
