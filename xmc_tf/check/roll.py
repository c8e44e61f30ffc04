"""A roll that is called beside the collectives: a rank that hangs in one cannot say so in another.

Every rank keeps two small files in a folder: what it is doing, written by itself, and whether it lives, written by its
keeper (``keeper.py``). Who waits too long reads the files and names those that are behind. The folder has to be seen by
all ranks; a temporary one will do on one machine.
"""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from xmc_tf.common.files.atomic import atomic_file
from xmc_tf.common.files.json_files import read_json

# What tells one run from another, the best first.
_RUN_VARIABLES = (
    "XMC_TF_LAUNCH_SECRET_FILE",
    "PMIX_NAMESPACE",
    "OMPI_MCA_orte_hnp_uri",
    "OMPI_MCA_ess_base_jobid",
    "HOROVOD_GLOO_RENDEZVOUS_PORT",
    "SLURM_JOB_ID",
)
BEAT_S = 0.5  # between two signs of life
_SILENT_S = 5.0  # no sign of life for so long, and something is wrong with the host
_MOST_BYTES = 1 << 16  # of a rank's file, which others may be able to write too
_STALE_S = 600.0  # files older than that are another run's


@dataclass(frozen=True)
class Entry:
    """What a rank says of itself.

    Args:
        rank: its number.
        host: where it runs.
        pid: its process.
        step: number of the stage that it is in.
        stage: what it does there.
    """

    rank: int
    host: str
    pid: int
    step: int
    stage: str


def run_folder(environment: Mapping[str, str], place: Path | None = None) -> Path:
    """Return a folder that the ranks of this run agree on without talking to each other, and no other run uses.

    Args:
        environment: the rank's.
        place: where to put it; beside the system's temporary files if not given.
    """
    run = next((f"{name}={environment[name]}" for name in _RUN_VARIABLES if name in environment), f"pid {os.getpid()}")
    name = hashlib.sha256(run.encode()).hexdigest()[:16]
    return (place or Path(tempfile.gettempdir())) / f".xmc_tf-check-{os.getuid()}-{name}"


class Roll:
    """One rank's view of who has come how far.

    Args:
        folder: the run's.
        rank: this rank's number.
        size: number of ranks.
        host: this rank's.
    """

    def __init__(self, folder: Path, rank: int, size: int, host: str) -> None:
        self.folder, self.rank, self.size, self.host = folder, rank, size, host
        self._step = -1
        folder.mkdir(parents=True, exist_ok=True)
        self._stage_file(rank).unlink(missing_ok=True)

    def enter(self, stage: str) -> None:
        """Says what comes next; all ranks enter the same stages in the same order."""
        self._step += 1
        self._write(self._stage_file(self.rank), asdict(Entry(self.rank, self.host, os.getpid(), self._step, stage)))

    def beat(self, state: str) -> None:
        """Says how this rank's process is, and that there is somebody to say it."""
        self._write(self._life_file(self.rank), {"state": state})

    def leave(self) -> None:
        """Take this rank's files away, and the folder with the last ones."""
        self._stage_file(self.rank).unlink(missing_ok=True)
        self._life_file(self.rank).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others are still in it
            self.folder.rmdir()

    def clear(self) -> None:
        """Take everything away, after a failure that lets nobody do it for himself."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def entry(self, rank: int) -> Entry | None:
        """What a rank has said in this run."""
        path = self._stage_file(rank)
        with contextlib.suppress(OSError, ValueError, TypeError):
            if time.time() - path.stat().st_mtime < _STALE_S or self._silence(rank) < _SILENT_S:
                return Entry(**read_json(path, limit=_MOST_BYTES))
        return None

    def behind(self) -> list[str]:
        """Each rank that is not there, not well, or not as far as the furthest, with what is known of it."""
        entries = {rank: self.entry(rank) for rank in range(self.size)}
        furthest = max((entry.step for entry in entries.values() if entry), default=0)
        lines = []
        for rank, entry in entries.items():
            if entry is None:
                lines.append(
                    f"rank {rank}: nothing was heard of it; it has not started, or does not "
                    f"see {self.folder} (--rendezvous names a folder that all hosts see)"
                )
                continue
            who = f"rank {rank} (pid {entry.pid} on {entry.host})"
            silence, state = self._silence(rank), self._state(rank)
            if silence > _SILENT_S:
                lines.append(f"{who} gave its last sign of life {silence:.0f} s ago, in {entry.stage!r}")
            elif state != "running":
                lines.append(f"{who} {'is' if state == 'stopped' else 'has'} {state}, in {entry.stage!r}")
            elif entry.step < furthest:
                lines.append(f"{who} was last heard of in {entry.stage!r}")
        return lines

    def speaks(self) -> bool:
        """Return whether it is this rank's to speak for those that wait: the first of those that have come furthest."""
        if self.entry(self.rank) is None:
            return False  # another has spoken and taken the roll away
        entries = [entry for rank in range(self.size) if (entry := self.entry(rank))]
        furthest = max((entry.step for entry in entries), default=0)
        return min((entry.rank for entry in entries if entry.step == furthest), default=-1) == self.rank

    def _silence(self, rank: int) -> float:
        """Seconds between a rank's last sign of life and this rank's own, by the clock of the file system."""
        with contextlib.suppress(OSError):
            return self._life_file(self.rank).stat().st_mtime - self._life_file(rank).stat().st_mtime
        return 0.0

    def _state(self, rank: int) -> str:
        with contextlib.suppress(OSError, ValueError, KeyError):
            return str(read_json(self._life_file(rank), limit=_MOST_BYTES)["state"])
        return "running"

    def _stage_file(self, rank: int) -> Path:
        return self.folder / f"{rank}.stage.json"

    def _life_file(self, rank: int) -> Path:
        return self.folder / f"{rank}.life.json"

    def _write(self, path: Path, content: dict[str, object]) -> None:
        with atomic_file(path) as part:
            part.write_text(json.dumps(content))
