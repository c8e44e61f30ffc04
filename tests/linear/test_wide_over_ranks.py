"""Wide problems over ranks: teams, sums by files, states taken up again; ranks are threads of this process here."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collective.threads import all_well, on_ranks
from tests.linear.cases import features, label_matrix, pred_params, random_chain, ranker_params
from xmc_tf.data import save_matrix
from xmc_tf.linear import train_rankers
from xmc_tf.linear.distributed.account import Account
from xmc_tf.linear.distributed.training import train_over_ranks
from xmc_tf.linear.distributed.wide_files import FileTeam, teams
from xmc_tf.linear.distributed.work_folder import open_work_folder, work_path
from xmc_tf.linear.levels import Levels

ROWS, LABELS = 80, 60
X, Y, CHAIN, PRED = features("both", ROWS), label_matrix(ROWS, LABELS), random_chain(LABELS, [2, 5]), pred_params()


@pytest.fixture(autouse=True)
def upper_levels_wide(monkeypatch):
    """The root and the level below it, not the labels' own clusters."""
    monkeypatch.setattr("xmc_tf.linear.tasks.WIDE_ENTRIES", 1400)
    monkeypatch.setattr("xmc_tf.linear.tasks.PART_ENTRIES", 500)
    monkeypatch.setattr("xmc_tf.linear.wide_parts.DEAL", 4)
    monkeypatch.setattr("xmc_tf.linear.distributed.plan.LEAST_WORK", 500)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The files of one process, made with the same thresholds."""
    folder = tmp_path_factory.mktemp("one")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"tasks.WIDE_ENTRIES": 1400, "tasks.PART_ENTRIES": 500, "wide_parts.DEAL": 4}.items():
            patch.setattr(f"xmc_tf.linear.{name}", value)
        model = train_rankers(X, Y, CHAIN, params=ranker_params(), pred_params=PRED, threads=1)
    for t, level in enumerate(model.levels):
        save_matrix(folder / f"{t}.npz", level.weights)
    return [(folder / f"{t}.npz").read_bytes() for t in range(model.depth)]


def over_ranks(folder, ranks, threads):
    """The files of weights that so many ranks leave in the work folder."""

    def work(communicator):
        place = open_work_folder(communicator, folder / "model", "k" * 64)
        model = train_over_ranks(
            communicator, place, X, lambda: Levels(Y, CHAIN, None, ranker_params(), None),
            pred_params=PRED, account=Account(threads=threads),
        )  # fmt: skip
        return [place.weights(t).read_bytes() for t in range(model.depth)]

    return all_well(on_ranks(ranks, work))[0]


@pytest.mark.parametrize(("ranks", "threads"), [(1, 1), (3, 1), (2, 3)])
def test_the_bytes_of_one_process(ranks, threads, expected, tmp_path, monkeypatch):
    shared = []
    total = FileTeam.total
    monkeypatch.setattr(FileTeam, "total", lambda self, parts: (shared.append(self._members), total(self, parts))[1])
    assert over_ranks(tmp_path, ranks, threads) == expected
    assert max(shared) == {1: 1, 3: 2, 6: 4}[ranks * threads]
    assert not (work_path(tmp_path / "model") / "wide").exists()


def test_a_course_that_was_broken_off_goes_on_from_its_last_step(expected, tmp_path, monkeypatch):
    keep, total = FileTeam.keep, FileTeam.total

    def failing(self, name, state):
        keep(self, name, state)
        if state.step == 2:
            raise OSError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(FileTeam, "keep", failing)
        with pytest.raises(OSError, match="disk is full"):
            over_ranks(tmp_path, 1, 2)
    begun, sums = [], []
    resume = FileTeam.resume

    def resuming(self, name, state):
        resume(self, name, state)
        begun.append(state.step)

    monkeypatch.setattr(FileTeam, "resume", resuming)
    monkeypatch.setattr(FileTeam, "total", lambda self, parts: (sums.append(1), total(self, parts))[1])
    assert over_ranks(tmp_path, 3, 1) == expected
    assert 2 in begun


def test_files_of_a_sum_do_not_pile_up(tmp_path):
    team = FileTeam(tmp_path, "run", 4, 1, 0, [], lambda: False)
    for k in range(5):
        parts = [np.full((3, 2), 10.0**p + k) for p in range(4)]
        np.testing.assert_array_equal(team.total(parts), ((parts[0] + parts[1]) + parts[2]) + parts[3])
    assert len(list((tmp_path / "run").iterdir())) == 2


@given(st.lists(st.sampled_from([2, 4, 8, 16, 64]), max_size=9), st.integers(1, 80))
def test_teams_are_as_large_as_their_parts_allow(parts, threads):
    found = teams(parts, threads)
    for number, team in zip(parts, found, strict=True):
        assert number % len(team) == 0
        assert len({place % threads for place in team}) == len(team) > min(number, threads) // 2
