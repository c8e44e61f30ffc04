"""Run programs of examples/collective (all, or those named) in this process; print their losses and predictions.

With ``plain`` as the first argument, they are programs of Keras alone.
"""

import json
import runpy
import sys
from contextlib import nullcontext
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import xmc_tf

EXAMPLES = Path(__file__).parents[3] / "examples" / "collective"


class Plain:
    """Stands for the strategy."""

    def __init__(self, **options):
        self.scope = self.embedding_scope = lambda **options: nullcontext()
        self.rank, self.world_size = lambda: 0, lambda: 1

    def gather(self, vectors):
        return vectors, tf.range(tf.shape(vectors)[0])


names = sys.argv[1:]
if names[:1] == ["plain"]:
    xmc_tf.CollectiveStrategy = Plain
    del names[0]
sys.path.insert(0, str(EXAMPLES))
found = {}
for path in sorted(EXAMPLES.glob("*.py")):
    if path.stem not in (names or [path.stem]) or path.stem == "synthetic":
        continue
    keras.utils.clear_session()  # names and random numbers as if the program ran alone
    keras.utils.set_random_seed(0)
    made = runpy.run_path(str(path))
    found[path.stem] = {name: np.asarray(made[name]).tolist() for name in ("losses", "predictions")}
print(json.dumps(found), flush=True)
