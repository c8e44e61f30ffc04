"""Interactions on disk, partitioned by a hash of the user, so that each bucket can be sorted in memory.

The folder records after each chunk how far the inputs have been read. What a killed run wrote after that is cut off.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.files.atomic import atomic_file
from xmc_tf.common.files.json_files import parse_json, read_json
from xmc_tf.sequences.data.interactions import Chunk
from xmc_tf.sequences.data.names import NameNumbers, hashes

ROW = np.dtype([("user", "<u8"), ("time", "<f8"), ("item", "<i4")])
_STATE = "state.json"
_OWN = ("bucket_*.rows", "bucket_*.users", "part_*.npz", "part_*.new", "items.txt", _STATE)


class InteractionBuckets:
    """A work folder of interactions in buckets, which a repeated run continues.

    Args:
        folder: the folder.
        count: number of buckets.
        identity: inputs and options; a folder with another identity is emptied.
    """

    def __init__(self, folder: Path, count: int, identity: dict[str, Any]) -> None:
        self.folder, self.count = folder, count
        folder.mkdir(parents=True, exist_ok=True)
        self.state: dict[str, Any] = {
            "identity": identity, "file": 0, "rows": 0, "items": 0, "sizes": {},
            "read": 0, "kept": 0, "bad": 0, "low": 0, "bad_rows": [],
        }  # fmt: skip
        # By way of JSON, which has lists for tuples.
        same = parse_json(json.dumps(identity), of="the identity")
        if (folder / _STATE).exists() and (found := read_json(folder / _STATE)).get("identity") == same:
            self.state = found
        else:
            for path in [path for pattern in _OWN for path in folder.glob(pattern)]:
                path.unlink()
        names = [self._rows(bucket).name for bucket in range(count)] + [self._users(b).name for b in range(count)]
        for path in [folder / "items.txt", *(folder / name for name in names)]:
            if path.exists():
                with path.open("r+b") as file:
                    file.truncate(self.state["items"] if path.name == "items.txt" else self._size(path))
        items = folder / "items.txt"
        self.items = NameNumbers(items.read_bytes().split(b"\n")[:-1] if items.exists() else [])
        self._saved_items = len(self.items.names)

    def add(self, chunk: Chunk, file: int) -> None:
        """Write a chunk of input ``file``, and record it.

        Args:
            chunk: the interactions.
            file: number of the input.
        """
        rows = np.empty(len(chunk.users), ROW)
        rows["user"], rows["time"], rows["item"] = hashes(chunk.users), chunk.times, self.items.ids(chunk.items)
        buckets = (rows["user"] % np.uint64(self.count)).astype(np.int64)
        order = np.argsort(buckets, kind="stable")
        bounds = np.searchsorted(buckets[order], np.arange(self.count + 1))
        for bucket in range(self.count):
            mine = order[bounds[bucket] : bounds[bucket + 1]]
            if len(mine):
                self._append(self._rows(bucket), rows[mine].tobytes())
                self._append(self._users(bucket), b"\n".join(chunk.users[mine].tolist()) + b"\n")
        if new := self.items.names[self._saved_items :]:
            with (self.folder / "items.txt").open("ab") as out:
                out.write(b"\n".join(new) + b"\n")
                self.state["items"] = out.tell()
            self._saved_items = len(self.items.names)
        state = self.state
        state["read"] += chunk.rows - state["rows"]
        state["rows"], state["file"] = chunk.rows, file
        state["kept"] += len(rows)
        state["bad"], state["low"] = state["bad"] + chunk.bad, state["low"] + chunk.low
        if chunk.first_bad and len(state["bad_rows"]) < 5:
            state["bad_rows"].append(f"file {file + 1}, {chunk.first_bad}")
        self._save()

    def finish_file(self, file: int) -> None:
        """Record that an input has been read to its end."""
        self.state |= {"file": file + 1, "rows": 0}
        self._save()

    def load(self, bucket: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of a bucket, in the order of the inputs, and the names of their users."""
        if not self._rows(bucket).exists():
            return np.empty(0, ROW), np.empty(0, "S1")
        names = self._users(bucket).read_bytes().split(b"\n")[:-1]
        return np.fromfile(self._rows(bucket), ROW), np.array(names, dtype=np.bytes_)

    def item_counts(self) -> np.ndarray:
        """Return the number of interactions of each item."""
        counts = np.zeros(len(self.items.names), np.int64)
        for bucket in range(self.count):
            if self._rows(bucket).exists():
                counts += np.bincount(np.fromfile(self._rows(bucket), ROW)["item"], minlength=len(counts))
        return counts

    def remove(self) -> None:
        """Remove the folder, its record first: a run that is killed in between must not resume from the rest."""
        (self.folder / _STATE).unlink()
        shutil.rmtree(self.folder)

    def _rows(self, bucket: int) -> Path:
        return self.folder / f"bucket_{bucket:05d}.rows"

    def _users(self, bucket: int) -> Path:
        return self.folder / f"bucket_{bucket:05d}.users"

    def _size(self, path: Path) -> int:
        return int(self.state["sizes"].get(path.name, 0))

    def _append(self, path: Path, content: bytes) -> None:
        with path.open("ab") as file:
            file.write(content)
            self.state["sizes"][path.name] = file.tell()

    def _save(self) -> None:
        with atomic_file(self.folder / _STATE) as part:
            part.write_text(json.dumps(self.state), encoding="utf-8")
