"""Tests that neither a fixture nor a test leaves its process changed."""

import logging
import os
import signal
import sys

import pytest

from tests.process_state import ProcessState, Surroundings

PACKAGE = logging.getLogger("xmc_tf")


def change():
    """Change what commands change."""
    PACKAGE.setLevel(logging.DEBUG)
    PACKAGE.addHandler(logging.NullHandler())
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.excepthook = print
    os.umask(0o077)


def assert_unchanged():
    assert (PACKAGE.level, PACKAGE.handlers) == (logging.NOTSET, [])
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
    assert sys.excepthook is not print


@pytest.fixture(scope="session")
def of_the_session():
    change()


@pytest.fixture(scope="module")
def of_the_module():
    change()


@pytest.mark.usefixtures("of_the_session", "of_the_module")
def test_fixtures_leave_no_settings():
    assert_unchanged()


def test_all_is_restored(tmp_path):
    before, around = ProcessState.taken(), Surroundings.taken()
    change()
    os.environ["XMC_TF_ALSO"] = "1"
    os.chdir(tmp_path)
    for state in (before, around):
        state.restore()
    assert_unchanged()
    assert (ProcessState.taken(), Surroundings.taken()) == (before, around)
