"""Rankers over ranks: whatever the ranks, interruptions and cuts, the bytes are those of one process.

Ranks are threads of this process here; ``tests/distributed/test_linear_train.py`` starts real ones.
"""

import shutil

import pytest

from tests.collective.threads import on_ranks, results_of
from tests.files import contents
from tests.linear.cases import features, label_matrix, pred_params, random_chain, ranker_params
from xmc_tf.common.errors import InputError
from xmc_tf.rankers.distributed import solving
from xmc_tf.rankers.distributed.inputs import check_same_inputs
from xmc_tf.rankers.distributed.training import rankers_over_ranks, train_trees_over_ranks
from xmc_tf.rankers.distributed.work_folder import open_work_folder, work_path
from xmc_tf.rankers.fit import train_rankers, train_trees
from xmc_tf.rankers.problems import RankerData
from xmc_tf.store.arrays import save_sparse
from xmc_tf.tree import LabelTree

ROWS, LABELS = 80, 150
TREE = LabelTree.from_chain(random_chain(LABELS, [2, 5]))
CHAIN = TREE.to_chain()
Y = label_matrix(ROWS, LABELS)
PRED = pred_params(only_topk=3)


@pytest.fixture
def solved(monkeypatch):
    """The names of the blocks that are solved."""
    names, write = [], solving.write_block
    monkeypatch.setattr(solving, "write_block", lambda path, parts: (names.append(path.name), write(path, parts)))
    return names


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Many sub-problems of few tasks."""
    monkeypatch.setattr(solving, "LEAST_WORK", 1000)
    monkeypatch.setattr("xmc_tf.rankers.tasks.LABELS_PER_TASK", 8)
    monkeypatch.setattr("xmc_tf.rankers.distributed.training.DOCUMENTS_A_PIECE", 17)


def one_process(folder, X, params, **more):
    """Return the content of the weight files of one process's model."""
    model = train_rankers(X, Y, CHAIN, params=params, pred_params=PRED, threads=1, **more)
    paths = [folder / str(t) for t in range(model.depth)]
    for path, level in zip(paths, model.levels, strict=True):
        save_sparse(path, level.weights)
    return [contents(path) for path in paths]


def over_ranks(folder, X, params, ranks, threads=2, key="k" * 64, **more):
    """Return the content of the weight files of ``ranks`` ranks."""

    def work(communicator):
        place = open_work_folder(communicator, folder / "model", key)
        (model,) = train_trees_over_ranks(
            communicator, place, RankerData(X, Y, [TREE], **more), params,
            pred_params=[PRED], threads=threads,
        )  # fmt: skip
        return [contents(place.weights(t)) for t in range(model.depth)]

    results = results_of(on_ranks(ranks, work))
    assert all(files == results[0] for files in results)
    return results[0]


@pytest.mark.parametrize(("kind", "schemes"), [("sparse", "tfn"), ("both", ["tfn", "man", "tfn+man"])])
def test_the_bytes_of_one_process(kind, schemes, tmp_path, solved):
    X, params = features(kind, ROWS), ranker_params(schemes)
    expected = one_process(tmp_path, X, params)
    for ranks in (1, 2, 4):
        solved.clear()
        assert over_ranks(tmp_path / str(ranks), X, params, ranks) == expected
        assert len(solved) > 10


@pytest.mark.parametrize(
    "params",
    [
        ranker_params(solver_type="L2R_LR_DUAL", bias=0.0, max_nonzeros_per_label=3),
        ranker_params(rel_mode="induce", rel_norm="l1"),
        ranker_params(mode="matcher"),
        ranker_params(mode="ranker", ranker_level=2),
        ranker_params("usn", solver_type="L2R_L2LOSS_SVC_PRIMAL"),
    ],
)
def test_every_kind_of_training(params, tmp_path):
    X, user = features("private", ROWS), {"user_negatives": {0: label_matrix(ROWS, LABELS, seed=5)}}
    assert over_ranks(tmp_path, X, params, 2, **user) == one_process(tmp_path, X, params, **user)


def test_a_resumed_run_keeps_solved_blocks_on_any_number_of_ranks(tmp_path, monkeypatch, solved):
    X, params = features("both", ROWS), ranker_params("tfn+man")
    expected = one_process(tmp_path, X, params)
    tasks, solve_task = [], solving.solve_task

    def failing(*args):
        if len(tasks) > 20:
            raise OSError("the disk is full")
        tasks.append(1)
        return solve_task(*args)

    monkeypatch.setattr(solving, "solve_task", failing)
    with pytest.raises(OSError, match="disk is full"):
        over_ranks(tmp_path, X, params, 1)
    blocks = {path.name: path.stat().st_mtime_ns for path in (work_path(tmp_path / "model") / "blocks").iterdir()}
    joined = list(work_path(tmp_path / "model").glob("levels/*/W"))
    assert blocks or joined
    monkeypatch.setattr(solving, "solve_task", solve_task)
    solved.clear()
    assert over_ranks(tmp_path, X, params, 3) == expected
    assert not blocks.keys() & set(solved)


def test_a_level_that_is_joined_does_not_change_the_cuts_of_the_others(tmp_path, monkeypatch, solved):
    """Otherwise, the solved blocks of the other levels would not be found."""
    X, params = features("sparse", ROWS), ranker_params()
    place = work_path(tmp_path / "model")
    kept = tmp_path / "kept"
    from xmc_tf.rankers.distributed import training

    join = training._join
    monkeypatch.setattr(training, "_join", lambda *a: (shutil.copytree(place / "blocks", kept), join(*a)))
    expected = over_ranks(tmp_path, X, params, 1)
    monkeypatch.setattr(training, "_join", join)
    shutil.rmtree(place / "levels" / "2" / "W")
    for path in kept.glob("2.*"):
        shutil.copy(path, place / "blocks")
    solved.clear()
    assert over_ranks(tmp_path, X, params, 1) == expected
    assert not solved


def test_another_training_does_not_use_old_blocks(tmp_path, solved):
    X = features("sparse", ROWS)
    over_ranks(tmp_path, X, ranker_params(), 1)
    other = ranker_params(Cp=2.0)
    solved.clear()
    found = over_ranks(tmp_path, X, other, 1, key="o" * 64)
    assert solved
    assert found == one_process(tmp_path, X, other)


def test_ranks_without_a_shared_folder_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("xmc_tf.rankers.distributed.work_folder._PATIENCE_S", 0.3)
    results = on_ranks(2, lambda one: open_work_folder(one, tmp_path / str(one.rank) / "model", "k" * 64))
    for error in results:
        assert isinstance(error, InputError)
        assert "rank 1 on host1" in str(error)
        assert "shared disk" in str(error)


def test_the_error_about_different_files_names_the_hosts(tmp_path):
    for rank, text in enumerate(["same length", "Same length", "other"]):
        (tmp_path / str(rank)).mkdir()
        (tmp_path / str(rank) / "X.npz").write_text(text)

    def check(files, settings):
        return on_ranks(2, lambda one: check_same_inputs(one, {"features": [files[one.rank]]}, settings[one.rank]))

    same = {"Cp": 1, "seed": 0}
    paths = [tmp_path / str(rank) / "X.npz" for rank in range(3)]
    first, second = results_of(check([paths[0], paths[0]], [same, same]))
    assert first == second
    assert results_of(check([paths[1], paths[1]], [same, same]))[0] != first
    assert results_of(check([paths[0], paths[0]], [{**same, "Cp": 2}] * 2))[0] != first
    for other in (1, 2):
        for error in check([paths[0], paths[other]], [same, same]):
            assert isinstance(error, InputError)
            assert "different features" in str(error)
            assert "rank 0 on host0: X.npz: 11 bytes" in str(error)
            assert "rank 1 on host1" in str(error)
    error = check([paths[0]] * 2, [same, {**same, "Cp": 2}])[0]
    assert "different Cp" in str(error)
    assert "rank 1 on host1: 2" in str(error)


def test_several_trees_share_one_queue_and_have_the_bytes_of_one_process(tmp_path):
    X, params = features("both", ROWS), ranker_params("tfn+man")
    trees = [TREE, TREE.under_one_root(TREE.depth), TREE.under_one_root(1)]
    pred = [pred_params()] * len(trees)
    models = train_trees(X, Y, [tree.to_chain() for tree in trees], params=params, pred_params=pred, threads=3)
    for number, (tree, model) in enumerate(zip(trees, models, strict=True)):
        alone = train_rankers(X, Y, tree.to_chain(), params=params, pred_params=pred[0], threads=1)
        for level, other in zip(model.levels, alone.levels, strict=True):
            assert (level.weights != other.weights).nnz == 0
        model.save(tmp_path / "one" / str(number))

    def stage(ranks):
        folders = [tmp_path / str(ranks) / str(number) for number in range(len(trees))]
        data = RankerData(X, Y, trees)
        return lambda communicator: rankers_over_ranks(
            communicator, folders, data, key="k" * 64, params=params, pred_params=pred, threads=2
        )

    for ranks in (1, 3):
        results_of(on_ranks(ranks, stage(ranks)))
        one, many = (contents(folder) for folder in (tmp_path / "one", tmp_path / str(ranks)))
        assert one == many
