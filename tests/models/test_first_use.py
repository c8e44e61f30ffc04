"""The first training compiles kernels in a second process; later ones, those of several ranks or one core do not."""

import json
import subprocess
import sys

import pytest

from xmc_tf.models.linear import first_use
from xmc_tf.models.linear.first_use import compiling_beside, wait_for_kernels

pytestmark = pytest.mark.full

# Runs a training, and prints which kernels it has called with which types.
PROGRAM = """
import gc, json, sys
from numba.core.dispatcher import Dispatcher
if sys.argv[1] == "beside":
    from xmc_tf.models.linear.tiny_trainings import main
    main()
elif sys.argv[1] == "first process":
    from xmc_tf.models.linear.first_use import compile_measures, compile_names
    compile_names()
    compile_measures()
elif sys.argv[1] == "table":
    from xmc_tf.train import main
    rows = [f"about word{number % 9} and word{number % 7},label{number % 7}" for number in range(120)]
    open("data.csv", "w").write("\\n".join(["text,labels", *rows]))
    main(["data.csv", "-m", "model", "--effort", "fast"])
else:
    from xmc_tf.models.xr_linear import XRLinear
    texts = [f"word{number} word{number + 1} of a text" for number in range(300)]
    labels = [[str(number)] for number in range(300)]
    XRLinear.train(texts, labels, effort="fast", threads=1).evaluate(texts[:2], labels[:2], ks=(1,), rows="all")
dispatchers = [one for one in gc.get_objects() if isinstance(one, Dispatcher)]
kernels = [one for one in dispatchers if one.targetoptions.get("nogil")]  # the others are compiled into kernels
print(json.dumps({one.py_func.__name__: sorted(map(str, one.signatures)) for one in kernels if one.signatures}))
"""


def _kernels(training, folder=None):
    command = [sys.executable, "-c", PROGRAM, training]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=folder)
    return json.loads(run.stdout.splitlines()[-1])


def test_kernels_are_compiled_for_the_types_that_a_training_on_texts_has():
    beside, of_texts = _kernels("beside"), _kernels("texts")
    for name in ("split_nodes", "solve_dual", "gather", "search", "_derivatives"):
        assert set(of_texts[name]) <= set(beside[name])


def test_kernels_of_names_and_measures_are_compiled_for_the_types_of_a_training_on_a_table(tmp_path):
    compiled, used = _kernels("first process"), _kernels("table", tmp_path)
    assert {"hash_texts", "count_words", "match_names", "_select", "_mark", "_accumulate"} <= compiled.keys()
    assert compiled == {name: used.get(name) for name in compiled}


@pytest.fixture
def program():
    return ["import time; time.sleep(600)"]


@pytest.fixture
def started(monkeypatch, program):
    """Have the second process run ``program``, by default wait, and note what is started."""
    started = []

    def start(command, **options):
        assert command[1:] == ["-P", "-m", "xmc_tf.models.linear.tiny_trainings"]
        started.append(popen([sys.executable, "-c", program[0]], **options))
        return started[-1]

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    return started


def test_the_process_ends_with_the_training(started, tmp_path, monkeypatch):
    monkeypatch.setattr(first_use, "kernel_folder", lambda: tmp_path)  # which Numba has made
    monkeypatch.setattr(first_use, "thread_count", lambda _: 2)
    beside = compiling_beside()
    beside.__enter__()
    assert started[0].poll() is None
    assert not beside.__exit__(KeyError, KeyError(), None)  # the error is not kept back
    assert started[0].poll() is not None


@pytest.mark.parametrize(("folder", "cores", "ranks"), [(".", 2, 1), ("none yet", 1, 1), ("none yet", 2, 3)])
def test_nothing_is_started_without_need(folder, cores, ranks, started, tmp_path, monkeypatch):
    monkeypatch.setattr(first_use, "kernel_folder", lambda: tmp_path / folder)
    (tmp_path / "of an installation").mkdir()
    (tmp_path / "of an installation" / "search-7.py311.nbi").touch()
    monkeypatch.setattr(first_use, "thread_count", lambda _: cores)
    with compiling_beside(ranks):
        assert not started


@pytest.mark.parametrize("clusters", [False, True])
def test_a_training_compiles_other_kernels_and_waits_for_those_that_it_needs(
    clusters, program, started, tmp_path, monkeypatch
):
    answered = tmp_path / "answered"
    wait = f"import pathlib, time\nwhile not pathlib.Path({str(answered)!r}).exists(): time.sleep(0.01)\n"
    program[0] = f"{wait if not clusters else ''}print(8, flush=True)\n{wait}print(300, flush=True)\ntime.sleep(600)"
    done = []
    monkeypatch.setattr(first_use, "kernel_folder", lambda: tmp_path)
    monkeypatch.setattr(first_use, "thread_count", lambda _: 2)
    monkeypatch.setattr(first_use, "compile_measures", lambda: done.append("measures"))
    monkeypatch.setattr(first_use, "compile_names", lambda: (done.append("names"), answered.touch()))
    wait_for_kernels(clusters=clusters)  # without a second process
    assert not done
    with compiling_beside():
        wait_for_kernels(clusters=clusters)
        assert done == ["measures", "names"]
        wait_for_kernels(clusters=clusters)  # known: there is nothing to wait for
        assert len(done) == 2
        started[0].kill()
        wait_for_kernels(clusters=True)  # it ended: this process compiles the rest
