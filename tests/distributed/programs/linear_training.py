"""Run ``xmc_tf.linear.train`` with small, slow sub-problems, and optionally different inputs on each rank.

``linear_training.py SECONDS flag …``: sleeps that long at every task, and in proportion while the tree is built and
when levels are joined; ``{rank}`` in a flag becomes the rank. Where ``XMC_TF_TEST_MARKS`` names a folder, a file there
says what has been begun: ``tree``, ``solving``, ``joining``. While ``XMC_TF_TEST_HOLD`` exists, no task begins.
"""

import json
import os
import sys
import time
from pathlib import Path

from xmc_tf.common.process import cli
from xmc_tf.common.process.launcher import RANK_VARIABLES
from xmc_tf.linear import train
from xmc_tf.rankers.distributed import solving, training
from xmc_tf.tree import kmeans

rank = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), "0")
pause, flags = float(sys.argv[1]), [flag.replace("{rank}", rank) for flag in sys.argv[2:]]
solving.LEAST_WORK = 1000
marks = os.environ.get("XMC_TF_TEST_MARKS")
hold = Path(os.environ.get("XMC_TF_TEST_HOLD", "/nonexistent"))


def slow(module, name, mark, factor=1.0):
    """Wrap a function so that it sleeps before and after its work."""
    work = getattr(module, name)

    def slowly(*args, **more):
        if marks:
            (Path(marks) / mark).touch()
        while hold.exists():
            time.sleep(0.1)
        time.sleep(pause * factor / 2)
        result = work(*args, **more)
        time.sleep(pause * factor / 2)
        return result

    setattr(module, name, slowly)


slow(kmeans, "split_level", "tree", 4)
slow(solving, "solve_task", "solving")
slow(training, "join_blocks", "joining", 8)


def main(argv):
    train.main(argv)
    print(json.dumps({"done": True, "tensorflow": "tensorflow" in sys.modules}))


cli.run(main, flags)
