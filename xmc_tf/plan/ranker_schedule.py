"""A simulated training of rankers: the real plan of sub-problems, with estimated times, on ranks with one thread each.

A task takes its estimate times a random factor (a quarter up or down), because the passes that a solver needs are not
known beforehand. Every claim, with its file, costs a fiftieth of a second.

Problems that are too wide for one thread go first, by teams, as ``plan.teams`` makes them. A team's time consists of

* work: a multiple of one thread's, as ``tests/benchmarks/wide_solver.py`` measured it, which depends on the number of
  documents per feature (``_MEASURED``), as do the numbers of sums;
* operations on whole tables, measured on a million rows: on rows, which members share, and those of each part;
* the pace of the slowest member in each pass, a twentieth up or down (assumed);
* exchange: for each sum a table less the own rows, in both directions, and once more to gather the next one, 64 bytes
  per feature for 16 labels, and 50 microseconds per message (assumed).

While a member waits for others or for the network, its substitute works, but for the time in which the processor copies
what is sent and received.
"""

import heapq
from typing import Any, NamedTuple

import numpy as np

from xmc_tf.linear.distributed.plan import cut_into_sub_problems, teams
from xmc_tf.linear.tasks import LevelTasks
from xmc_tf.plan.ranker_tasks import RankerSizes, RankerTasks

UNITS_A_SECOND = 7e6  # of one thread, measured
# A dense entry costs less than a sparse one: with 384 dense columns beside 41 sparse entries, training took 2.4 times
# as long.
DENSE_ENTRY = 0.15
NETWORK = 1.25e9
_CLAIM_S, _SPREAD = 0.02, 0.25
_WEIGHTS_A_LABEL = 300
# Documents per feature, work relative to one thread's, sums of whole tables, small sums.
_MEASURED = np.array(
    [[77, 0.47, 52, 114], [31, 0.68, 81, 174], [19, 0.89, 102, 218], [15.3, 1.03, 98, 210], [11.8, 1.3, 121, 258]]
)
_OWN_ROWS_S, _A_PART_S = 0.126, 0.02  # for a million rows
_PART_SPREAD, _MESSAGE_S = 0.05, 50e-6
_COPIES_S = 0.5e-9  # processor seconds for a byte sent and one received, over loopback: 0.37, 0.50 and 0.52


def simulate(
    tasks: RankerTasks, sizes: RankerSizes, ranks: int, *, seed: int = 0, network: float = NETWORK
) -> dict[str, Any]:
    """Simulate a training: teams first, then the remaining tasks on free ranks.

    Args:
        tasks: the tasks of all levels.
        sizes: the sizes that they were made of.
        ranks: number of ranks, with one thread each.
        seed: seed of the random factors.
        network: bytes per second that each rank can send and receive.
    """
    levels = tasks.levels
    works = {t: one.work for t, one in levels.items()}
    plan = cut_into_sub_problems(works)
    rng = np.random.default_rng(seed)
    actual = {t: work * rng.lognormal(0, _SPREAD, work.size) / UNITS_A_SECOND for t, work in works.items()}
    before = {t: np.concatenate(([0.0], np.cumsum(seconds))) for t, seconds in actual.items()}
    seconds = np.array([before[sub.level][sub.last] - before[sub.level][sub.first] for sub in plan])
    whole = float(seconds.sum())
    parts = np.array([levels[sub.level].parts[sub.first : sub.last].max() for sub in plan])
    wide = np.flatnonzero(parts)
    total = sum(sub.work for sub in plan)
    members = teams([plan[i].work for i in wide], parts[wide].tolist(), total, ranks)
    free, idle, extra, sent, together = np.zeros(ranks), np.zeros(ranks), 0.0, 0.0, []
    took = seconds.copy()
    for i, team in zip(wide, members, strict=True):
        course = _course(levels[plan[i].level], plan[i].first, int(parts[i]), len(team), sizes, network)
        took[i], spent = _by_team(seconds[i], course, len(team), rng)
        extra += spent.sum() - seconds[i]
        sent = max(sent, course.sent)
        if len(team) > 1:
            places = [place % ranks for place in team]
            begun = free[places].max()
            idle[places] += begun - free[places] + took[i] - spent
            free[places] = begun + took[i]
            together.append(i)
    narrow = np.delete(took, together) + _CLAIM_S
    # While others are waited for, a substitute works: as if the rank were free so much earlier.
    makespan = max(_hand_out(narrow, free - idle), free.max())
    longest = max(narrow.max() - _CLAIM_S, 0)
    small = narrow[narrow <= whole / ranks]
    left = max(ranks - len(narrow) + len(small), 1)
    even_rest = float(small.sum() - _CLAIM_S * len(small))
    rest = _hand_out(small, np.zeros(left)) * left / even_rest if len(small) else 1.0
    entries = works[0].max() / 2  # the root's own instances: a copy of all features
    alone = np.delete(np.array([sub.work for sub in plan]), together).max()
    team_sizes = [len(team) for team in members]
    return {
        "ranks": ranks, "sub_problems": len(plan), "wide": len(wide), "makespan_s": round(makespan, 1),
        "even_s": round(whole / ranks, 1), "serial_s": round(float(actual[0].max()), 1),
        "longest_s": round(longest, 1), "over_bound": round(makespan / max(whole / ranks, longest), 4),
        "over_even": round(makespan * ranks / whole, 4), "rest_over_even": round(rest, 4),
        "extra_work": round(extra / whole, 4),
        "waiting_share": round(1 - (whole + extra + _CLAIM_S * len(narrow)) / (makespan * ranks), 4),
        "sent_a_team_gb": round(sent / 1e9, 1),
        "team_members": [team_sizes[0] if team_sizes else 1, sum(size for size in team_sizes if size > 1)],
        **_memory(levels, sizes, (entries, alone / 2), ranks, team_sizes[0] if team_sizes else 1),
    }  # fmt: skip


class _Course(NamedTuple):
    """A team's work relative to one thread's, its sums, a member's seconds for tables and exchange, its bytes."""

    work: float
    sums: int
    tables_s: float
    exchange_s: float
    sent: float


def _course(tasks: LevelTasks, task: int, parts: int, members: int, sizes: RankerSizes, network: float) -> _Course:
    """Simulate one task with all of its groups of labels."""
    labels = int(tasks.end[task] - tasks.begin[task])
    groups = -(-labels // 16)
    documents = tasks.work[task] / (1 + groups) / (sizes.entries + 1)
    work, sums, small = (
        np.interp(np.log(documents / sizes.features), np.log(_MEASURED[::-1, 0]), column)
        for column in _MEASURED[::-1, 1:].T
    )
    rounds = np.log2(members)
    table = sizes.features * min(labels, 16) * 4 * (members - 1) / members
    exchange = 2 * (table / network + rounds * _MESSAGE_S) + small / sums * rounds * _MESSAGE_S
    millions = sizes.features / 1e6
    tables = millions * (_OWN_ROWS_S / members + _A_PART_S * parts / members)
    count = int(sums) * groups
    return _Course(float(work), count, tables, exchange, 2 * table * count)


def _by_team(seconds: float, course: _Course, members: int, rng: np.random.Generator) -> tuple[float, np.ndarray]:
    """Return the seconds that a team takes, and the seconds of work of each member."""
    share = seconds * course.work / course.sums / members + course.tables_s
    work = share * rng.lognormal(0, _PART_SPREAD, (course.sums, members))
    return float((work.max(1) + course.exchange_s).sum()), work.sum(0) + course.sent * _COPIES_S


def _hand_out(seconds: np.ndarray, start: np.ndarray) -> float:
    """Return when the last rank is done if each free rank takes the next problem."""
    free = start.tolist()
    heapq.heapify(free)
    for one in seconds.tolist():
        heapq.heappush(free, heapq.heappop(free) + one)
    return max(free)


def _memory(
    levels: dict[int, LevelTasks], sizes: RankerSizes, entries: tuple[float, float], ranks: int, members: int
) -> dict[str, float]:
    """Return gigabytes, by what the arrays of the code take: a rank of the root's problem, any other, and W.

    ``entries`` are those of the root's problem and of the largest other one.
    """
    root, second = entries
    documents = root / (sizes.entries + 1)
    labels = sum(one.work.size for one in levels.values()) * 64
    always = 8 * documents + 8 * labels  # pointers of features and labels
    gathered = 8 * root + documents * (64 + 16 + 24)  # entries, dual variables and signs of 16 labels, the rest
    other = second * (8 + 232 / sizes.entries)
    if levels[0].parts[0]:
        # A member's entries, and of each document three rows of lanes, signs, the rest; ten tables; its substitute's.
        gathered = (8 * root + documents * (3 * 64 + 16 + 24)) / members + 10 * sizes.features * 64
        gathered += other * (members > 1)
    return {
        "root_rank_gb": round((always + gathered) / 1e9, 2),
        "other_rank_gb": round((always + other) / 1e9, 2),
        "written_a_rank_gb": round(labels * _WEIGHTS_A_LABEL * 8 / ranks / 1e9, 3),
    }
