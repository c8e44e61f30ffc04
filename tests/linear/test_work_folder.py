"""The ranks' work folder after an interruption of its creation or its removal."""

import pytest

from xmc_tf.common.errors import InputError
from xmc_tf.rankers.distributed import work_folder
from xmc_tf.rankers.distributed.work_folder import open_work_folder, work_path
from xmc_tf.ranks.solo import Solo


class Stopped(BaseException):
    """An exception in place of a kill: no code after it runs."""


def stop(*_arguments, **_options):
    raise Stopped


def test_a_folder_whose_creation_was_interrupted_can_be_opened(tmp_path, monkeypatch):
    stopped = pytest.raises(Stopped)
    with monkeypatch.context() as patched, stopped:
        patched.setattr(work_folder.json, "dumps", stop)
        open_work_folder(Solo(), tmp_path / "model", "key")
    # A kill, unlike an exception, leaves the unfinished file too.
    (work_path(tmp_path / "model") / ".work-x7a1b2c3.json").write_text("{")
    work = open_work_folder(Solo(), tmp_path / "model", "key")
    assert work.blocks.is_dir()
    assert (work.path / "work.json").is_file()


@pytest.mark.parametrize("left", ["work.json", "blocks/0-1"])
def test_the_rest_of_an_interrupted_removal_is_not_a_work_folder(tmp_path, monkeypatch, left):
    work = open_work_folder(Solo(), tmp_path / "model", "key")
    (work.blocks / "0-1").write_text("solved")

    def remove_all_but_one(folder, **_options):
        for path in [path for path in folder.rglob("*") if path.is_file() and path != folder / left]:
            path.unlink()
        stop()

    stopped = pytest.raises(Stopped)
    with monkeypatch.context() as patched, stopped:
        patched.setattr(work_folder.shutil, "rmtree", remove_all_but_one)
        work.remove()
    work = open_work_folder(Solo(), tmp_path / "model", "key")
    assert not list(work.blocks.iterdir())
    work.remove()
    assert not list(tmp_path.iterdir())


def test_a_folder_of_another_program_is_kept(tmp_path):
    path = work_path(tmp_path / "model")
    path.mkdir()
    (path / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="is needed for intermediate results"):
        open_work_folder(Solo(), tmp_path / "model", "key")
    assert (path / "letter.txt").read_text() == "dear"
