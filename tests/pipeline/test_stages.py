"""Stages: made once, again when what they depend on has changed, taken up where they were stopped."""

import json
import logging
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.collective.threads import on_ranks
from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, TextFile, load_matrix, save_matrix
from xmc_tf.params import MatcherParams, TfidfParams
from xmc_tf.pipeline.inputs import checksum, files_of
from xmc_tf.pipeline.level_params import with_effect
from xmc_tf.pipeline.stages import Stages, digest
from xmc_tf.pipeline.waiting import on_first_rank
from xmc_tf.ranks.on_all_ranks import same_everywhere
from xmc_tf.ranks.solo import Solo
from xmc_tf.tree import LabelTree


class Run:
    """Three stages, the third on the second on the first, and a list of those that were made."""

    def __init__(self, folder, values=(1, 2, 3), fails=None):
        self.made = []
        stages = Stages(folder, Solo())
        before = []
        for name, value in zip("abc", values, strict=True):
            before = [stages.run(name, self.maker(name, value, fails), inputs={"value": value}, after=before)]
        self.stages = stages

    def maker(self, name, value, fails):
        def make(folder):
            self.made.append(name)
            (folder / "half").write_text(str(value))
            if name == fails:
                raise OSError("no space left")
            (folder / "whole").write_text(str(value))
            return {"summary": f"{name} is {value}", "value": value}

        return make


def test_a_second_run_makes_nothing(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="xmc_tf")
    first = Run(tmp_path / "work")
    assert first.made == ["a", "b", "c"]
    again = Run(tmp_path / "work")
    assert again.made == []
    assert [stage.record["value"] for stage in again.stages.done] == [1, 2, 3]
    assert [stage.seconds for stage in again.stages.done] == pytest.approx(
        [stage.seconds for stage in first.stages.done], abs=1e-3
    )
    assert "b: reused from an earlier run: b is 2" in caplog.text
    assert [line[0] for line in again.stages.summary()] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("values", "made"), [((9, 2, 3), ["a", "b", "c"]), ((1, 9, 3), ["b", "c"]), ((1, 2, 9), ["c"])]
)
def test_a_change_makes_anew_what_depends_on_it(tmp_path, values, made):
    Run(tmp_path / "work")
    changed = Run(tmp_path / "work", values)
    assert changed.made == made
    for stage, value in zip(changed.stages.done, values, strict=True):
        assert (stage.folder / "whole").read_text() == str(value)
    assert Run(tmp_path / "work", values).made == []


def test_options_without_effect_repeat_no_stage():
    changed = MatcherParams(threshold=0.5, cache_dir="elsewhere")
    assert with_effect(changed) == with_effect(MatcherParams())


def test_a_stage_that_failed_is_not_there(tmp_path):
    with pytest.raises(OSError, match="no space left"):
        Run(tmp_path / "work", fails="b")
    assert (tmp_path / "work" / "a").is_dir()
    assert not (tmp_path / "work" / "b").exists()
    assert Run(tmp_path / "work").made == ["b", "c"]


def test_what_a_stopped_stage_has_left_is_there_for_the_same_inputs_only(tmp_path):
    with pytest.raises(OSError, match="no space"):
        Run(tmp_path / "work", fails="b")
    seen = []

    def look(folder):
        seen.append((folder / "half").exists())
        return {}

    for value, expected in ((2, True), (7, False)):
        stages = Stages(tmp_path / "work", Solo())
        a = stages.run("a", look, inputs={"value": 1})
        with pytest.raises(OSError, match="no space"):
            stages.run("b", lambda folder: (look(folder), Run.maker(Run.__new__(Run), "", 0, ""))[0] or _fail(),
                       inputs={"value": value}, after=[a])  # fmt: skip
        assert seen == [expected]
        seen.clear()


def _fail():
    raise OSError("no space left")


def test_a_damaged_record_counts_as_none(tmp_path):
    Run(tmp_path / "work")
    (tmp_path / "work" / "b" / "stage.json").write_text('{"hash": "')
    assert Run(tmp_path / "work").made == ["b"]


def test_another_folder_is_not_taken_for_a_work_folder(tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to.txt").write_text("dear")
    refused("is not a work folder", Stages, tmp_path / "letters", Solo())
    assert (tmp_path / "letters" / "to.txt").read_text() == "dear"


class Stopped(BaseException):
    """What a kill is to a test in one process: nothing behind it is done."""


def stop_at(monkeypatch, owner, name, when):
    """Ends the process, as it were, before the first call that is as described."""
    original = getattr(owner, name)

    def call(*arguments, **options):
        if when(*arguments):
            raise Stopped
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize("left", [".work", "b/stage.json"])
def test_stopped_while_it_is_removed_it_can_be_run_again(tmp_path, monkeypatch, left):
    """Whatever file the removal gets to first, what it has not got to is not taken for something whole."""
    work = tmp_path / "work"
    run, removed = Run(work), []

    def remove_one_file(folder):
        removed.extend(path for path in sorted(folder.rglob("*")) if path.is_file() and path != work / left)
        for path in removed:
            path.unlink()
        raise Stopped

    stopped = pytest.raises(Stopped)
    with monkeypatch.context() as patched, stopped:
        patched.setattr("xmc_tf.pipeline.stages.shutil.rmtree", remove_one_file)
        run.stages.remove()
    assert removed
    again = Run(work)
    for stage in again.stages.done:
        assert (stage.folder / "whole").exists()
    again.stages.remove()
    assert not work.exists()


def test_stopped_before_it_gets_its_name_a_stage_is_gone_on_with(tmp_path, monkeypatch):
    stopped = pytest.raises(Stopped)
    with monkeypatch.context() as patched, stopped:
        stop_at(patched, Path, "rename", lambda path, target: path.name == "b.part")
        Run(tmp_path / "work")
    seen = []
    stages = Stages(tmp_path / "work", Solo())
    a = stages.run("a", lambda folder: {}, inputs={"value": 1})
    stages.run("b", lambda folder: seen.extend(folder.iterdir()) or {}, inputs={"value": 2}, after=[a])
    assert a.kept
    assert {path.name for path in seen} == {"half", "whole", "begun.json", "stage.json"}
    assert not (tmp_path / "work" / "b" / "begun.json").exists()


def test_an_older_stage_that_is_half_removed_is_not_taken_up_again(tmp_path, monkeypatch):
    """Other inputs replace it, that is stopped, and the first inputs are given again."""
    Run(tmp_path / "work")
    stopped = pytest.raises(Stopped)
    with monkeypatch.context() as patched, stopped:
        patched.setattr("xmc_tf.pipeline.stages.shutil.rmtree", remove_one_and_stop)
        Run(tmp_path / "work", (1, 9, 3))
    again = Run(tmp_path / "work")
    assert again.made == ["b"]
    assert (tmp_path / "work" / "b" / "whole").read_text() == "2"


def remove_one_and_stop(folder):
    (folder / "whole").unlink()
    raise Stopped


def test_the_hash_is_of_what_is_in_parameters():
    assert digest({"p": TfidfParams()}) == digest({"p": TfidfParams(min_df=2)})
    assert digest({"p": TfidfParams()}) != digest({"p": TfidfParams(min_df=3)})
    with pytest.raises(TypeError, match="object"):
        digest({"p": object()})


def test_ranks_share_what_the_first_makes(tmp_path):
    def work(world):
        made = []

        def make(folder):
            made.append(world.rank)
            (folder / "whole").write_text("done")
            return {"rank": world.rank}

        stages = Stages(tmp_path / "work", world)
        alone = stages.run("alone", make, inputs={})
        shared = stages.run(
            "shared", lambda folder: {"seen": (folder / "begun.json").exists()}, inputs={}, after=[alone], by_all=True
        )
        return made, alone.record, shared.record

    results = on_ranks(3, work)
    assert [made for made, _, _ in results] == [[0], [], []]
    assert all(record == {"rank": 0} and shared == {"seen": True} for _, record, shared in results)
    assert json.loads((tmp_path / "work" / "shared" / "stage.json").read_text())["facts"] == {"seen": True}


def test_a_lost_rank_is_told_while_the_first_ones_work_goes_on():
    """Somebody has died, and what rank 0 does in the meantime would take hours."""
    ended = threading.Event()

    class Lost:
        rank, size = 0, 2

        def broadcast(self, value, root=0):
            raise RuntimeError("rank 1 has gone")

    works = []
    with pytest.raises(RuntimeError, match="rank 1 has gone"):
        on_first_rank(Lost(), lambda: works.append(ended.wait(600)), every_s=0.01)
    assert works == []  # it goes on
    ended.set()


def test_an_error_of_the_first_rank_reaches_all():
    def work(world):
        def fail():
            raise InputError("nothing to train on", expected="documents")

        refused(r"rank 0 on .*: nothing to train on", on_first_rank, world, fail, every_s=0.01)
        return on_first_rank(world, lambda: "went on", every_s=0.01)

    assert on_ranks(2, work) == ["went on", "went on"]


def test_what_is_mapped_and_what_is_in_memory(tmp_path):
    Y = csr_matrix(np.eye(4, dtype=np.float32))
    save_matrix(tmp_path / "Y.npz", Y)
    wide = Y.copy()
    wide.indptr, wide.indices = wide.indptr.astype(np.int64), wide.indices.astype(np.int64)
    assert checksum(load_matrix(tmp_path / "Y.npz")) == checksum(Y) == checksum(wide)
    assert checksum(Y) != checksum(Y.tocsc())
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert checksum(TextFile(tmp_path / "a.txt")) == checksum(["one", "two"]) == checksum([b"one", b"two"])
    assert checksum(None) is None


def test_every_part_counts():
    X, E = csr_matrix(np.eye(3, dtype=np.float32)), np.ones((3, 2), np.float32)
    tree = LabelTree(splits=([0, 2], [0, 2, 5]), labels=[1, 4, 0, 2, 3])
    other = LabelTree(splits=([0, 2], [0, 3, 5]), labels=[1, 2, 4, 0, 3])
    things = [X, 2 * X, E, E.T.copy(), Features(X, E), tree, other, ["ab", "c"], ["a", "bc"]]
    things += [["a\nb", "c"], ["a", "b\nc"], ["a", "b", "c"]]
    assert len({checksum(thing) for thing in things}) == len(things)
    with pytest.raises(TypeError, match="cannot compute a checksum of int"):
        checksum(3)


def test_files_of_a_folder(tmp_path):
    assert files_of("bert-base-cased") is None
    (tmp_path / "config.json").write_text("{}")
    os.utime(tmp_path / "config.json", ns=(1, 1))
    before = files_of(str(tmp_path))
    assert [name for name, *_ in before] == ["config.json"]
    (tmp_path / "config.json").write_text("[]")  # of the same size
    os.utime(tmp_path / "config.json", ns=(1, 1))
    assert files_of(str(tmp_path)) != before


def test_a_rank_with_other_data_is_named_on_all():
    def work(world):
        sums = {"texts": "a", "labels": "b" if world.rank != 1 else "c"}
        refused("received different labels\n.*rank 0 on host0: b\n.*rank 1 on host1: c", same_everywhere, world, sums)
        same_everywhere(world, {"texts": "a"})
        return world.rank

    assert on_ranks(3, work) == [0, 1, 2]
