"""Tests that a folder is replaced as a whole, and that files of others stay or are refused, even after kills."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.store import publishing
from xmc_tf.store.files import atomic_file
from xmc_tf.store.kinds import FolderKind
from xmc_tf.store.publishing import claimed_folder, folder_lock, publish, temporary_folder_beside

KIND = FolderKind(
    "a box", header="box.json", recognises=lambda header: header.get("format") == "box",
    parts=r"box\.json|names\.txt|parts",
)  # fmt: skip
KEPT = {"train.log": "begun\n", "README.md": "about", ".git/config": "mine", "Pt.npz": "predictions"}


def fill(part, word, count=3):
    """Write a complete folder of the kind, in which all files contain ``word``."""
    (part / "parts").mkdir(parents=True)
    for number in range(count):
        (part / "parts" / f"{number}.bin").write_text(word)
    (part / "names.txt").write_text(word)
    files = {path.relative_to(part).as_posix(): {} for path in part.rglob("*") if path.is_file()}
    (part / "box.json").write_text(json.dumps({"format": "box", "word": word, "files": files}))


def place(folder, word, count=3):
    with publish(folder, KIND) as part:
        fill(part, word, count)


def word_of(folder):
    """Return the word of a complete folder, or None without a header; fail for a mixture."""
    if not (folder / "box.json").exists():
        return None
    header = json.loads((folder / "box.json").read_text())
    own = [folder / "names.txt", *(folder / "parts").iterdir()]
    assert {path.relative_to(folder).as_posix() for path in own} == header["files"].keys()
    assert {path.read_text() for path in own} == {header["word"]}
    return header["word"]


def hidden(folder):
    """Return hidden entries in and beside a folder, without those of others."""
    found = {entry.name for place in (folder, folder.parent) for entry in place.iterdir() if entry.name[0] == "."}
    return found - {".git"}


def kept(folder):
    return {name: (folder / name).read_text() for name in KEPT if (folder / name).exists()}


@pytest.fixture(params=["renamed", "in place"])
def box(request, tmp_path, monkeypatch):
    """Return a folder with an older box and files that stay; a mount point cannot be renamed."""
    folder = tmp_path / "box"
    place(folder, "old")
    for name, text in KEPT.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    if request.param == "in place":
        monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == folder)
    return folder


def dies_at_step(step, folder, word):
    """Place a folder in a process that is killed before its ``step``-th change; return False if it has fewer."""
    child = os.fork()
    if child == 0:
        left = [step]

        def counted(function):
            def call(*arguments, **more):
                left[0] -= 1
                if left[0] < 0:
                    os._exit(9)
                return function(*arguments, **more)

            return call

        for name in ("rename", "unlink", "mkdir", "rmdir"):
            setattr(os, name, counted(getattr(os, name)))
        place(folder, word, count=5)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def test_files_beside_the_parts_stay_even_while_they_are_written(box):
    with (box / "train.log").open("a") as log:
        number = os.fstat(log.fileno()).st_ino
        place(box, "new", count=1)
        log.write("ended\n")
    assert word_of(box) == "new"
    assert kept(box) == KEPT | {"train.log": "begun\nended\n"}
    assert (box / "train.log").stat().st_ino == number
    assert not hidden(box)


def test_a_kill_at_any_step_leaves_the_old_or_the_new_folder_and_all_other_files(box):
    step, words, unsettled = 0, ["old"], 0
    while dies_at_step(step, box, f"new {step}"):
        left = publishing.aside(box)
        if not box.exists() or word_of_header(box) is None:
            unsettled += 1
            assert left is not None
        elif left is None:
            assert word_of(box) in (words[-1], f"new {step}")
        with claimed_folder(box, KIND):
            pass
        assert word_of(box) in (words[-1], f"new {step}")
        words.append(word_of(box))
        assert kept(box) == KEPT
        assert not hidden(box)
        step += 1
    assert word_of(box) == f"new {step}"
    assert unsettled, "no kill came between two renames"
    assert len(set(words)) > 2, "some kill must have come after the replacement"


def word_of_header(folder):
    """Return the word of a folder that may be a mixture, or None without a header."""
    return json.loads((folder / "box.json").read_text())["word"] if (folder / "box.json").exists() else None


def test_an_error_while_filling_leaves_only_the_old_folder(box):
    def fails():
        with publish(box, KIND) as part:
            fill(part, "new")
            raise RuntimeError("no room")

    with pytest.raises(RuntimeError):
        fails()
    assert (word_of(box), kept(box)) == ("old", KEPT)
    assert not hidden(box)


def test_a_folder_that_cannot_take_its_name_leaves_the_old_one(box, monkeypatch):
    rename = Path.rename

    def fails(path, target):
        if path.name == "box.json" or Path(target) == box:
            raise PermissionError(13, "Permission denied", str(path))
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fails)
        with pytest.raises(PermissionError):
            place(box, "new")
    with claimed_folder(box, KIND):
        assert (word_of(box), kept(box)) == ("old", KEPT)
    assert not hidden(box)


@pytest.mark.parametrize("name", ["parts/notes.txt", "parts/.mine", "names.txt"])
def test_a_folder_whose_parts_hold_files_of_others_is_refused_by_their_name(box, name):
    header = json.loads((box / "box.json").read_text())
    del header["files"]["names.txt"]
    (box / "box.json").write_text(json.dumps(header))
    (box / "names.txt").unlink()
    (box / name).write_text("mine")
    refused(
        rf"box holds files that are not part of a box\n.*expected: .* to replace\n.*{name}\n.*fix: +move",
        place, box, "new",
    )  # fmt: skip
    assert ((box / name).read_text(), word_of_header(box)) == ("mine", "old")
    assert not hidden(box)


def test_what_is_no_folder_of_the_kind_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    refused("is a file", place, tmp_path / "file", "new")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    refused("a link to a folder that does not exist", KIND.check_place, tmp_path / "dangling")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "names.txt").write_text("mine")
    refused("names.txt", place, tmp_path / "other", "new")
    place(tmp_path / "box", "old")
    (tmp_path / "elsewhere").mkdir()
    shutil.rmtree(tmp_path / "box" / "parts")
    (tmp_path / "box" / "parts").symlink_to(tmp_path / "elsewhere")
    refused("received: parts", place, tmp_path / "box", "new")


def test_a_file_that_comes_while_the_new_folder_is_filled_stays(box):
    with publish(box, KIND) as part:
        (box / "late.csv").write_text("late")
        fill(part, "new")
    assert (word_of(box), (box / "late.csv").read_text(), kept(box)) == ("new", "late", KEPT)


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


_HOLDER = """
import sys
from xmc_tf.store.publishing import folder_lock
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
    with pytest.raises(InputError, match=r"^/proc/model cannot be written"), folder_lock("/proc/model"):
        pass


def test_the_last_thread_releases_a_lock(tmp_path):
    first, second = (folder_lock(tmp_path / "new" / "box") for _ in range(2))
    assert first.__enter__()
    assert not second.__enter__()
    first.__exit__(None, None, None)  # the second one still writes
    assert (tmp_path / "new" / ".box.xmc_tf.lock").exists()
    second.__exit__(None, None, None)
    assert not list(tmp_path.iterdir())


def test_files_of_others_with_names_like_ours_stay(tmp_path, box):
    others = {f".{box.name}{end}" for end in (".new-pictures", ".new-20240101.csv", ".lock", ".work.lock")}
    for name in others:
        (tmp_path / name).mkdir()
    left = temporary_folder_beside(box)  # of a run that was killed
    place(box, "new")
    assert (hidden(box), left.exists()) == (others, False)


def test_folders_within_a_new_folder_are_written_in_place(tmp_path):
    with publish(tmp_path / "outer", KIND) as part:
        fill(part, "old")
        with publish(part / "parts" / "deep", KIND) as inner, atomic_file(inner / "names.txt") as file:
            assert inner == part / "parts" / "deep"
            file.write_text("old")
    assert (tmp_path / "outer" / "parts" / "deep" / "names.txt").read_text() == "old"
