"""Training a model of the labelled documents in a process of its own, so that the page answers meanwhile."""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from scipy.sparse import csr_matrix

from xmc_tf.data import as_features
from xmc_tf.models.linear.training import LinearData, LinearOptions, train_linear
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import XRLinearParams

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf

_LOG = logging.getLogger(__name__)
_NICER = 10  # than the page
_LOOK_S = 0.2  # whether the page ends


def train(lines: Sequence[str], texts: list[str], Y: csr_matrix, tfidf: "Tfidf") -> XRLinear:
    """Train a model of documents. Its vectorizer is that of all texts: a few would not show which words are rare."""
    data = LinearData(Y, texts, as_features(tfidf.transform(texts, threads=1, quiet=True)), tfidf, lines)
    return XRLinear.of(train_linear(data, LinearOptions(XRLinearParams(tfidf=tfidf.params), threads=1)))


def train_aside(
    lines: Sequence[str], texts: list[str], Y: csr_matrix, tfidf: "Tfidf", ended: Callable[[], bool]
) -> XRLinear | None:
    """Train in another process. Return None if the training fails, or if the page ends before it."""
    # A fork would copy the threads of the server.
    spawning = multiprocessing.get_context("spawn")
    receiver, sender = spawning.Pipe(duplex=False)
    process = spawning.Process(target=_send, args=(sender, lines, texts, Y, tfidf), daemon=True)
    process.start()
    sender.close()
    try:
        while not receiver.poll(_LOOK_S):
            if ended():
                return None
        found = receiver.recv()
    except EOFError:
        found = "its process was killed"
    finally:
        process.terminate()
        process.join()
        process.close()
        receiver.close()
    if isinstance(found, XRLinear):
        return found
    _LOG.error("the training on %s documents failed: %s", f"{len(texts):,}", found)
    return None


def _send(sender: Connection, *inputs: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the page decides
    os.nice(_NICER)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # people see the page, not the progress of trainings
    threading.Thread(target=_end_with_the_page, daemon=True).start()
    try:
        sender.send(train(*inputs))
    except Exception as error:  # noqa: BLE001 - the page reports it
        sender.send(f"{type(error).__name__}: {error}")


def _end_with_the_page() -> None:
    page = multiprocessing.parent_process()
    assert page is not None
    page.join()
    os._exit(1)
