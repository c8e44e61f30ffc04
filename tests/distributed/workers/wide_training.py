"""``xmc_tf.linear.train`` with clusters that count as too wide for one thread: ``wide_training.py SECONDS flag …``.

It sleeps that long after every step of a team's course.
"""

import json
import sys
import time

from xmc_tf.common import cli
from xmc_tf.linear import tasks, train, wide_parts
from xmc_tf.linear.distributed.wide_ranks import RankTeam

pause = float(sys.argv[1])
tasks.WIDE_ENTRIES, tasks.WIDE_DOCUMENTS_A_FEATURE, tasks.PART_ENTRIES, wide_parts.DEAL = 4000, 0, 1500, 8
keep = RankTeam.keep
begun = []


def slowly(team, name, state):
    """Says at which step each course was begun, and takes its time."""
    if not any(name == other for other, _ in begun):
        begun.append((name, state.step))
    keep(team, name, state)
    time.sleep(pause)


RankTeam.keep = slowly


def main(argv):
    train.main(argv)
    print(json.dumps({"begun": begun}))


cli.run(main, sys.argv[2:])
