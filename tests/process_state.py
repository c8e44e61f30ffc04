"""What commands change in their process, kept so that no test or fixture leaves it changed for those after it."""

import logging
import os
import random
import signal
import sys
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ, signal.SIGCHLD)


@dataclass(frozen=True)
class ProcessState:
    """The settings of a process: its loggers, signal handlers, hooks for errors, umask, and Keras' data types.

    Example:
        >>> before = ProcessState.taken()
        >>> main(["--quiet", "data.csv"])
        >>> before.restore()
    """

    loggers: dict[str, tuple[int, tuple[logging.Handler, ...], bool, bool]]
    signals: dict[int, Any]
    hooks: tuple[Any, Any]
    umask: int
    dtypes: tuple[Any, str] | None

    @classmethod
    def taken(cls) -> "ProcessState":
        """Return the state of this process at present."""
        return cls(
            loggers={
                name: (logger.level, tuple(logger.handlers), logger.propagate, logger.disabled)
                for name, logger in _loggers().items()
            },
            signals={number: handler for number in SIGNALS if (handler := signal.getsignal(number)) is not None},
            hooks=(sys.excepthook, threading.excepthook),
            umask=_umask(),
            dtypes=_dtypes(),
        )

    def restore(self) -> None:
        """Give the process this state again."""
        for name, logger in _loggers().items():
            if name not in self.loggers and not name.startswith("xmc_tf"):
                continue  # of a package that was imported since, which has set it up
            found = self.loggers.get(name, (logging.NOTSET, (), True, False))
            level, handlers, logger.propagate, logger.disabled = found
            if logger.level != level:  # setting it empties the caches of all loggers
                logger.setLevel(level)
            logger.handlers[:] = handlers
        for number, handler in self.signals.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        sys.excepthook, threading.excepthook = self.hooks
        os.umask(self.umask)
        if self.dtypes and self.dtypes != _dtypes():
            from keras import config

            config.set_dtype_policy(self.dtypes[0])
            config.set_floatx(self.dtypes[1])


@dataclass(frozen=True)
class Surroundings:
    """The environment variables and the working directory of a process, which fixtures may change for their tests."""

    environment: dict[str, str]
    folder: str

    @classmethod
    def taken(cls) -> "Surroundings":
        """Return the surroundings of this process at present."""
        return cls(dict(os.environ), os.getcwd())

    def restore(self) -> None:
        """Give the process these surroundings again."""
        if os.environ != self.environment:
            os.environ.clear()
            os.environ.update(self.environment)
        os.chdir(self.folder)


class FixturesUndone:
    """Undo what fixtures of modules and of the session change: they may run commands, and many tests follow them.

    Environment variables and the working directory, which such fixtures set on purpose, last until the module ends.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """Set up a fixture, and give the process its former state again."""
        if fixturedef.scope == "function":
            return (yield)
        before = ProcessState.taken()
        try:
            return (yield)
        finally:
            before.restore()


class SameChance:
    """Seed the generators of the process before each test, so that what a test draws is the same in every run.

    Keras takes the seed of an initializer without one from Python's generator. TensorFlow's generator is left alone:
    setting its seed destroys operations that own a resource, such as the tokenizers of tests that ran before.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Seed Python's and NumPy's generators with the name of the test."""
        seed = zlib.crc32(item.nodeid.encode())
        random.seed(seed)
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed(seed)


def _loggers() -> dict[str, logging.Logger]:
    made = {name: one for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger)}
    return {"": logging.root, **made}


def _umask() -> int:
    """Return the process's umask, which can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _dtypes() -> tuple[Any, str] | None:
    if "keras" not in sys.modules:
        return None
    from keras import config

    return config.dtype_policy(), config.floatx()
