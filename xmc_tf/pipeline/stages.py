"""Stages: steps of training whose results are saved, so that an interrupted run can be resumed.

Each stage has a folder in the work folder. It is filled under the name ``<stage>.part`` and then renamed. Its
``stage.json`` contains a hash of its inputs. When the same command runs again, it reuses all complete stages with the
same inputs and resumes after the last of them. If an input changes, its stage and all stages that depend on it are
repeated.
"""

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.common.process.resuming import resumes_from
from xmc_tf.params import Params, with_effect
from xmc_tf.pipeline.waiting import on_first_rank
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

_LOG = logging.getLogger(__name__)
_RECORD = "stage.json"
_BEGUN = "begun.json"
_MARK = "xmc_tf work folder"
_FORMAT = 3  # of the stages' folders; a change repeats all stages

Record = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """A complete stage."""

    name: str
    folder: Path
    hash: str  # of its inputs, including those of earlier stages
    record: Record  # values for later stages, and ``summary``, the result in words
    seconds: float  # of computing it
    kept: bool  # whether an earlier run completed it


class Stages:
    """The stages of one training run, in order. All ranks must make the same calls."""

    def __init__(self, folder: str | Path, communicator: Communicator) -> None:
        self.folder = Path(folder)
        self.communicator = communicator
        self.done: list[Stage] = []
        on_first_rank(communicator, self._prepare)
        run_on_all_ranks(communicator, self._see)

    def run(
        self,
        name: str,
        make: Callable[[Path], Record],
        *,
        inputs: Mapping[str, Any],
        after: Sequence[Stage] = (),
        by_all: bool = False,
    ) -> Stage:
        """Run a stage, or return its saved result.

        ``make`` fills the folder and returns the stage's record. If an interrupted run had the same inputs, the folder
        still has its files, which ``make`` may continue or overwrite. ``inputs`` (JSON or parameters) are all values
        that the result depends on, except the number of ranks. Rank 0 calls ``make``; with ``by_all``, all ranks call
        it, and rank 0's record is used.
        """
        key = digest({"stage": name, "format": _FORMAT, "inputs": inputs, "after": [stage.hash for stage in after]})
        found = on_first_rank(self.communicator, lambda: self._find(name, key))
        if found is not None:
            stage = Stage(name, self.folder / name, key, found["facts"], found["seconds"], kept=True)
            self._tell("%s: reused from an earlier run%s", name, _in_words(stage))
        else:
            part = self.folder / f"{name}.part"
            resumes_from(f"the stage {name}; the stages before it are kept in {self.folder}")
            on_first_rank(self.communicator, lambda: self._begin(part, key))
            start = time.monotonic()
            if by_all:
                record = self.communicator.broadcast(make(part))
            else:
                record = on_first_rank(self.communicator, lambda: make(part))
            seconds = time.monotonic() - start
            on_first_rank(self.communicator, lambda: self._complete(part, name, key, record, seconds))
            stage = Stage(name, self.folder / name, key, record, seconds, kept=False)
            self._tell("%s: done in %.1f s%s", name, seconds, _in_words(stage))
        self.done.append(stage)
        return stage

    @contextmanager
    def log_step(self, name: str, summary: Callable[[], str]) -> Iterator[None]:
        """Log a step that can resume without being a stage, such as tokenization."""
        start = time.monotonic()
        yield
        stage = Stage(name, self.folder, "", {"summary": summary()}, time.monotonic() - start, kept=False)
        self._tell("%s: done in %.1f s%s", name, stage.seconds, _in_words(stage))
        self.done.append(stage)

    def summary(self) -> list[list[str]]:
        """Return one line for each stage with its name, duration and result."""
        return [
            [stage.name, f"{stage.seconds:.1f}" + (" (before)" if stage.kept else ""), stage.record.get("summary", "")]
            for stage in self.done
        ]

    def remove(self) -> None:
        """Remove the work folder after its results have been moved elsewhere."""

        def remove() -> None:
            # If interrupted, the rest is still a work folder, in which no partially removed stage counts as complete.
            for stage in self.folder.iterdir():
                if stage.is_dir():
                    _discard(stage, _RECORD, _BEGUN)
            shutil.rmtree(self.folder)

        on_first_rank(self.communicator, remove)

    def _prepare(self) -> None:
        """Create the work folder; raise an error if it contains unrelated files."""
        mark = self.folder / ".work"
        if self.folder.exists() and not mark.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise InputError(
                f"{self.folder} already exists and is not a work folder",
                expected="a new folder, or the work folder of an earlier run, to resume from",
                fix="move it elsewhere, or choose another folder for the model",
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        mark.write_text(_MARK + "\n", encoding="utf-8")

    def _see(self) -> None:
        if not (self.folder / ".work").is_file():
            raise InputError(
                f"{self.folder}, which rank 0 created, does not exist on this rank",
                expected="a folder that all hosts share",
                fix="put the model on a shared file system, at the same path on all hosts",
            )

    def _find(self, name: str, key: str) -> Record | None:
        """Return the record of a completed stage with the same inputs, or None."""
        record = _read(self.folder / name / _RECORD)
        return record if record is not None and record.get("hash") == key else None

    def _begin(self, part: Path, key: str) -> None:
        """Create the folder to fill, keeping the files of an interrupted run with the same inputs."""
        begun = _read(part / _BEGUN)
        if begun is not None and begun.get("hash") == key:
            self._tell("%s: resuming", part.stem)
            return
        _discard(part, _BEGUN)
        part.mkdir()
        (part / _BEGUN).write_text(json.dumps({"hash": key}), encoding="utf-8")

    def _complete(self, part: Path, name: str, key: str, record: Record, seconds: float) -> None:
        """Write the record to the filled folder, and rename the folder to its final name."""
        content = {"stage": name, "hash": key, "seconds": round(seconds, 3), "facts": record}
        (part / _RECORD).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        target = self.folder / name
        _discard(target, _RECORD)  # of other inputs; renaming does not replace a folder
        part.rename(target)
        # Last: without this file, a run that is interrupted before the renaming could not be resumed.
        (target / _BEGUN).unlink()

    def _tell(self, message: str, *values: object) -> None:
        if self.communicator.rank == 0:
            _LOG.info(message, *values)


def digest(value: Any) -> str:
    """Return a hash of a value made of JSON and parameters."""
    text = json.dumps(value, sort_keys=True, default=_as_json)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _as_json(value: Any) -> Any:
    if isinstance(value, Params):
        return with_effect(value.to_json())
    raise TypeError(f"a stage cannot have an input of type {type(value).__name__}")


def _discard(folder: Path, *records: str) -> None:
    """Remove a folder, its records first, so that no run resumes from a partially removed folder."""
    for record in records:
        (folder / record).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def _read(path: Path) -> Record | None:
    """Read a record; None if it is unreadable, in which case the stage is repeated."""
    try:
        return dict(read_json(path))
    except (OSError, InputError):
        return None


def _in_words(stage: Stage) -> str:
    summary = stage.record.get("summary")
    return f": {summary}" if summary else ""
