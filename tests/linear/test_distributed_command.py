"""The training command over many ranks, tested in one process."""

import pytest

from tests.files import contents
from tests.linear.command_data import facts, run_train
from xmc_tf.data import load_matrix
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.rankers.distributed import solving
from xmc_tf.rankers.distributed.work_folder import work_path
from xmc_tf.tree import load_chain


@pytest.fixture
def basics(corpus, tmp_path):
    """-x, -y, -m, and a deep tree."""
    shape = ["--max-leaf-size", 2, "--nr-splits", 2, "-n", 1]
    return ["-x", corpus / "X.npz", "-y", corpus / "Y.npz", "-m", tmp_path / "m", *shape]


def test_label_embeddings_above_and_within_the_sub_trees(basics, tmp_path):
    trees = {}
    for name, flags in {
        "plain": [],
        "pii": ["-mle", "pii", "-sle", "pii"],
        "above": ["-mle", "pii", "-nst", 2],
        "changed at once": ["-mle", "pii", "-nst", 1],
    }.items():
        run_train(*basics, *flags, "-mwf", "0.3")
        trees[name] = load_chain(tmp_path / "m" / "tree")
        assert facts(tmp_path / "m").get("label_embeddings") == {
            "plain": None, "pii": ["pii", "pii"], "above": ["pii", "pifa"], "changed at once": ["pii", "pifa"],
        }[name]  # fmt: skip
    assert trees["changed at once"] == trees["plain"] != trees["pii"]
    half = len(trees["pii"].labels) // 2
    assert set(trees["above"].labels[:half]) == set(trees["pii"].labels[:half])


def test_several_trees_and_label_names_resume_in_each_stage(corpus, tmp_path, monkeypatch):
    shape = ["--trees", 3, "--max-leaf-size", 2, "--nr-splits", 2, "-n", 1]
    flags = ["-t", corpus / "X.txt", "-y", corpus / "Y.npz", "--labels", corpus / "labels.txt", *shape]
    flags += ["--label-names", "true"]
    run_train(*flags, "-m", tmp_path / "here")
    flags += ["-m", tmp_path / "there"]
    work_path(tmp_path / "there").mkdir()
    monkeypatch.setattr("xmc_tf.rankers.distributed.solving.LEAST_WORK", 1)
    solve_task, solved = solving.solve_task, []

    def counted(*args):
        if len(solved) == 15:  # in the second tree
            raise OSError("no space left on the device")
        solved.append(1)
        return solve_task(*args)

    def failing(*_, **__):
        raise OSError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(solving, "solve_task", counted)
        with pytest.raises(OSError, match="no space left"):
            run_train(*flags)
    with monkeypatch.context() as patched:
        patched.setattr(solving, "solve_task", lambda *args: (solved.append(1), solve_task(*args))[1])
        patched.setattr(ProbabilityModel, "learn", failing)
        with pytest.raises(OSError, match="killed"):
            run_train(*flags)
    tasks = sum(load_matrix(path).shape[1] for path in (tmp_path / "here").rglob("*.model/C.npz"))
    assert len(solved) == tasks  # a cluster each, and none twice
    with monkeypatch.context() as patched:
        patched.setattr(solving, "solve_task", None)
        run_train(*flags)
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert not work_path(tmp_path / "there").exists()
