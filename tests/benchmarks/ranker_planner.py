"""The balance of training rankers over many ranks: the real plan, with synthetic sizes and a simulated clock.

    python -m tests.benchmarks.ranker_planner [--labels 1e6 1e7 1e8] [--ranks 8 … 512] [--picture docs/….svg]

The sizes and the simulation are those of ``xmc_tf.plan``: labels and documents in the proportions of finna-en (16,481
labels, 153,161 documents), a tree of 16 children per node and 100 labels per leaf, a million features.

Prints one JSON line for each size and number of ranks:

``over_bound``  the time relative to the least that is possible: an even share, or the longest task of one thread
``over_even``   the time relative to the ideal: the work of one thread that solves all, divided by the ranks
``rest_over_even``  the same for what is smaller than an even share, on the ranks that larger problems leave
``extra_work``  the additional work of teams, as a share of all work
``waiting_share``  of the ranks' time: what no substitute fills, and the end
``longest_s``   the longest task of one thread, which no number of ranks shortens
``serial_s``    the time of one thread for the root's problem
``sent_a_team_gb``  what a member of the root's team sends
``team_members``  of the root's team, and of all teams
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.linear import tasks
from xmc_tf.plan.ranker_schedule import NETWORK, simulate
from xmc_tf.plan.ranker_tasks import RankerSizes, synthetic_tasks

_COLORS = ("#1a7f64", "#b4690e", "#6f42c1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=float, nargs="+", default=[1e6, 1e7, 1e8])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 16, 32, 64, 128, 256, 512])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--wide-entries", type=float, help="clusters with more entries have a team; default: as built")
    parser.add_argument(
        "--network", type=float, default=NETWORK, help="bytes per second that a rank can send and receive"
    )
    parser.add_argument("--picture", type=Path, help="an .svg of the speed-up")
    a = parser.parse_args()
    if a.wide_entries:
        tasks.WIDE_ENTRIES, tasks.PART_ENTRIES = int(a.wide_entries), int(a.wide_entries / 2)
    lines = []
    for labels in map(int, a.labels):
        sizes = RankerSizes.like_records(labels)
        made = synthetic_tasks(sizes, np.random.default_rng(a.seed))
        shape = {
            "documents": sizes.documents, "levels": len(made.levels),
            "tasks": sum(len(one.work) for one in made.levels.values()), "matched_entries": made.matched,
        }  # fmt: skip
        for ranks in a.ranks:
            simulated = simulate(made, sizes, ranks, seed=a.seed, network=a.network)
            lines.append({"figure": "ranker_planner", "labels": labels, **shape, **simulated})
            print(json.dumps(lines[-1]), flush=True)
        worst = [line["over_even"] for line in lines if line["labels"] == labels]
        print(f"{labels:,} labels: at most {max(worst):.3f} times even shares", file=sys.stderr)
    if a.picture:
        a.picture.write_text(picture(lines), encoding="utf-8")


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
