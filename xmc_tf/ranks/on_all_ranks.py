"""Work that every rank does for itself and all of them have to survive, such as writing and reading files."""

from collections.abc import Callable
from typing import TypeVar

from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator

Result = TypeVar("Result")


def run_on_all_ranks(communicator: Communicator, work: Callable[[], Result]) -> Result:
    """Does ``work()`` here and fails on all ranks where it failed on one, instead of leaving the others waiting.

    Args:
        communicator: the ranks that do it at the same time.
        work: what may end in an ``InputError`` or an ``OSError``; it must not talk to other ranks.

    Returns:
        What ``work()`` gave on this rank.

    Raises:
        InputError: when a rank was given something that cannot be used; the message names the rank.
        OSError: when a rank's disk or memory failed it; the message names the rank and its host.
    """
    result: Result
    mine: tuple[str, str] | None = None
    try:
        result = work()
    except InputError as error:
        mine = ("input", str(error))
    except (OSError, MemoryError) as error:
        mine = ("system", f"{type(error).__name__}: {error}")
    outcomes = communicator.allgather((mine, communicator.host))
    failed = [(rank, *outcome, host) for rank, (outcome, host) in enumerate(outcomes) if outcome is not None]
    if not failed:
        return result
    rank, kind, message, host = failed[0]
    where = "" if communicator.size == 1 else f"rank {rank} on {host}: "
    if kind == "input":
        raise InputError(where + message)
    raise OSError(where + message)
