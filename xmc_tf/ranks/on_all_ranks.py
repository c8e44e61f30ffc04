from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator

Result = TypeVar("Result")


def run_on_all_ranks(communicator: Communicator, work: Callable[[], Result]) -> Result:
    """Run ``work()`` on each rank, and raise an error of one rank on all. All ranks must call this.

    ``work()`` must not communicate. Errors other than InputError, OSError and MemoryError stay on their rank.
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


def same_everywhere(communicator: Communicator, inputs: Mapping[str, Any]) -> None:
    """Raise an error on all ranks if their inputs differ: training on them would silently produce a useless model.

    ``inputs`` describes each input, for example by a checksum. All ranks must call this.
    """
    everyones = communicator.allgather((communicator.host, dict(inputs)))
    host, first = everyones[0]
    for rank, (other, theirs) in enumerate(everyones):
        for what in (*first, *theirs):
            if theirs.get(what) != first.get(what):
                raise InputError(
                    f"ranks received different {what}",
                    expected=f"as on rank 0 on {host}: {first.get(what)!s:.400}",
                    received=f"on rank {rank} on {other}: {theirs.get(what)!s:.400}",
                    fix="use one command line and version, and files on a shared disk or the same copies on every host",
                )


class SharedScan:
    """A scan of a file that all hosts have: on each host, each rank scans a part. All calls are collective."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        hosts = communicator.allgather(communicator.host)
        self._here = [rank for rank, host in enumerate(hosts) if host == communicator.host]

    def map(self, function: Callable[[int, int], Result]) -> list[Result]:
        """Call ``function`` with this rank's part and the number of parts on its host.

        Return the results of all parts, in order. An error on one rank is raised on all.
        """
        place, count = self._here.index(self._communicator.rank), len(self._here)
        everyones = self._communicator.allgather(run_on_all_ranks(self._communicator, lambda: function(place, count)))
        return [everyones[rank] for rank in self._here]
