"""Wide problems over ranks: teams, connections, resumed states; ranks are threads of this process here."""

import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collective.threads import on_ranks, results_of
from tests.linear.cases import features, label_matrix, pred_params, random_chain, ranker_params
from xmc_tf.data import save_matrix
from xmc_tf.linear.distributed import plan, solving
from xmc_tf.linear.distributed.account import Account
from xmc_tf.linear.distributed.plan import teams
from xmc_tf.linear.distributed.training import train_over_ranks
from xmc_tf.linear.distributed.work_folder import open_work_folder, work_path
from xmc_tf.linear.fit import train_rankers
from xmc_tf.linear.levels import Levels
from xmc_tf.linear.wide.ranks import RankTeam

ROWS, LABELS = 80, 60
X, Y, CHAIN, PRED = features("both", ROWS), label_matrix(ROWS, LABELS), random_chain(LABELS, [2, 5]), pred_params()


@pytest.fixture(autouse=True)
def upper_levels_wide(monkeypatch):
    """Make the root and the level below it wide, but not the labels' clusters."""
    monkeypatch.setattr("xmc_tf.linear.tasks.WIDE_ENTRIES", 1400)
    monkeypatch.setattr("xmc_tf.linear.tasks.WIDE_DOCUMENTS_A_FEATURE", 0)
    monkeypatch.setattr("xmc_tf.linear.tasks.PART_ENTRIES", 500)
    monkeypatch.setattr("xmc_tf.linear.wide.parts.DEAL", 4)
    monkeypatch.setattr("xmc_tf.linear.distributed.plan.LEAST_WORK", 500)
    monkeypatch.setattr("xmc_tf.linear.distributed.plan._TEAM_SHARE", 0.1)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The weight files of one process with the same thresholds."""
    folder = tmp_path_factory.mktemp("one")
    with pytest.MonkeyPatch.context() as patch:
        wide = {"tasks.WIDE_ENTRIES": 1400, "tasks.WIDE_DOCUMENTS_A_FEATURE": 0, "tasks.PART_ENTRIES": 500}
        for name, value in {**wide, "wide.parts.DEAL": 4}.items():
            patch.setattr(f"xmc_tf.linear.{name}", value)
        model = train_rankers(X, Y, CHAIN, params=ranker_params(), pred_params=PRED, threads=1)
    for t, level in enumerate(model.levels):
        save_matrix(folder / f"{t}.npz", level.weights)
    return [(folder / f"{t}.npz").read_bytes() for t in range(model.depth)]


def over_ranks(folder, ranks, threads):
    """Return the content of the weight files of ``ranks`` ranks."""

    def work(communicator):
        place = open_work_folder(communicator, folder / "model", "k" * 64)
        model = train_over_ranks(
            communicator, place, X, lambda: Levels(Y, CHAIN, None, ranker_params(), None),
            pred_params=PRED, account=Account(threads=threads),
        )  # fmt: skip
        return [place.weights(t).read_bytes() for t in range(model.depth)]

    return results_of(on_ranks(ranks, work))[0]


@pytest.mark.parametrize(("ranks", "threads", "largest"), [(1, 1, 1), (3, 1, 2), (2, 3, 4)])
def test_the_bytes_of_one_process(ranks, threads, largest, expected, tmp_path, monkeypatch):
    shared = []
    add = RankTeam.add_tables
    monkeypatch.setattr(RankTeam, "add_tables", lambda self, *of: (shared.append(self.members), add(self, *of))[1])
    assert over_ranks(tmp_path, ranks, threads) == expected
    assert max(shared) == largest
    assert not (work_path(tmp_path / "model") / "wide").exists()


@pytest.mark.parametrize(("ranks", "threads"), [(1, 2), (2, 1)])
def test_an_interrupted_team_resumes_from_its_last_step(ranks, threads, expected, tmp_path, monkeypatch):
    """One member fails; the others stop waiting for it, on its rank and on others."""
    keep, resume = RankTeam.keep, RankTeam.resume

    def failing(self, name, state):
        keep(self, name, state)
        if state.step == 2 and self.number == 0:
            raise OSError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(RankTeam, "keep", failing)
        with pytest.raises(OSError, match="disk is full"):
            over_ranks(tmp_path, ranks, threads)
    begun = []

    def resuming(self, name, state):
        resume(self, name, state)
        begun.append(state.step)

    monkeypatch.setattr(RankTeam, "resume", resuming)
    assert over_ranks(tmp_path, 3, 1) == expected
    assert 2 in begun


def test_sub_problems_are_solved_while_a_team_waits(expected, tmp_path, monkeypatch):
    priorities, swap, solved = set(), RankTeam.swap, solving._solved

    def slowly(self, *arrays):
        time.sleep(0.01)
        swap(self, *arrays)

    def noting(*which):
        if threading.current_thread().name.startswith("substitute"):
            priorities.add(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return solved(*which)

    monkeypatch.setattr(RankTeam, "swap", slowly)
    monkeypatch.setattr(solving, "_solved", noting)
    assert over_ranks(tmp_path, 2, 1) == expected
    assert priorities == {19}
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) < 19


def test_an_error_of_a_substitute_is_not_lost(tmp_path, monkeypatch):
    solved = solving._solved

    def failing(*which):
        if threading.current_thread().name.startswith("substitute"):
            raise OSError("the disk is full")
        return solved(*which)

    monkeypatch.setattr(RankTeam, "keep", lambda *_: time.sleep(0.1))
    monkeypatch.setattr(solving, "_solved", failing)
    with pytest.raises(OSError, match="disk is full"):
        over_ranks(tmp_path, 1, 2)


works = st.lists(st.tuples(st.integers(1, 10**11), st.sampled_from([2, 4, 8, 16, 64])), max_size=9)


@given(works, st.integers(0, 10**12), st.integers(1, 80))
def test_teams_are_as_large_as_an_even_share_asks_for_and_their_parts_allow(works, more, threads):
    total = sum(work for work, _ in works) + more
    found = teams([work for work, _ in works], [parts for _, parts in works], total, threads)
    for (work, parts), team in zip(works, found, strict=True):
        assert parts % len(team) == 0
        assert len({place % threads for place in team}) == len(team)
        limit = min(plan._TEAM_SHARE * total / threads, plan._MEMBER_WORK)
        assert work / len(team) <= limit or 2 * len(team) > min(parts, threads)
        assert len(team) == 1 or work / (len(team) / 2) > limit
