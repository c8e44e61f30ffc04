"""Prepare interactions that need not fit into memory: users are distributed to buckets on disk, which are sorted."""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.progress import Progress
from xmc_tf.sequences.data.folder import COUNTS, ITEMS, PREPARED, PreparedFolder, write_header, write_names
from xmc_tf.sequences.data.interactions import Chunk, InteractionColumns, InteractionTable
from xmc_tf.store.arrays import open_group, save_group
from xmc_tf.store.publishing import publish
from xmc_tf.tables.reading.options import SourceOptions
from xmc_tf.tables.reading.text_files import unpacked_size

_LOG = logging.getLogger(__name__)
_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
BUCKET_BYTES = 16 << 20  # of the inputs
_MOST_BUCKETS = 256
_ROW = np.dtype([("user", "<u8"), ("time", "<f8"), ("item", "<i4")])


def hashes(names: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash of each name. It does not depend on the process or on the width of the array."""
    letters = names.view(np.uint8).reshape(len(names), names.dtype.itemsize)
    found = np.full(len(names), _OFFSET)
    for column in letters.T:
        found = np.where(column != 0, (found ^ column) * _PRIME, found)
    # FNV's high bits are not random enough, so the last steps are those of MurmurHash3.
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        found = (found ^ (found >> np.uint64(33))) * np.uint64(factor)
    return found ^ (found >> np.uint64(33))


class NameNumbers:
    """A numbering of names in the order of their first appearance."""

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self._ids: dict[bytes, int] = {}

    def ids(self, names: np.ndarray) -> np.ndarray:
        """Return the number of each name. New names get the next free numbers."""
        if not len(names):
            return np.zeros(0, np.int32)
        _, first, inverse = np.unique(hashes(names), return_index=True, return_inverse=True)
        if not np.array_equal(names[first][inverse], names):  # two names with the same hash
            _, first, inverse = np.unique(names, return_index=True, return_inverse=True)
        numbers = np.empty(len(first), np.int32)
        order = np.argsort(first)
        for at, name in zip(order.tolist(), names[first[order]].tolist(), strict=True):
            number = self._ids.setdefault(name, len(self.names))
            if number == len(self.names):
                self.names.append(name)
            numbers[at] = number
        return numbers[inverse]


class InteractionBuckets:
    """Interactions on disk, partitioned by a hash of the user, so that each bucket can be sorted in memory."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = folder, count
        folder.mkdir()
        self.items = NameNumbers()
        self.read = self.kept = self.bad = self.low = 0
        self.bad_rows: list[str] = []

    def add(self, chunk: Chunk, table: int) -> None:
        rows = np.empty(len(chunk.users), _ROW)
        rows["user"], rows["time"], rows["item"] = hashes(chunk.users), chunk.times, self.items.ids(chunk.items)
        buckets = (rows["user"] % np.uint64(self.count)).astype(np.int64)
        order = np.argsort(buckets, kind="stable")
        bounds = np.searchsorted(buckets[order], np.arange(self.count + 1))
        for bucket in range(self.count):
            mine = order[bounds[bucket] : bounds[bucket + 1]]
            if len(mine):
                with self._file(bucket, "rows").open("ab") as file, self._file(bucket, "users").open("ab") as names:
                    file.write(rows[mine].tobytes())
                    names.write(b"\n".join(chunk.users[mine].tolist()) + b"\n")
        self.read += chunk.rows
        self.kept += len(rows)
        self.bad, self.low = self.bad + chunk.bad, self.low + chunk.low
        if chunk.first_bad and len(self.bad_rows) < 5:
            self.bad_rows.append(f"file {table + 1}, {chunk.first_bad}")

    def load(self, bucket: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of a bucket in the order of the inputs, and the name of the user of each row."""
        if not self._file(bucket, "rows").exists():
            return np.empty(0, _ROW), np.empty(0, "S1")
        names = self._file(bucket, "users").read_bytes().split(b"\n")[:-1]
        return np.fromfile(self._file(bucket, "rows"), _ROW), np.array(names, dtype=np.bytes_)

    def item_counts(self) -> np.ndarray:
        counts = np.zeros(len(self.items.names), np.int64)
        for bucket in range(self.count):
            if (path := self._file(bucket, "rows")).exists():
                counts += np.bincount(np.fromfile(path, _ROW)["item"], minlength=len(counts))
        return counts

    def _file(self, bucket: int, kind: str) -> Path:
        return self.folder / f"bucket_{bucket:05d}.{kind}"


@dataclass(frozen=True)
class InteractionOptions:
    columns: InteractionColumns = field(default_factory=InteractionColumns)
    source: SourceOptions = field(default_factory=SourceOptions)
    min_rating: float | None = None
    min_item_count: int = 1
    min_user_count: int = 3  # counted without rare items; leave-one-out evaluation needs 3
    max_user_count: int | None = None
    max_bad_rows: float = 0.01  # as a share


def prepare(
    paths: Sequence[str | Path], folder: str | Path, options: InteractionOptions | None = None
) -> PreparedFolder:
    """Write the user histories of some tables into a folder. Memory holds the item names and one bucket at a time."""
    options, folder = options or InteractionOptions(), Path(folder)
    tables = [InteractionTable(path, options.columns, options.source, options.min_rating) for path in paths]
    count = min(max(1, sum(unpacked_size(Path(path)) for path in paths) // BUCKET_BYTES), _MOST_BUCKETS)
    with publish(folder, PREPARED) as part:
        buckets = InteractionBuckets(part / "buckets", count)
        for number, table in enumerate(tables):
            path = Path(table.source.name)
            _LOG.info("%s: %s", path, table.described)
            # The number of rows is estimated from the size of the file.
            with Progress(f"reading {path.name}", path.stat().st_size // 30, "interactions") as progress:
                for chunk in table.chunks():
                    buckets.add(chunk, number)
                    progress.total = max(progress.total, progress.done + chunk.rows)
                    progress.add(chunk.rows)
        _check(buckets, options)
        counts = _sort(buckets, options)
        totals = _renumber(buckets, counts, part, options)
        shutil.rmtree(buckets.folder)
        inputs = [str(Path(path).absolute()) for path in paths]
        write_header(part, {**totals, "inputs": inputs, "options": asdict(options)})
    return PreparedFolder(folder)


def _check(buckets: InteractionBuckets, options: InteractionOptions) -> None:
    """Raise an error if too many rows are unusable, and log a warning if only a few are."""
    bad, read = buckets.bad, buckets.read
    if not bad:
        return
    named = "; ".join(buckets.bad_rows)
    if bad > options.max_bad_rows * read:
        raise InputError(
            f"{bad:,} of {read:,} rows cannot be used",
            expected=f"at most {options.max_bad_rows:.1%} (--max-bad-rows)",
            received=named,
            fix="correct the rows, name the columns (--user-column, …), or allow more",
        )
    _LOG.warning("%s of %s rows cannot be used and are left out: %s", f"{bad:,}", f"{read:,}", named)


def _sort(buckets: InteractionBuckets, options: InteractionOptions) -> np.ndarray:
    """Sort each bucket by user and time, and write it as a part. Return the count of each item over all parts."""
    frequent = buckets.item_counts() >= options.min_item_count
    counts = np.zeros(len(frequent), np.int64)
    with Progress("sorting users", buckets.count, "parts") as progress:
        for bucket in range(buckets.count):
            part = _histories(*buckets.load(bucket), frequent, options)
            save_group(buckets.folder / f"part_{bucket:05d}", part)
            counts += np.bincount(part["items"], minlength=len(counts))
            progress.add()
    return counts


def _histories(
    rows: np.ndarray, names: np.ndarray, frequent: np.ndarray, options: InteractionOptions
) -> dict[str, np.ndarray]:
    """Return the histories of the users of a bucket, as arrays of items, splits, and user names."""
    keep = frequent[rows["item"]]
    rows, names = rows[keep], names[keep]
    order = np.lexsort((rows["time"], rows["user"]))
    user, name = rows["user"][order], names[order]
    begins = np.ones(len(rows), bool)
    begins[1:] = user[1:] != user[:-1]
    if np.any(~begins[1:] & (name[1:] != name[:-1])):  # two users with the same hash
        order = np.lexsort((rows["time"], names, rows["user"]))
        name = names[order]
        begins[1:] = name[1:] != name[:-1]
    splits = np.append(np.flatnonzero(begins), len(rows))
    lengths = np.diff(splits)
    wanted = lengths >= options.min_user_count
    if options.max_user_count is not None:
        wanted &= lengths <= options.max_user_count
    items = rows["item"][order][np.repeat(wanted, lengths)]
    users = name[splits[:-1]][wanted]
    return {
        "items": items.astype(np.int32),
        "splits": np.concatenate([[0], np.cumsum(lengths[wanted])]).astype(np.int64),
        "users": users if users.dtype.itemsize else users.astype("S1"),
    }


def _renumber(
    buckets: InteractionBuckets, counts: np.ndarray, folder: Path, options: InteractionOptions
) -> dict[str, Any]:
    """Number the items by frequency and then by first appearance, and write all files except the header."""
    order = np.lexsort((np.arange(len(counts)), -counts))[: np.count_nonzero(counts)]
    if not len(order):
        raise InputError(
            "no interactions are left after applying the limits on users and items",
            expected=f"users with at least {options.min_user_count} interactions and items with at least "
            f"{options.min_item_count}",
            received=f"{buckets.kept:,} interactions before",
            fix="lower --min-user-count, --min-item-count or --min-rating",
        )
    numbers = np.full(len(counts), -1, np.int32)
    numbers[order] = np.arange(len(order), dtype=np.int32)
    users = 0
    with Progress("numbering items", buckets.count, "parts") as progress:
        for bucket in range(buckets.count):
            name = f"part_{bucket:05d}"
            part = open_group(buckets.folder / name)
            users += len(part["users"])
            save_group(folder / name, {**part, "items": numbers[part["items"]]})
            progress.add()
    write_names(folder / ITEMS, [buckets.items.names[number] for number in order.tolist()])
    np.save(folder / COUNTS, counts[order])
    return {
        "users": users, "items": len(order), "interactions": int(counts.sum()), "parts": buckets.count,
        "rows_read": buckets.read, "rows_unusable": buckets.bad, "rows_below_min_rating": buckets.low,
        "rows_of_rare_users_and_items": buckets.kept - int(counts.sum()),
    }  # fmt: skip
