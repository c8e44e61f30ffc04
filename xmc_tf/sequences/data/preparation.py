"""Prepare interactions in bounded memory: users are distributed to buckets on disk, and each bucket is sorted."""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.folders.placing import placed_folder
from xmc_tf.common.progress import Progress
from xmc_tf.data.npz.reading import read_npz
from xmc_tf.data.npz.writing import write_npz
from xmc_tf.sequences.data.buckets import InteractionBuckets
from xmc_tf.sequences.data.folder import COUNTS, ITEMS, PREPARED, PreparedFolder, write_header, write_names
from xmc_tf.sequences.data.interactions import InteractionColumns, InteractionTable
from xmc_tf.tables.reading.options import SourceOptions

_LOG = logging.getLogger(__name__)
BUCKET_BYTES = 16 << 20  # of the inputs
_MOST_BUCKETS = 256


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
    """Write the user histories of some tables into a folder. Memory grows only with the number of items."""
    options, folder = options or InteractionOptions(), Path(folder)
    tables = [InteractionTable(path, options.columns, options.source, options.min_rating) for path in paths]
    count = min(max(1, sum(Path(path).stat().st_size for path in paths) // BUCKET_BYTES), _MOST_BUCKETS)
    with placed_folder(folder, PREPARED) as part:
        buckets = InteractionBuckets(part / "buckets", count)
        for number, table in enumerate(tables):
            _read(table, number, buckets)
        _check(buckets, options)
        counts = _sort(buckets, options)
        totals = _renumber(buckets, counts, part, options)
        shutil.rmtree(buckets.folder)
        inputs = [str(Path(path).absolute()) for path in paths]
        write_header(part, {**totals, "inputs": inputs, "options": asdict(options)})
    return PreparedFolder(folder)


def _read(table: InteractionTable, number: int, buckets: InteractionBuckets) -> None:
    source = table.source
    _LOG.info("%s: %s", source.name, table.described)
    # The number of rows is estimated from the size of the file.
    total = Path(source.name).stat().st_size
    with Progress(f"reading {Path(source.name).name}", total // 30, "interactions") as progress:
        for chunk in table.chunks():
            buckets.add(chunk, number)
            progress.total = max(progress.total, progress.done + chunk.rows)
            progress.add(chunk.rows)


def _check(buckets: InteractionBuckets, options: InteractionOptions) -> None:
    """Refuse too many unusable rows; warn of a few."""
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
    """Sort each bucket by user and time into a part; return how often each item occurs in all parts."""
    frequent = buckets.item_counts() >= options.min_item_count
    counts = np.zeros(len(frequent), np.int64)
    with Progress("sorting users", buckets.count, "parts") as progress:
        for bucket in range(buckets.count):
            part = _histories(*buckets.load(bucket), frequent, options)
            write_npz(buckets.folder / _part_name(bucket), part)
            counts += np.bincount(part["items"], minlength=len(counts))
            progress.add()
    return counts


def _histories(
    rows: np.ndarray, names: np.ndarray, frequent: np.ndarray, options: InteractionOptions
) -> dict[str, np.ndarray]:
    """Return the histories of a bucket's users: items, splits, and names."""
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
    """Number the items by frequency, then by first appearance, and write everything but the header."""
    order = np.lexsort((np.arange(len(counts)), -counts))[: np.count_nonzero(counts)]
    if not len(order):
        raise InputError(
            "no interactions are left",
            expected=f"users with at least {options.min_user_count} interactions, with items that have at least "
            f"{options.min_item_count}",
            received=f"{buckets.kept:,} usable interactions",
            fix="lower --min-user-count, --min-item-count or --min-rating",
        )
    numbers = np.full(len(counts), -1, np.int32)
    numbers[order] = np.arange(len(order), dtype=np.int32)
    users = 0
    with Progress("numbering items", buckets.count, "parts") as progress:
        for bucket in range(buckets.count):
            part = read_npz(buckets.folder / _part_name(bucket), name="part")
            users += len(part["users"])
            write_npz(folder / _part_name(bucket), {**part, "items": numbers[part["items"]]})
            progress.add()
    write_names(folder / ITEMS, [buckets.items.names[number] for number in order.tolist()])
    np.save(folder / COUNTS, counts[order])
    return {
        "users": users, "items": len(order), "interactions": int(counts.sum()), "parts": buckets.count,
        "rows_read": buckets.read, "rows_unusable": buckets.bad, "rows_below_min_rating": buckets.low,
        "rows_of_rare_users_and_items": buckets.kept - int(counts.sum()),
    }  # fmt: skip


def _part_name(bucket: int) -> str:
    return f"part_{bucket:05d}.npz"
