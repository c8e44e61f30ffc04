"""The balance of training rankers over many ranks: the real plan, with synthetic sizes and a simulated clock.

    python -m tests.benchmarks.ranker_planner [--labels 1e6 1e7 1e8] [--ranks 8 … 512] [--picture docs/….svg]

The sizes: labels whose frequencies follow the curve that was fitted to finna-en (16,481 labels, 153,161 documents),
with as many documents a label and entries a document, laid at random into the leaves of a tree of 16 children a node
and 100 labels a leaf. A document is matched to a cluster when it has one of its labels, taken as independent. The tasks
and their cuts come from ``xmc_tf.linear.tasks`` and ``xmc_tf.linear.distributed.plan``; claims go down the plan's list,
as ``claims.py`` has it. What a task takes is its estimate times a random factor (a quarter up or down), since the
passes that a solver needs are not known beforehand, and every claim, with its file, costs a fiftieth of a second.

Problems that are too wide for one thread go first, by teams (``linear/wide/team.py``), as ``plan.teams`` makes them;
those for which a team of one will do lie in the list with the others. What a team takes:

* Work: so many times that of one thread's solver, as ``wide_solver.py --parts 1`` measured it on finna-en's root. It
  depends on how many documents there are to a feature (``_MEASURED``), and so do the numbers of sums.
* Operations on whole tables. Made-up texts have a million features, whose tables no cache holds; so what
  ``wide_solver.py`` measured on a million rows comes on top: that on rows, which members share, and that of each part.
* Members' paces: every pass over the documents takes as long as its slowest member, a twentieth up or down (assumed).
* Exchange, while which members wait: for each sum a table less the own rows, to and fro, and once more to gather the
  next one, 64 bytes a feature for 16 labels, at ten gigabit a second for every rank (``--network``), and 50
  microseconds a message (both assumed).

What a member waits for others or for the network, its substitute works (``solving.py``), but for the time in which the
processor copies what is sent and received.

Prints one JSON line a size and number of ranks:

``over_bound``  the time against the least that is possible: an even share, or the longest task that one thread has
``over_even``   the time against the ideal: the work of one thread that solves all by itself, divided by the ranks
``rest_over_even``  what single threads do and is smaller than an even share, on the ranks that the larger leave
``extra_work``  what the teams' way costs beyond that, as a share of it
``waiting_share``  of the ranks' time: what no substitute fills, and the end
``longest_s``   the longest task that one thread has to do alone, which no number of ranks shortens
``serial_s``    what the root's problem would take one thread
``sent_a_team_gb``  what a member of the root's team sends
``team_members``  of the root's team, and of all together
"""

import argparse
import heapq
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xmc_tf.linear import tasks
from xmc_tf.linear.distributed.plan import cut_into_sub_problems, teams
from xmc_tf.linear.tasks import LevelTasks, cut_clusters
from xmc_tf.tree.grouping import binary_depth, half_bounds, upper_splits

# frequency(u) = exp(13.54) * (16481 * u + 2080) ** -1.092 at the share u of the labels, fitted to finna-en.
_HEAD, _POWER, _SHIFT, _LABELS = 13.54, 1.092, 2080.0, 16_481
_DOCUMENTS_A_LABEL, _ENTRIES_A_DOCUMENT = 9.293, 30
_UNITS_A_SECOND = 7e6  # of one thread, measured on finna-en-small
_CLAIM_S, _SPREAD = 0.02, 0.25
_WEIGHTS_A_LABEL = 300
_FEATURES = 1e6
# Documents a feature: team_over_alone, summed_tables, small_sums; a row for each --most of wide_solver.
_MEASURED = np.array(
    [[77, 0.47, 52, 114], [31, 0.68, 81, 174], [19, 0.89, 102, 218], [15.3, 1.03, 98, 210], [11.8, 1.3, 121, 258]]
)
_OWN_ROWS_S, _A_PART_S = 0.126, 0.02  # its line wide_tables: a million rows
_PART_SPREAD, _NETWORK, _MESSAGE_S = 0.05, 1.25e9, 50e-6
_COPIES_S = 0.5e-9  # processor seconds for a byte sent and one received, over loopback: 0.37, 0.50 and 0.52
_COLORS = ("#1a7f64", "#b4690e", "#6f42c1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=float, nargs="+", default=[1e6, 1e7, 1e8])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 16, 32, 64, 128, 256, 512])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--wide-entries", type=float, help="clusters with more entries have a team; default: as built")
    parser.add_argument(
        "--network", type=float, default=_NETWORK, help="bytes a second that a rank can send and receive"
    )
    parser.add_argument("--picture", type=Path, help="an .svg of the speed-up")
    a = parser.parse_args()
    if a.wide_entries:
        tasks.WIDE_ENTRIES, tasks.PART_ENTRIES = int(a.wide_entries), int(a.wide_entries / 2)
    lines = []
    for labels in map(int, a.labels):
        works, shape = made_up_work(labels, np.random.default_rng(a.seed))
        for ranks in a.ranks:
            lines.append(
                {"figure": "ranker_planner", "labels": labels, **shape, **simulate(works, ranks, a.seed, a.network)}
            )
            print(json.dumps(lines[-1]), flush=True)
        worst = [line["over_even"] for line in lines if line["labels"] == labels]
        print(f"{labels:,} labels: at most {max(worst):.3f} times even shares", file=sys.stderr)
    if a.picture:
        a.picture.write_text(picture(lines), encoding="utf-8")


def made_up_work(labels: int, rng: np.random.Generator) -> tuple[dict[int, LevelTasks], dict[str, Any]]:
    """Return the tasks of every level, and the sizes from which they are computed."""
    documents = int(labels * _DOCUMENTS_A_LABEL)
    depth = binary_depth(labels, 100)
    leaves = half_bounds(labels, depth)
    rate = np.empty(leaves.size - 1)  # expected labels of a document in each cluster
    for first in range(0, leaves.size - 1, 1 << 14):
        bounds = leaves[first : first + (1 << 14) + 1]
        share = rng.random(bounds[-1] - bounds[0])
        frequency = np.exp(_HEAD) * (_LABELS * share + _SHIFT) ** -_POWER
        rate[first : first + bounds.size - 1] = np.add.reduceat(frequency, bounds[:-1] - bounds[0]) / documents
    splits = [*upper_splits(leaves.size - 1, 16, None), leaves]
    works, matched = {}, []
    for level in range(len(splits) - 1, -1, -1):
        share = -np.expm1(-rate) if level else np.ones(1)
        entries = share * documents * (_ENTRIES_A_DOCUMENT + 1)
        works[level] = cut_clusters(np.diff(splits[level]), entries, share * documents / _FEATURES)
        matched.append(float(share.sum() * documents))
        if level:
            rate = np.add.reduceat(rate, splits[level - 1][:-1])
    shape = {"documents": documents, "levels": len(splits), "tasks": sum(len(one.work) for one in works.values())}
    return dict(sorted(works.items())), {**shape, "matched_entries": int(sum(matched))}


def simulate(levels: dict[int, LevelTasks], ranks: int, seed: int = 0, network: float = _NETWORK) -> dict[str, Any]:
    """Simulate the plan on ranks with one thread: teams first, then the remaining tasks on free ranks."""
    works = {t: one.work for t, one in levels.items()}
    plan = cut_into_sub_problems(works)
    rng = np.random.default_rng(seed)
    actual = {t: work * rng.lognormal(0, _SPREAD, work.size) / _UNITS_A_SECOND for t, work in works.items()}
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
        course = _course(levels[plan[i].level], plan[i].first, int(parts[i]), len(team), network)
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
    # What others are waited for is time for a substitute: as if the rank were free so much earlier.
    makespan = max(_hand_out(narrow, free - idle), free.max())
    longest = max(narrow.max() - _CLAIM_S, 0)
    small = narrow[narrow <= whole / ranks]
    left = max(ranks - len(narrow) + len(small), 1)
    rest = _hand_out(small, np.zeros(left)) * left / float(small.sum() - _CLAIM_S * len(small))
    entries = works[0].max() / 2  # the root's own instances: a copy of all features
    alone = np.delete(np.array([sub.work for sub in plan]), together).max()
    sizes = [len(team) for team in members]
    return {
        "ranks": ranks, "sub_problems": len(plan), "wide": len(wide), "makespan_s": round(makespan, 1),
        "even_s": round(whole / ranks, 1), "serial_s": round(float(actual[0].max()), 1),
        "longest_s": round(longest, 1), "over_bound": round(makespan / max(whole / ranks, longest), 4),
        "over_even": round(makespan * ranks / whole, 4), "rest_over_even": round(rest, 4),
        "extra_work": round(extra / whole, 4),
        "waiting_share": round(1 - (whole + extra + _CLAIM_S * len(narrow)) / (makespan * ranks), 4),
        "sent_a_team_gb": round(sent / 1e9, 1),
        "team_members": [sizes[0] if sizes else 1, sum(size for size in sizes if size > 1)],
        **_memory(levels, entries, alone / 2, ranks, sizes[0] if sizes else 1),
    }  # fmt: skip


class _Course(NamedTuple):
    """What a team's course takes: its work against one thread's, steps, a member's seconds for tables, and exchange."""

    work: float
    sums: int
    tables_s: float
    exchange_s: float
    sent: float


def _course(tasks: LevelTasks, task: int, parts: int, members: int, network: float) -> _Course:
    """Simulate one task with all of its groups of labels."""
    labels = int(tasks.end[task] - tasks.begin[task])
    groups = -(-labels // 16)
    documents = tasks.work[task] / (1 + groups) / (_ENTRIES_A_DOCUMENT + 1)
    work, sums, small = (
        np.interp(np.log(documents / _FEATURES), np.log(_MEASURED[::-1, 0]), column) for column in _MEASURED[::-1, 1:].T
    )
    rounds = np.log2(members)
    table = _FEATURES * min(labels, 16) * 4 * (members - 1) / members
    exchange = 2 * (table / network + rounds * _MESSAGE_S) + small / sums * rounds * _MESSAGE_S
    millions = _FEATURES / 1e6
    tables = millions * (_OWN_ROWS_S / members + _A_PART_S * parts / members)
    count = int(sums) * groups
    return _Course(work, count, tables, exchange, 2 * table * count)


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


def _memory(levels: dict[int, LevelTasks], entries: float, second: float, ranks: int, members: int) -> dict[str, float]:
    """Return gigabytes, by what the arrays of the code take: a rank of the root's problem, any other, and W."""
    documents = entries / (_ENTRIES_A_DOCUMENT + 1)
    labels = sum(one.work.size for one in levels.values()) * 64
    always = 8 * documents + 8 * labels  # pointers of features and labels
    gathered = 8 * entries + documents * (64 + 16 + 24)  # entries, dual variables and signs of 16 labels, the rest
    other = second * (8 + 232 / _ENTRIES_A_DOCUMENT)
    if levels[0].parts[0]:
        # A member's entries, and of each document three rows of lanes, signs, the rest; ten tables; its substitute's.
        gathered = (8 * entries + documents * (3 * 64 + 16 + 24)) / members + 10 * _FEATURES * 64
        gathered += other * (members > 1)
    return {
        "root_rank_gb": round((always + gathered) / 1e9, 2),
        "other_rank_gb": round((always + other) / 1e9, 2),
        "written_a_rank_gb": round(labels * _WEIGHTS_A_LABEL * 8 / ranks / 1e9, 3),
    }


def picture(lines: list[dict[str, Any]]) -> str:
    """Speed-up over one rank against the number of ranks, both by powers of two."""
    width, height, left, bottom, side = 700, 430, 70, 370, 320
    most = max(line["ranks"] for line in lines)

    def x(ranks: float) -> float:
        return left + 560 * (np.log2(ranks) - 3) / max(np.log2(most) - 3, 1)

    def y(speed_up: float) -> float:
        return bottom - side * (np.log2(speed_up) - 3) / max(np.log2(most) - 3, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        ' font-size="13" fill="#30363d">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="26" font-weight="bold">Planned training of rankers: times as fast as one rank</text>',
        f'<line x1="{x(8)}" y1="{y(8)}" x2="{x(most)}" y2="{y(most)}" stroke="#b8bec6" stroke-dasharray="5 4"/>',
        f'<text x="{x(most) - 4}" y="{y(most) - 6}" text-anchor="end" fill="#777">even shares</text>',
    ]
    for ranks in sorted({line["ranks"] for line in lines}):
        parts.append(f'<text x="{x(ranks):.0f}" y="{bottom + 20}" text-anchor="middle">{ranks}</text>')
        parts.append(f'<text x="{left - 12}" y="{y(ranks) + 4:.0f}" text-anchor="end">{ranks}</text>')
        parts.append(f'<line x1="{left}" y1="{y(ranks):.0f}" x2="{x(most)}" y2="{y(ranks):.0f}" stroke="#eceef1"/>')
    parts.append(f'<text x="{x(most) / 2:.0f}" y="{bottom + 44}" text-anchor="middle">ranks of one thread</text>')
    for number, labels in enumerate(sorted({line["labels"] for line in lines})):
        mine = sorted((line for line in lines if line["labels"] == labels), key=lambda line: line["ranks"])
        color = _COLORS[number % len(_COLORS)]
        points = " ".join(f"{x(one['ranks']):.1f},{y(one['ranks'] / one['over_even']):.1f}" for one in mine)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(f'<rect x="{left + 20}" y="{52 + 20 * number}" width="12" height="12" fill="{color}"/>')
        parts.append(
            f'<text x="{left + 38}" y="{63 + 20 * number}">{labels:,} labels: '
            f"{mine[0]['even_s'] * mine[0]['ranks'] / 3600:,.0f} h of one thread</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    main()
