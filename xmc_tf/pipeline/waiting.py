"""Run work on rank 0 while the other ranks wait and exchange messages, so that none appears to hang."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from typing import Any, TypeVar, cast

from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

Result = TypeVar("Result")


def on_first_rank(communicator: Communicator, work: Callable[[], Result], every_s: float = 1.0) -> Result:
    """Run ``work()`` on rank 0, and return its result or raise its error on all ranks. All ranks must call it.

    The ranks exchange a message every ``every_s`` seconds. Without them, the transport could time out, and a dead rank
    would go unnoticed. ``work`` must not communicate with other ranks. Its result is sent to all ranks, so it
    should be small.
    """
    if communicator.size == 1:
        return work()
    if communicator.rank != 0:
        while not communicator.broadcast(False):
            pass
        run_on_all_ranks(communicator, lambda: None)
        return communicator.broadcast(cast(Result, None))
    pool = ThreadPoolExecutor(1, thread_name_prefix="first-rank")
    try:
        future = pool.submit(work)
        while not communicator.broadcast(_ends_within(future, every_s)):
            pass
        return communicator.broadcast(run_on_all_ranks(communicator, future.result))
    finally:
        # If another rank has died, raise the error now, and do not wait for the work.
        pool.shutdown(wait=False)


def _ends_within(future: Future[Any], seconds: float) -> bool:
    """Return whether the work ends within this time, successfully or with an error."""
    try:
        future.exception(seconds)
    except NotYet:
        return False
    return True
