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
from xmc_tf.store.checksums import crc_of_file


@register
class Fingerprint(NamedTuple):
    """Name, size and checksum of a file on one rank."""

    name: str
    size: int
    checksum: str

    def __str__(self) -> str:
        return f"{self.size:,} bytes, checksum {self.checksum}"


def fingerprints(communicator: Communicator, paths: Sequence[Path]) -> list[Fingerprint]:
    """Return the fingerprint of each of this rank's files. Ranks on one host that see the same files read them in
    turn; all ranks must call this function.
    """

    def identities() -> list[tuple[int, int, int, int]]:
        """Return device, inode, size and time of each file, which are equal on ranks that see the same file."""
        stats = [path.stat() for path in paths]
        return [(one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns) for one in stats]

    own = (communicator.host, run_on_all_ranks(communicator, identities))
    others = communicator.allgather(own)
    here = [rank for rank, other in enumerate(others) if other == own]
    place, count = here.index(communicator.rank), len(here)

    def read() -> list[str]:
        return [crc_of_file(path) for path in paths[place::count]]

    checksums = communicator.allgather(run_on_all_ranks(communicator, read))
    sizes = [size for _, _, size, _ in own[1]]
    return [
        Fingerprint(path.name, size, checksums[here[number % count]][number // count])
        for number, (path, size) in enumerate(zip(paths, sizes, strict=True))
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
