"""How well the work of training rankers spreads over many ranks: the real plan, on made-up sizes, by a simulated clock.

    python -m tests.benchmarks.ranker_planner [--labels 1e6 1e7 1e8] [--ranks 8 … 512] [--picture docs/….svg]

The sizes: labels whose frequencies follow the curve that was fitted to finna-en (16,481 labels, 153,161 documents),
with as many documents a label and entries a document, laid at random into the leaves of a tree of 16 children a node
and 100 labels a leaf. A document is matched to a cluster when it has one of its labels, taken as independent. The tasks
and their cuts come from ``xmc_tf.linear.tasks`` and ``xmc_tf.linear.distributed.plan``; claims go down the plan's list,
as ``claims.py`` has it. What a task takes is its estimate times a random factor (a quarter up or down), since the
passes that a solver needs are not known beforehand, and every claim, with its file, costs a fiftieth of a second.

Prints one JSON line a size and number of ranks:

``over_bound``  the time against the least that is possible: the whole divided by the ranks, or the longest single task
``over_even``   the time against the whole divided by the ranks alone
``rest_over_even``  the same for all problems that are smaller than an even share, on the ranks that the others leave
``serial_s``    the longest single task: the root's problem over all documents, which no number of ranks shortens
"""

import argparse
import heapq
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.linear.distributed.plan import cut_into_sub_problems
from xmc_tf.linear.tasks import cut_clusters
from xmc_tf.tree.grouping import binary_depth, half_bounds, upper_splits

# frequency(u) = exp(13.54) * (16481 * u + 2080) ** -1.092 at the share u of the labels, fitted to finna-en.
_HEAD, _POWER, _SHIFT, _LABELS = 13.54, 1.092, 2080.0, 16_481
_DOCUMENTS_A_LABEL, _ENTRIES_A_DOCUMENT = 9.293, 30
_UNITS_A_SECOND = 7e6  # of one thread, measured on finna-en-small
_CLAIM_S, _SPREAD = 0.02, 0.25
_WEIGHTS_A_LABEL = 300
_COLORS = ("#1a7f64", "#b4690e", "#6f42c1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=float, nargs="+", default=[1e6, 1e7, 1e8])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 16, 32, 64, 128, 256, 512])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, help="an .svg of the speed-up")
    a = parser.parse_args()
    lines = []
    for labels in map(int, a.labels):
        works, shape = made_up_work(labels, np.random.default_rng(a.seed))
        for ranks in a.ranks:
            lines.append({"figure": "ranker_planner", "labels": labels, **shape, **simulate(works, ranks, a.seed)})
            print(json.dumps(lines[-1]), flush=True)
        wide = [line["over_bound"] for line in lines if line["labels"] == labels]
        print(f"{labels:,} labels: at most {max(wide):.3f} times the bound", file=sys.stderr)
    if a.picture:
        a.picture.write_text(picture(lines), encoding="utf-8")


def made_up_work(labels: int, rng: np.random.Generator) -> tuple[dict[int, np.ndarray], dict[str, Any]]:
    """The work of every task of every level, and the sizes that it comes from."""
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
        tasks = cut_clusters(np.diff(splits[level]), share * documents * (_ENTRIES_A_DOCUMENT + 1))
        works[level] = tasks.work
        matched.append(float(share.sum() * documents))
        if level:
            rate = np.add.reduceat(rate, splits[level - 1][:-1])
    shape = {"documents": documents, "levels": len(splits), "tasks": sum(map(len, works.values()))}
    return dict(sorted(works.items())), {**shape, "matched_entries": int(sum(matched))}


def simulate(works: dict[int, np.ndarray], ranks: int, seed: int = 0) -> dict[str, Any]:
    """The plan carried out by ranks of one thread that take what is left."""
    plan = cut_into_sub_problems(works)
    rng = np.random.default_rng(seed)
    actual = {t: work * rng.lognormal(0, _SPREAD, work.size) / _UNITS_A_SECOND for t, work in works.items()}
    before = {t: np.concatenate(([0.0], np.cumsum(seconds))) for t, seconds in actual.items()}
    seconds = np.array([before[sub.level][sub.last] - before[sub.level][sub.first] for sub in plan])
    whole, longest = float(seconds.sum()), max(float(one.max()) for one in actual.values())
    makespan = _hand_out(seconds + _CLAIM_S, ranks)
    small = seconds <= whole / ranks
    left = ranks - int((~small).sum())
    entries = works[0].max() / 2  # the root's own instances: a copy of all features
    return {
        "ranks": ranks, "sub_problems": len(plan), "makespan_s": round(makespan, 1),
        "even_s": round(whole / ranks, 1), "serial_s": round(longest, 1),
        "over_bound": round(makespan / max(whole / ranks, longest), 4), "over_even": round(makespan * ranks / whole, 4),
        "rest_over_even": round(_hand_out(seconds[small] + _CLAIM_S, left) * left / float(seconds[small].sum()), 4),
        "waiting_share": round(1 - (whole + _CLAIM_S * len(plan)) / (makespan * ranks), 4),
        **_memory(works, entries, ranks),
    }  # fmt: skip


def _hand_out(seconds: np.ndarray, ranks: int) -> float:
    """When the last rank is done, where each takes the first problem that nobody has taken."""
    free = [0.0] * ranks
    for one in seconds.tolist():
        heapq.heappush(free, heapq.heappop(free) + one)
    return max(free)


def _memory(works: dict[int, np.ndarray], entries: float, ranks: int) -> dict[str, float]:
    """Gigabytes, by what the arrays of the code take: the rank of the root's problem, any other, and W."""
    documents = entries / (_ENTRIES_A_DOCUMENT + 1)
    labels = sum(work.size for work in works.values()) * 64
    always = 8 * documents + 8 * labels  # pointers of features and labels
    gathered = 8 * entries + documents * (64 + 16 + 24)  # entries, dual variables and signs of 16 labels, the rest
    second = np.sort(np.concatenate(list(works.values())))[-min(3 + ranks, 2000)] / 2
    return {
        "root_rank_gb": round((always + gathered) / 1e9, 2),
        "other_rank_gb": round((always + second * (8 + 104 / _ENTRIES_A_DOCUMENT)) / 1e9, 2),
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
            f'<text x="{left + 38}" y="{63 + 20 * number}">{labels:,} labels; the longest problem alone: '
            f"{mine[0]['serial_s'] / 60:.0f} min of {mine[0]['even_s'] * mine[0]['ranks'] / 3600:,.0f} h</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    main()
