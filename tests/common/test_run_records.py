"""Tests that only leftovers of killed runs are removed from shared memory and temporary folders."""

import logging
import mmap
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.files import largest_file
from xmc_tf.common.process import run_records
from xmc_tf.common.process.run_records import TemporaryFolder, clean_up
from xmc_tf.store.files import lock_file

MEMORY = Path("/dev/shm")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Return an empty folder for temporary files, with no record of this process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(run_records, "_own", {})
    return tmp_path


@pytest.fixture
def segment():
    """Yield a file in shared memory with a name that Open MPI uses."""
    path = MEMORY / f"vader_segment.xmc-tf-test.{os.geteuid()}.{os.getpid():x}.0"
    path.write_bytes(b"x" * 4096)
    yield path
    path.unlink(missing_ok=True)


def recorded(temporary, *names, place=None):
    """Return the record of a process that has ended."""
    folder = temporary / f"xmc-tf-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "1-x.txt"
    path.write_text("".join(f"{line}\n" for line in (place or run_records._place(), *names)))
    return path


def test_leftovers_of_a_killed_run_are_removed_and_named(temporary, segment, caplog):
    session = temporary / "ompi.host.0" / "pid.99999999"
    (session / "0").mkdir(parents=True)
    pattern = f"{MEMORY}/vader_segment.*.{os.geteuid()}.{os.getpid():x}.*"
    record = recorded(temporary, pattern, session)
    with caplog.at_level(logging.INFO):
        clean_up()
    assert not segment.exists()
    assert not session.parent.exists()
    assert not record.exists()
    assert f"(pid 1): {segment} {session}" in caplog.text


def test_files_that_may_be_in_use_stay(temporary, segment):
    session = temporary / f"pid.{os.getpid()}"  # of a launcher that still runs
    session.mkdir()
    record = recorded(temporary, segment, session, place="another boot or container")
    clean_up()
    assert segment.exists()
    assert record.exists()
    recorded(temporary, segment, session)
    with record.open("r+") as file:
        assert lock_file(file.fileno())  # its process still runs
        clean_up()
    assert segment.exists()
    assert record.exists()
    with segment.open("r+b") as file, mmap.mmap(file.fileno(), 0):  # a later job with the same number has mapped it
        clean_up()
    assert segment.exists()
    assert session.is_dir()


def test_only_names_of_our_kinds_are_removed(temporary):
    mine = MEMORY / f"xmc-tf-test-{os.getpid()}"
    mine.write_text("a user's data")
    theirs = temporary / "data"
    theirs.mkdir()
    link = temporary / "xmc-tf-link"
    link.symlink_to(theirs)
    try:
        outside = f"../../{temporary}/data"
        recorded(temporary, mine, f"{MEMORY}/*", f"{MEMORY}/{outside}", theirs, link, theirs.parent)
        clean_up()
        assert mine.exists()
        assert theirs.is_dir()
        assert link.is_symlink()
    finally:
        mine.unlink()


def test_a_folder_of_records_that_others_may_write_to_is_not_trusted(temporary, segment):
    recorded(temporary, segment).parent.chmod(0o777)
    clean_up()
    assert segment.exists()


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\x00\n/\n", b"boot\n", b"x" * 100_000])
def test_an_invalid_record_raises_nothing(temporary, content):
    recorded(temporary).write_bytes(content)
    clean_up()


def test_a_line_that_was_not_written_to_its_end_is_ignored(temporary):
    folder = temporary / "xmc-tf-kept"
    folder.mkdir()
    with recorded(temporary).open("a") as file:
        file.write(str(folder))
    clean_up()
    assert folder.is_dir()


CODE = """
import os, signal, sys
from xmc_tf.common.process import cli, run_records
def main(argv):
    folder = run_records.TemporaryFolder()
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
    assert not list(temporary.glob("xmc-tf-*/*"))
    assert [path.name for path in temporary.iterdir()] == [f"xmc-tf-{os.geteuid()}"]


def test_the_record_is_removed_with_the_process(temporary):
    with TemporaryFolder() as name:
        (record,) = temporary.glob("xmc-tf-*/*.txt")
        assert record.read_text().splitlines()[1:] == [name]
        clean_up()
        assert Path(name).is_dir()
    run_records._forget(record, os.getpid())
    assert not record.exists()


def test_nothing_is_left_of_a_record_that_the_disk_has_no_room_for(temporary):
    with largest_file(10):
        folder = TemporaryFolder()
    folder.cleanup()
    os.close(run_records._own.pop(os.getpid()))  # as at the end of the process
    clean_up()
    assert not list(temporary.glob("xmc-tf-*/*"))
