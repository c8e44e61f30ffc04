"""Check that all ranks have the same inputs: files are compared by size and checksum, settings by value."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xmc_tf.common.compiled import kernel_folder
from xmc_tf.common.regular import existing_file
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks, same_everywhere
from xmc_tf.store.checksums import crc_of_file


def fingerprints(communicator: Communicator, paths: Sequence[Path]) -> list[str]:
    """Return the name, size and checksum of each of this rank's files. Ranks on one host that see the same files read
    them in turn; all ranks must call this function.
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
        f"{path.name}: {size:,} bytes, checksum {checksums[here[number % count]][number // count]}"
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
    found = list(zip(named, fingerprints(communicator, [path for _, path in named]), strict=True))
    mine = {what: "; ".join(text for (kind, _), text in found if kind == what) for what in files}
    same_everywhere(communicator, {**mine, **settings})
    content = json.dumps([mine, settings, kernel_folder().name], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _files(named: str | Path, what: str) -> list[Path]:
    path = Path(named)
    return sorted(filter(Path.is_file, path.iterdir())) if path.is_dir() else [existing_file(path, what)]
