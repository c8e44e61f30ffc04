"""The folder of prepared interactions, with the user histories in parts, and the names and counts of the items."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.store.arrays import read_npy
from xmc_tf.store.checksums import Records, checksum_of, record_files
from xmc_tf.store.kinds import FolderKind, read_header

HEADER, ITEMS, COUNTS = "prepared.json", "items.txt", "item_counts.npy"
FORMAT = "xmc_tf.sequences.data"
VERSION = 1
PARTS = "part_*"

PREPARED = FolderKind(
    "prepared interactions of xmc_tf", header=HEADER, recognises=lambda header: header.get("format") == FORMAT,
    parts=r"prepared\.json|items\.txt|item_counts\.npy|part_\d{5}",
)  # fmt: skip


class UserHistories(NamedTuple):
    """The histories of some users, memory-mapped from the files of a part."""

    items: np.ndarray  # numbers of the items of all users, each user's in the order of time
    splits: np.ndarray  # where each user's items begin, then the number of items
    users: np.ndarray  # names, UTF-8 of fixed width


class PreparedFolder:
    """A folder written by ``xmc_tf.sequences.prepare``."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.header = read_header(
            self.folder / HEADER, FORMAT, VERSION, of="prepared interactions",
            fix="run python -m xmc_tf.sequences.prepare interactions.csv -o FOLDER",
        )  # fmt: skip
        self._records = Records.read(self.folder, HEADER)

    @property
    def nr_items(self) -> int:
        return int(self.header["items"])

    def item_names(self) -> list[str]:
        """Return the names of the items, in descending order of frequency."""
        self._verify(ITEMS)
        return (self.folder / ITEMS).read_text(encoding="utf-8").split("\n")[:-1]

    def item_counts(self) -> np.ndarray:
        """Return the number of interactions of each item."""
        self._verify(COUNTS)
        return read_npy(self.folder / COUNTS, name="counts of items")

    def parts(self, pattern: str = PARTS) -> list[UserHistories]:
        """Return the parts whose names match a wildcard pattern."""
        paths = sorted(self.folder.glob(pattern)) if pattern and not Path(pattern).is_absolute() else []
        if not paths:
            raise InputError(
                f"no part in {self.folder} matches {pattern!r}",
                expected=f"{PARTS}, which python -m xmc_tf.sequences.prepare writes",
                fix="change the pattern, or leave it out",
            )
        return [self._part(path) for path in paths]

    def _verify(self, *names: str) -> None:
        """Check files against their checksums."""
        if self._records is None or (missing := [name for name in names if name not in self._records.files]):
            problem = f"{self.folder / HEADER} has no checksum of {names[0] if self._records is None else missing[0]}"
            raise InputError(problem, fix="prepare the interactions again")
        self._records.check(names)

    def _part(self, path: Path) -> UserHistories:
        files = [path / f"{name}.npy" for name in UserHistories._fields]
        self._verify(*(f"{path.name}/{file.name}" for file in files))
        return UserHistories(*map(read_npy, files))


def write_header(folder: Path, content: dict[str, Any]) -> None:
    """Write the header, which must be the last file of a prepared folder."""
    header = {"format": FORMAT, "version": VERSION, **content, "files": record_files(folder, [HEADER])}
    header["checksum"] = checksum_of(header)
    (folder / HEADER).write_text(json.dumps(header, indent=1) + "\n", encoding="utf-8")


def write_names(path: Path, names: Sequence[bytes]) -> None:
    with path.open("wb") as file:
        for low in range(0, len(names), 1 << 16):
            file.write(b"".join(name + b"\n" for name in names[low : low + (1 << 16)]))
