from pathlib import Path

import numpy as np

from xmc_tf.sequences.data.interactions import Chunk
from xmc_tf.sequences.data.names import NameNumbers, hashes

ROW = np.dtype([("user", "<u8"), ("time", "<f8"), ("item", "<i4")])


class InteractionBuckets:
    """Interactions on disk, partitioned by a hash of the user, so that each bucket can be sorted in memory."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = folder, count
        folder.mkdir()
        self.items = NameNumbers()
        self.read = self.kept = self.bad = self.low = 0
        self.bad_rows: list[str] = []

    def add(self, chunk: Chunk, file: int) -> None:
        rows = np.empty(len(chunk.users), ROW)
        rows["user"], rows["time"], rows["item"] = hashes(chunk.users), chunk.times, self.items.ids(chunk.items)
        buckets = (rows["user"] % np.uint64(self.count)).astype(np.int64)
        order = np.argsort(buckets, kind="stable")
        bounds = np.searchsorted(buckets[order], np.arange(self.count + 1))
        for bucket in range(self.count):
            mine = order[bounds[bucket] : bounds[bucket + 1]]
            if len(mine):
                _append(self._rows(bucket), rows[mine].tobytes())
                _append(self._users(bucket), b"\n".join(chunk.users[mine].tolist()) + b"\n")
        self.read += chunk.rows
        self.kept += len(rows)
        self.bad, self.low = self.bad + chunk.bad, self.low + chunk.low
        if chunk.first_bad and len(self.bad_rows) < 5:
            self.bad_rows.append(f"file {file + 1}, {chunk.first_bad}")

    def load(self, bucket: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of a bucket, in the order of the inputs, and the names of their users."""
        if not self._rows(bucket).exists():
            return np.empty(0, ROW), np.empty(0, "S1")
        names = self._users(bucket).read_bytes().split(b"\n")[:-1]
        return np.fromfile(self._rows(bucket), ROW), np.array(names, dtype=np.bytes_)

    def item_counts(self) -> np.ndarray:
        counts = np.zeros(len(self.items.names), np.int64)
        for bucket in range(self.count):
            if self._rows(bucket).exists():
                counts += np.bincount(np.fromfile(self._rows(bucket), ROW)["item"], minlength=len(counts))
        return counts

    def _rows(self, bucket: int) -> Path:
        return self.folder / f"bucket_{bucket:05d}.rows"

    def _users(self, bucket: int) -> Path:
        return self.folder / f"bucket_{bucket:05d}.users"


def _append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)
