"""Settings that all tests share."""

import gc
import os
import signal
import sys
from collections import Counter

# A shell that starts the tests in the background has them, and all that they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before anything imports numba or TensorFlow: tests run side by side and must not each take all cores.
os.environ.setdefault("NUMBA_NUM_THREADS", "2")
# One thread of TensorFlow: a second one spins while it waits for the first, for a tenth of the processor time.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
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
from tests.required import missing

# The same examples in every run, so that a failure belongs to the change that brought it; no deadline, since
# the first call of a compiled kernel takes seconds. HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("explore", settings.get_profile("same"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


# One worker runs each of these groups, whose files share hosts, processes that have imported TensorFlow, or stages of
# trainings. A file belongs to the first that its path begins with.
ONE_WORKER = {
    "tests/distributed/test_hosts_lost": "hosts", "tests/distributed/test_many_hosts": "hosts",
    "tests/distributed/test_slurm": "hosts", "tests/distributed/test_train_killed": "hosts",
    "tests/distributed/": "ranks", "tests/pipeline/": "encoders", "tests/serving/": "encoders",
}  # fmt: skip

# Files that take minutes.
LONG = ("tests/docs/test_pages", "tests/installation/test_pages")


def pytest_collection_modifyitems(items):
    """Run the packages of one worker first, then long files, so that none works alone at the end.

    With pytest-xdist's --no-loadscope-reorder, files start in this order.
    """
    items.sort(key=lambda item: (not item.nodeid.startswith(tuple(ONE_WORKER)), not item.nodeid.startswith(LONG)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each worker of ``--dist loadfile`` whole files, and whole groups of ``ONE_WORKER``."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):  # pytest-xdist documents it for this purpose
            groups = (group for beginning, group in ONE_WORKER.items() if nodeid.startswith(beginning))
            return next(groups, None) or super()._split_scope(nodeid)

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def encoder_corpus(tmp_path_factory):
    """Return a folder with texts, labels, features, a tree, and a tiny encoder, for trainings that share stages."""
    from tests.pipeline.corpus import write_corpus

    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def chromium():
    """For tests that open a page in a browser."""
    from tests.serving.browser import BINARY

    if BINARY is None:
        missing("chromium", "Chromium is not installed: no page was opened in a browser")


@pytest.fixture(scope="module")
def outcomes():
    """Count which inputs of a test with random ones are refused: if all are, or none, it tests nothing."""
    counts = Counter()
    yield counts
    for name in {name for name, _ in counts}:
        assert counts[name, True], f"{name}: no input was refused"
        assert counts[name, False], f"{name}: all inputs were refused"


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


class SlowPhases:
    """Prints what has taken over a minute when it ends: the log of a run that was cut off then says where time went."""

    def __init__(self, config):
        self._config = config

    def pytest_runtest_logreport(self, report):
        if report.duration > 60:
            terminal = self._config.pluginmanager.get_plugin("terminalreporter")
            terminal.write_line(f" {report.duration:.0f} s: {report.when} of {report.nodeid}")


def pytest_addoption(parser):
    parser.addoption("--core", action="store_true", help="leave out test files that need packages of extras")


def pytest_configure(config):
    # A plugin, since hooks of this file do not see fixtures of the session, which belongs to the folder above.
    config.pluginmanager.register(FixturesUndone())
    config.pluginmanager.register(SameChance())
    if not hasattr(config, "workerinput"):  # not in the workers of pytest-xdist, which report to this process
        config.pluginmanager.register(SlowPhases(config))
    if config.getoption("--core"):
        config.pluginmanager.register(CoreFiles())
