"""What a new user does: train both kinds of model from text, that with an encoder also on two ranks, export, ask.

Run by the Python of the environment under test, in an empty folder; imports nothing of this repository but the
package that is installed. No compiler may be on the path.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, save_npz

import xmc_tf

assert Path(xmc_tf.__file__).is_relative_to(sys.prefix), f"{xmc_tf.__file__} is not the package of {sys.prefix}"
assert not any(map(shutil.which, ("cc", "gcc", "g++", "clang"))), "a compiler is on the path"

TOPICS = ("library", "kitchen", "harbour", "forest", "theatre", "station", "garden", "museum")

rng = np.random.default_rng(0)
topics = rng.integers(0, len(TOPICS), 200)
texts = [" ".join([*(f"word{i}" for i in rng.integers(0, 40, 8)), TOPICS[topic]]) for topic in topics]
Y = np.zeros((200, 24), np.float32)
Y[np.arange(200), topics] = 1
for copy in (8, 16):
    Y[np.arange(200), copy + topics] = rng.random(200) < 0.4
Path("X.txt").write_text("".join(f"{text}\n" for text in texts))
save_npz("Y.npz", csr_matrix(Y))

from safetensors.numpy import load_file, save_file  # noqa: E402

from xmc_tf import train  # noqa: E402
from xmc_tf.demo.encoder import make_tiny  # noqa: E402
from xmc_tf.linear import train as linear_train  # noqa: E402
from xmc_tf.models.xr_linear import XRLinear  # noqa: E402
from xmc_tf.models.xtransformer import XTransformer  # noqa: E402
from xmc_tf.serving.local import LocalModel  # noqa: E402


def as_on_the_hub(folder):
    """Writes the encoder's weights again with the names of a model with a head: many published ones are so."""
    weights = load_file(folder / "model.safetensors")
    named = {f"bert.{name}": array for name, array in weights.items()}
    save_file(named, folder / "model.safetensors", metadata={"format": "pt"})


DATA = ["-t", "X.txt", "-y", "Y.npz", "--max-leaf-size", "6"]
linear_train.main([*DATA, "-m", "linear"])
encoder = make_tiny(Path("encoder"), texts, 32, hidden_size=16, intermediate_size=32)
as_on_the_hub(encoder)
SHORT = ["--model-shortcut", str(encoder), "--truncate-length", "16", "--nr-splits", "4", "--max-steps", "4"]
SHORT += ["--hidden-dropout-prob", "0"]  # ranks drop different numbers
train.main([*DATA, *SHORT, "-m", "transformer", "--batch-size", "16"])
# Root, as in containers; and no ssh, which Open MPI looks for to reach other hosts.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_plm": "isolated"}
# The global batch is the same: each rank has half of it.
subprocess.run(
    [
        "mpiexec", "-n", "2", "--oversubscribe", sys.executable, "-m", "xmc_tf.train", *DATA, *SHORT, "-m", "two-ranks",
        "--batch-size", "8",
    ],
    check=True,
    env={**os.environ, **MPI},
)  # fmt: skip
model = XTransformer.load("two-ranks")
models = (XRLinear.load("linear"), XTransformer.load("transformer"), model)
linear, alone, together = (one.predict(texts, only_topk=24).toarray() for one in models)
for scores in (linear, alone, together):
    assert (scores.argmax(axis=1) == topics).mean() > 0.9, (scores.argmax(axis=1), topics)
np.testing.assert_allclose(together, alone, atol=1e-4)
model.export("served/1")
assert LocalModel("served/1").predict(texts[:3]).shape == (3, 24)
