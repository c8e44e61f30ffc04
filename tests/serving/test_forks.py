"""Models in forked processes: rankers with features work, and what needs TensorFlow says so instead of waiting."""

import multiprocessing
import subprocess
import sys

import pytest

from tests.linear.command_data import run_train, write_corpus
from tests.serving.cases import documents
from xmc_tf.serving.local import LocalModel

pytestmark = pytest.mark.full


def in_fork(work):
    """Run some work in a forked child; return its result, or its error's message."""
    here, there = multiprocessing.get_context("fork").Pipe()

    def child():
        try:
            there.send(work())
        except Exception as error:  # noqa: BLE001  shown by the parent
            there.send(f"{type(error).__name__}: {error}")

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    assert here.poll(240), "the child hangs"
    found = here.recv()
    process.join(60)
    return found


def test_graphs_say_what_to_use_instead_and_kernels_work(model, exported):
    text = documents(1, seed=5)[0]
    local = LocalModel(exported)
    local.ask(text)  # TensorFlow has run by now
    assert in_fork(lambda: model.best(text)) == model.best(text)
    for work in (lambda: local.ask(text), lambda: LocalModel(exported)):
        said = in_fork(work)
        assert said.startswith("InputError")
        assert "spawn" in said


_FORKS = """
import os, sys
import numpy as np
from xmc_tf.data import load_features
from xmc_tf.models.xr_linear import XRLinear
model, X = XRLinear.load(sys.argv[1]), load_features([sys.argv[2]])
before = model.predict(X, threads=2)
assert "tensorflow" not in sys.modules
for _ in range(3):
    child = os.fork()
    if not child:
        after = model.predict(X, threads=2)
        os._exit(0 if np.array_equal(before.indices, after.indices) and np.array_equal(before.data, after.data) else 1)
    assert os.waitpid(child, 0)[1] == 0
print("equal")
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = write_corpus(tmp_path_factory.mktemp("corpus"))
    run_train("-x", folder / "X.npz", "-y", folder / "Y.npz", "-m", folder / "model")
    return folder


def test_rankers_that_are_given_features_work_in_forks(corpus):
    done = subprocess.run(
        [sys.executable, "-c", _FORKS, corpus / "model", corpus / "X.npz"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout == "equal\n", done.stderr
