"""Settings that all tests share."""

import gc
import os
import signal
import sys

# A shell that starts the tests in the background has them, and all that they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before anything imports numba or TensorFlow: tests run side by side and must not each take all cores.
os.environ.setdefault("NUMBA_NUM_THREADS", "2")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "2")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# Keep byte code, as an installation does: hundreds of processes would compile the package each.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""
sys.dont_write_bytecode = False

# TensorFlow's modules and graphs are millions of objects. The default threshold has the collector walk the younger ones
# over and over, for a fifth of the CPU time of all tests.
gc.set_threshold(100_000, 20, 20)

import pytest
from hypothesis import HealthCheck, settings

from tests.core_files import CoreFiles
from tests.process_state import FixturesUndone, ProcessState, SameChance, Surroundings

# The same examples in every run, so that a failure belongs to the change that brought it; no deadline, since
# the first call of a compiled kernel takes seconds. HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("explore", settings.get_profile("same"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


# Distributed files by minutes, the longest first.
LONGEST_FILES = ("test_train_killed.py", "test_matcher.py", "test_collective_core.py", "test_linear_train.py")


def pytest_collection_modifyitems(items):
    """Spread the distributed files evenly over the others, which use the cores while those wait.

    With pytest-xdist's --no-loadscope-reorder, files start in this order.
    """
    files = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    longest = {name: place for place, name in enumerate(LONGEST_FILES)}
    several = [path for path, found in files.items() if "distributed" in found[0].keywords]
    others = [path for path in files if path not in several]
    several.sort(key=lambda path: longest.get(path.name, len(longest)))
    places = {path: (number + 0.5) / len(some) for some in (several, others) for number, path in enumerate(some)}
    places |= {path: places[path] - 0.1 for path in several}  # no process works alone at the end
    items[:] = [item for path in sorted(files, key=places.get) for item in files[path]]


@pytest.fixture(autouse=True, scope="module")
def same_surroundings_for_each_file():
    before = Surroundings.taken()
    yield
    before.restore()


@pytest.fixture(autouse=True)
def same_process_for_each_test():
    """Undo what a test changes in its process: files run in an order that differs from run to run."""
    before = ProcessState.taken(), Surroundings.taken()
    yield
    for one in before:
        one.restore()


def pytest_addoption(parser):
    parser.addoption("--core", action="store_true", help="leave out test files that need packages of extras")


def pytest_configure(config):
    # A plugin, since hooks of this file do not see fixtures of the session, which belongs to the folder above.
    config.pluginmanager.register(FixturesUndone())
    config.pluginmanager.register(SameChance())
    if config.getoption("--core"):
        config.pluginmanager.register(CoreFiles())
