"""Tests that only leftovers of killed runs are removed from shared memory and temporary folders."""

import json
import logging
import mmap
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.files import largest_file
from xmc_tf.common.process import run_records
from xmc_tf.common.process.launcher import find
from xmc_tf.common.process.run_records import ProcessRecord, TemporaryFolder, clean_up

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


def dead():
    """Return a process that has ended."""
    with subprocess.Popen(["sleep", "60"]) as child:
        process = find(child.pid)
        child.kill()
    return list(process)


def recorded(temporary, **changes):
    folder = temporary / f"xmc-tf-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    fields = asdict(ProcessRecord(run_records._place(), [dead()])) | changes
    path = folder / "1-1.json"
    path.write_text(json.dumps(fields))
    return path


def test_leftovers_of_a_killed_run_are_removed_and_named(temporary, segment, caplog):
    session = temporary / "ompi.host.0" / "pid.7"
    (session / "0").mkdir(parents=True)
    pattern = f"vader_segment.*.{os.geteuid()}.{os.getpid():x}.*"
    record = recorded(temporary, in_memory=[pattern], folders=[str(session)])
    with caplog.at_level(logging.INFO):
        clean_up()
    assert not segment.exists()
    assert not session.parent.exists()
    assert not record.exists()
    assert f"): {segment} {session}" in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {"owners": [list(find(os.getpid()))]},  # it still runs
        {"owners": [[1, 1], list(find(os.getpid()))]},  # another of its processes still runs
        {"place": ["another-host", "?", "?"]},
    ],
)
def test_files_that_may_be_in_use_stay(temporary, segment, changes):
    record = recorded(temporary, in_memory=[segment.name], **changes)
    clean_up()
    assert segment.exists()
    assert record.exists()


def test_a_file_mapped_by_a_later_job_with_the_same_number_stays(temporary, segment):
    recorded(temporary, in_memory=[segment.name])
    with segment.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        clean_up()
    assert segment.exists()


def test_only_names_of_our_kinds_are_removed(temporary):
    mine = MEMORY / f"xmc-tf-test-{os.getpid()}"
    mine.write_text("a user's data")
    theirs = temporary / "data"
    theirs.mkdir()
    link = temporary / "xmc-tf-link"
    link.symlink_to(theirs)
    try:
        outside = f"../../{temporary}/data"
        recorded(temporary, in_memory=[mine.name, "*", outside], folders=[str(theirs), str(link), str(theirs.parent)])
        clean_up()
        assert mine.exists()
        assert theirs.is_dir()
        assert link.is_symlink()
    finally:
        mine.unlink()


def test_a_folder_of_records_that_others_may_write_to_is_not_trusted(temporary, segment):
    recorded(temporary, in_memory=[segment.name]).parent.chmod(0o777)
    clean_up()
    assert segment.exists()


anything = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)
fields = st.dictionaries(st.sampled_from(["place", "owners", "in_memory", "folders"]), anything).map(json.dumps)


@settings(max_examples=40)
@given(fields | st.text())
def test_an_invalid_record_raises_nothing(content):
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", name)
        path = recorded(Path(name))
        path.write_bytes(content.encode(errors="surrogatepass"))
        clean_up()


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
        (record,) = temporary.glob("xmc-tf-*/*.json")
        assert json.loads(record.read_text())["folders"] == [name]
    run_records._forget(record, os.getpid())
    assert not record.exists()


def test_nothing_is_left_of_a_record_that_the_disk_has_no_room_for(temporary):
    with largest_file(10):
        folder = TemporaryFolder()
    folder.cleanup()
    assert not list(temporary.glob("xmc-tf-*/*"))


def test_a_record_under_another_name_of_this_host_is_removed(temporary):
    path = recorded(temporary, place=["another name", *run_records._place()[1:]])
    clean_up()
    assert not path.exists()
