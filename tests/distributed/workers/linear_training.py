"""``xmc_tf.linear.train`` with small, slow sub-problems, and for tests of different inputs a file a rank.

``linear_training.py SECONDS flag …``: sleeps that long at every task; ``{rank}`` in a flag becomes the rank.
"""

import json
import os
import sys
import time

from xmc_tf.collective.communicator import rank_and_size
from xmc_tf.common import cli
from xmc_tf.linear import train
from xmc_tf.linear.distributed import plan, solving

rank, _ = rank_and_size(os.environ)
pause, flags = float(sys.argv[1]), [flag.replace("{rank}", str(rank)) for flag in sys.argv[2:]]
plan.LEAST_WORK = 1000
solve_task = solving.solve_task


def slowly(*args):
    time.sleep(pause)
    return solve_task(*args)


solving.solve_task = slowly


def main(argv):
    train.main(argv)
    print(json.dumps({"done": True, "tensorflow": "tensorflow" in sys.modules}))


cli.run(main, flags)
