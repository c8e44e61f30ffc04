"""Models in forked processes: rankers with features work, and what needs TensorFlow says so instead of waiting."""

import multiprocessing

import pytest

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
    texts = documents(40, seed=6)[0]
    for work in (lambda: model.best(text), lambda: model.predict(texts, threads=2).data.tolist()):
        assert work() == in_fork(work)
    for work in (lambda: local.ask(text), lambda: LocalModel(exported)):
        said = in_fork(work)
        assert said.startswith("InputError")
        assert "spawn" in said
