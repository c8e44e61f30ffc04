"""Run ``xmc_tf.linear.train`` with clusters that count as wide: ``wide_training.py SECONDS flag …``.

It sleeps that long after every step of a team's course.
"""

import json
import sys
import time

from xmc_tf.common.process import cli
from xmc_tf.linear import tasks, train
from xmc_tf.linear.distributed import plan
from xmc_tf.linear.wide import parts as wide_parts
from xmc_tf.linear.wide.ranks import RankTeam

pause = float(sys.argv[1])
plan._TEAM_SHARE = 0.05  # teams of all ranks
tasks.WIDE_ENTRIES, tasks.WIDE_DOCUMENTS_A_FEATURE, tasks.PART_ENTRIES, wide_parts.DEAL = 4000, 0, 1500, 8
keep = RankTeam.keep
begun, members = [], [1]


def slowly(team, name, state):
    """Print the step at which each solve starts, and sleep."""
    if not any(name == other for other, _ in begun):
        begun.append((name, state.step))
    members.append(team.members)
    keep(team, name, state)
    time.sleep(pause)


RankTeam.keep = slowly


def main(argv):
    train.main(argv)
    print(json.dumps({"begun": begun, "members": max(members)}))


cli.run(main, sys.argv[2:])
