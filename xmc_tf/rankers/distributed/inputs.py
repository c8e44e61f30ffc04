"""Check that all ranks have the same inputs: files are compared by size and checksum, settings by value."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from xmc_tf.common.compiled import kernel_folder
from xmc_tf.common.errors import InputError
from xmc_tf.common.regular import existing_file
from xmc_tf.common.serialization import register
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.store.checksums import crc_of_all, crc_of_range


@register
class Fingerprint(NamedTuple):
    """Name, size and checksum of a file on one rank."""

    name: str
    size: int
    checksum: int

    def __str__(self) -> str:
        return f"{self.size:,} bytes, checksum {self.checksum:08x}"


def fingerprints(communicator: Communicator, paths: Sequence[Path]) -> list[Fingerprint]:
    """Return the fingerprint of each of this rank's files. Ranks on one host that see the same files each read a part
    of them; all ranks must call this function.
    """

    def identities() -> list[tuple[int, int, int, int]]:
        """Return device, inode, size and time of each file, which are equal on ranks that see the same file."""
        stats = [path.stat() for path in paths]
        return [(one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns) for one in stats]

    own = (communicator.host, run_on_all_ranks(communicator, identities))
    others = communicator.allgather(own)
    here = [rank for rank, other in enumerate(others) if other == own]
    place, count = here.index(communicator.rank), len(here)

    def read() -> list[tuple[int, int]]:
        sizes = [path.stat().st_size for path in paths]
        spans = [(size * place // count, size * (place + 1) // count) for size in sizes]
        return [crc_of_range(path, *span) for path, span in zip(paths, spans, strict=True)]

    checksums = communicator.allgather(run_on_all_ranks(communicator, read))
    parts = [checksums[rank] for rank in here]
    return [
        Fingerprint(path.name, sum(length for _, length in each), crc_of_all(each))
        for path, each in zip(paths, zip(*parts, strict=True), strict=True)
    ]


def check_same_inputs(
    communicator: Communicator, files: Mapping[str, Sequence[str | Path]], settings: Mapping[str, Any]
) -> str:
    """Return a key that identifies the inputs. If files or settings differ between ranks, raise InputError on all
    ranks; a folder stands for the files in it.
    """
    every = [(what, one) for what, paths in files.items() for one in paths]
    named = run_on_all_ranks(communicator, lambda: [(what, path) for what, one in every for path in _files(one, what)])
    found = fingerprints(communicator, [path for _, path in named])
    mine: dict[str, list[Fingerprint]] = {what: [] for what in files}
    for (what, _), one in zip(named, found, strict=True):
        mine[what].append(one)
    options = json.dumps(settings, sort_keys=True)
    all_ranks = communicator.allgather((communicator.host, mine, options))
    host, first, first_options = all_ranks[0]
    for rank, (other_host, others, other_options) in enumerate(all_ranks):
        for what in first:
            if others[what] != first[what]:
                raise InputError(
                    f"ranks received different {what}",
                    expected=f"the same files as on rank 0 on {host}: {_listed(first[what])}",
                    received=f"on rank {rank} on {other_host}: {_listed(others[what])}",
                    fix="put the files on a shared disk, or copy them to every host again",
                )
        if other_options != first_options:
            raise InputError(
                "ranks were started with different options", expected=f"the options of rank 0 on {host}",
                received=f"on rank {rank} on {other_host}: {_first_difference(first_options, other_options)}",
                fix="use the same command line and version on all ranks",
            )  # fmt: skip
    digest = hashlib.sha256(options.encode())
    digest.update(json.dumps([first, kernel_folder().name], sort_keys=True).encode())
    return digest.hexdigest()


def _files(named: str | Path, what: str) -> list[Path]:
    path = Path(named)
    return sorted(filter(Path.is_file, path.iterdir())) if path.is_dir() else [existing_file(path, what)]


def _listed(files: Sequence[Fingerprint]) -> str:
    return "; ".join(f"{one.name}: {one}" for one in files[:4]) or "nothing"


def _first_difference(first: str, other: str) -> str:
    ours, theirs = json.loads(first), json.loads(other)
    keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    return f"{keys[0]} is {json.dumps(theirs.get(keys[0]))[:80]}, not {json.dumps(ours.get(keys[0]))[:80]}"
