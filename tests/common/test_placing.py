"""Tests that a folder is replaced as a whole and keeps files of others, even if the process is killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.common.placing_cases import KIND, dies_at_step, fill, place, word_of
from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.common.files.atomic import atomic_file
from xmc_tf.common.folders import locks as folder_locks
from xmc_tf.common.folders import placing


def hidden(folder):
    """Return hidden entries in and beside a folder."""
    beside = {entry.name for entry in folder.parent.iterdir() if entry.name.startswith(".")}
    return beside | {entry.name for entry in folder.iterdir() if entry.name.startswith(".")}


@pytest.fixture
def box(tmp_path):
    """Return a folder with an older box and files of others."""
    folder = tmp_path / "box"
    place(folder, "old")
    (folder / "train.log").write_text("begun\n")
    (folder / "runs" / "first").mkdir(parents=True)
    (folder / "runs" / "first" / "events").write_text("events")
    (folder / "empty").mkdir()
    (folder / "parts" / "notes.md").write_text("mine")
    (folder / "latest").symlink_to("runs/first")
    return folder


def foreign_of(folder):
    """Return the files of others in the folder."""
    assert (folder / "empty").is_dir()
    assert os.readlink(folder / "latest") == "runs/first"
    return [(folder / name).read_text() for name in ("train.log", "runs/first/events", "parts/notes.md")]


@pytest.mark.parametrize("with_exchange", [True, False])
def test_files_of_others_stay_even_while_they_are_written(box, with_exchange, monkeypatch):
    if not with_exchange:
        monkeypatch.setattr(placing, "exchange", lambda one, other: False)
    with (box / "train.log").open("a") as log:
        number = os.fstat(log.fileno()).st_ino
        place(box, "new", count=1)
        log.write("ended\n")
    assert word_of(box) == "new"
    assert foreign_of(box) == ["begun\nended\n", "events", "mine"]
    assert (box / "train.log").stat().st_ino == number
    assert sorted(path.name for path in (box / "parts").iterdir()) == ["0.bin", "deep", "notes.md"]
    assert not hidden(box)


@pytest.mark.parametrize("with_exchange", [True, False])
def test_a_kill_at_any_step_leaves_the_old_or_the_new_folder_and_all_other_files(box, with_exchange):
    step, seen = 0, set()
    while dies_at_step(step, box, f"new {step}", with_exchange=with_exchange):
        if with_exchange:
            # Nothing has recovered the folder yet.
            assert word_of(box) is not None
        assert len(foreign_of(box)) == 3
        with placing.claimed_folder(box, KIND):
            pass
        word = word_of(box)
        seen.add(word)
        assert word in ("old", *(f"new {earlier}" for earlier in range(step + 1)))
        assert foreign_of(box) == ["begun\n", "events", "mine"]
        assert not hidden(box)
        step += 1
    assert step > 20
    assert f"new {step - 1}" in seen, "some kill must have come after the exchange"
    assert "old" in seen


def test_a_reader_completes_the_moves_of_a_killed_run(box):
    step, completed = 0, 0
    while dies_at_step(step, box, f"new {step}", with_exchange=False):
        if word_of_any(box) is None:
            placing.finish_placing(box, KIND)
            completed += 1
            # The run before may have been killed just before it moved the old header.
            assert word_of(box) in (f"new {step}", f"new {step - 1}")
        step += 1
    assert completed


def word_of_any(folder):
    """Return the word of a folder that may be a mixture, or None without a header."""
    header = folder / "box.json"
    return json.loads(header.read_text())["word"] if header.exists() else None


def test_files_of_others_are_never_replaced(tmp_path):
    folder = tmp_path / "exp"
    folder.mkdir()
    (folder / "box.json").write_text("{}")
    (folder / "data.npz").write_text("data")
    refused(r"exp holds files that are not part of a box .*\n.*\n.*box\.json", place, folder, "new")
    (folder / "box.json").unlink()
    (folder / "parts").mkdir()
    (folder / "parts" / "7.bin").write_text("mine")
    refused(r"parts/7\.bin", place, folder, "new")
    (folder / "parts" / "7.bin").rename(folder / "parts" / "7.txt")
    place(folder, "new")
    assert word_of(folder) == "new"
    assert (folder / "data.npz").read_text() == "data"
    assert (folder / "parts" / "7.txt").read_text() == "mine"
    (folder / "names.txt").unlink()
    (folder / "names.txt").mkdir()
    refused(r"names\.txt", place, folder, "newer")


def test_a_file_instead_of_the_folder_and_a_link_instead_of_a_part_are_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    refused("is a file", place, tmp_path / "file", "new")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    refused("a link to a folder that does not exist", KIND.check_place, tmp_path / "dangling")
    (tmp_path / "box").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "box" / "parts").symlink_to(tmp_path / "elsewhere")
    refused("parts", place, tmp_path / "box", "new")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_linked_folder_stays_a_link_and_the_working_folder_stays_the_same(tmp_path, monkeypatch):
    place(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to("real")
    place(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert word_of(tmp_path / "real") == "new"
    monkeypatch.chdir(tmp_path / "real")
    number = Path.cwd().stat().st_ino
    place(Path(), "newer")
    assert Path.cwd().stat().st_ino == number
    assert word_of(Path()) == "newer"


def test_an_error_while_filling_leaves_only_the_old_folder(box):
    def fail(part):
        fill(part, "new")
        raise RuntimeError("no room")

    with pytest.raises(RuntimeError), placing.placed_folder(box, KIND) as part:
        fail(part)
    assert word_of(box) == "old"
    assert not hidden(box)


def test_a_foreign_folder_of_pending_files_moves_and_removes_only_parts_inside_the_folder(tmp_path):
    folder, precious = tmp_path / "box", tmp_path / "precious"
    place(folder, "old")
    precious.mkdir()
    (precious / "0.bin").write_text("mine")
    (folder / placing.PENDING).symlink_to(precious)
    assert not placing.finish_placing(folder, KIND)
    (folder / placing.PENDING).unlink()
    fill(folder / placing.PENDING, "new")
    header = {"format": "box", "word": "old", "files": {"../precious/0.bin": {}, "names.txt": {}}}
    (folder / "box.json").write_text(json.dumps(header))
    (folder / placing.PENDING / "notes.txt").write_text("theirs")
    (folder / "notes.txt").write_text("mine")
    (folder / "parts" / "deep" / "0.bin").unlink()
    (folder / "parts" / "deep").rmdir()
    (folder / "parts" / "deep").symlink_to(precious)
    refused("deep leads out of", placing.finish_placing, folder, KIND)
    (folder / "parts" / "deep").unlink()
    assert placing.finish_placing(folder, KIND)
    assert word_of(folder) == "new"
    assert [(folder / "notes.txt").read_text(), (precious / "0.bin").read_text()] == ["mine", "mine"]


_HOLDER = """
import sys
from xmc_tf.common.folders.locks import folder_lock
with folder_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_is_refused_and_the_lock_of_a_killed_one_is_taken_over(tmp_path, caplog):
    caplog.set_level("INFO")
    folder = tmp_path / "box"
    place(folder, "old")
    first = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert first.stdout.readline() == b"held\n"
        refused(rf"another run(.|\n)*host .*, pid {first.pid}, started \d\d\d\d-", place, folder, "new")
        assert word_of(folder) == "old"
    finally:
        first.kill()
        first.communicate()
    place(folder, "new")
    assert word_of(folder) == "new"
    assert f"the previous run did not finish (of -c on host {os.uname().nodename}, pid {first.pid}" in caplog.text
    assert not hidden(folder)


def test_a_folder_that_cannot_be_created_is_named_by_its_own_name():
    """The message once named the hidden file of the lock."""
    with pytest.raises(InputError, match=r"^/proc/model cannot be written"), folder_locks.folder_lock("/proc/model"):
        pass


def test_the_last_thread_releases_a_lock(tmp_path):
    first, second = (folder_locks.folder_lock(tmp_path / "box") for _ in range(2))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)  # the second one still writes
    assert (tmp_path / ".box.xmc_tf.lock").exists()
    second.__exit__(None, None, None)
    assert not list(tmp_path.iterdir())


def test_files_of_others_with_names_like_ours_stay(tmp_path, box):
    lock, others = tmp_path / f".{box.name}.xmc_tf.lock", (".new-pictures", ".new-20240101.csv", ".lock", ".work.lock")
    for end in others:
        (tmp_path / f".{box.name}{end}").mkdir()
    lock.touch()  # of a run that was killed before it wrote its record
    place(box, "new")
    assert hidden(box) == {f".{box.name}{end}" for end in others}
    lock.write_text("[" * 100_000)
    refused("is not a lock file of xmc_tf", place, box, "newer")
    assert lock.stat().st_size == 100_000


def test_leftovers_inside_an_incomplete_folder_are_not_files_of_others(box):
    half = folder_locks.temporary_folder_beside(box)
    (half / "tree").mkdir()
    (half / ".tree.xmc_tf.lock").touch()
    inner = folder_locks.temporary_folder_beside(half / "tree")
    (inner / "config.json").write_text("{}")
    place(box, "new")
    assert word_of(box) == "new"
    assert not (box / "tree").exists()
    assert not hidden(box)


def test_a_file_added_to_the_old_folder_at_the_last_moment_is_kept(box, monkeypatch):
    exchange = placing.exchange

    def late(part, folder):
        (folder / "late.log").write_text("late")
        (folder / "train.log").unlink()
        (folder / "train.log").write_text("rewritten")
        return exchange(part, folder)

    monkeypatch.setattr(placing, "exchange", late)
    place(box, "new")
    assert word_of(box) == "new"
    assert (box / "late.log").read_text() == "late"
    assert foreign_of(box) == ["rewritten", "events", "mine"]


def test_a_mount_point_is_filled_in_place_and_keeps_files_that_the_new_folder_shares_with_the_old_one(
    tmp_path, monkeypatch
):
    """A model to which documents are appended shares its unchanged parts with the model that it replaces."""
    folder = tmp_path / "volume"
    folder.mkdir()
    number = folder.stat().st_ino
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == folder)
    for word in ("older", "old"):
        place(folder, word)
        assert word_of(folder) == word
    (folder / "notes.txt").write_text("of the user")
    with placing.placed_folder(folder, KIND) as part:
        fill(part, "old")
        for name in ("parts/0.bin", "names.txt"):
            (part / name).unlink()
            os.link(folder / name, part / name)
    assert word_of(folder) == "old"
    assert (folder / "notes.txt").read_text() == "of the user"
    assert folder.stat().st_ino == number
    assert not hidden(folder)


def test_folders_within_a_new_folder_are_written_in_place(tmp_path):
    with placing.placed_folder(tmp_path / "outer", KIND) as part:
        fill(part, "old")
        with placing.placed_folder(part / "parts" / "deep", KIND) as inner, atomic_file(inner / "names.txt") as file:
            assert (inner, file) == (part / "parts" / "deep", inner / "names.txt")
            file.write_text("old")
    assert (tmp_path / "outer" / "parts" / "deep" / "names.txt").read_text() == "old"
    with atomic_file(tmp_path / "outer" / "names.txt") as file:
        assert file.name != "names.txt", "the outer folder has its name now"
        file.write_text("old")


def test_a_file_that_is_written_within_a_new_folder_changes_no_other_name_of_it(tmp_path):
    (tmp_path / "model.txt").write_text("old")
    with placing.placed_folder(tmp_path / "outer", KIND) as part:
        fill(part, "new")
        (part / "names.txt").unlink()
        os.link(tmp_path / "model.txt", part / "names.txt")
        with atomic_file(part / "names.txt") as file:
            file.write_text("new")
    assert (tmp_path / "model.txt").read_text() == "old"
