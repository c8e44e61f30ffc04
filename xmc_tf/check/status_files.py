"""Status files of the ranks, which work without collectives: a rank that hangs in one cannot take part in another.

Each rank has two small files in a folder: the rank writes its stage, and its watchdog (``watchdog.py``) a heartbeat. A
rank that waits too long reads the files and names the ranks that are behind. All ranks must see the folder; on one
host, a temporary folder is enough.
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

# The variables that identify a run, the best one first.
_RUN_VARIABLES = (
    "PMIX_NAMESPACE",
    "OMPI_MCA_orte_hnp_uri",
    "OMPI_MCA_ess_base_jobid",
    "HOROVOD_GLOO_RENDEZVOUS_PORT",
    "SLURM_JOB_ID",
)
HEARTBEAT_S = 0.5
_SILENT_S = 5.0  # without a heartbeat for this long, the host has a problem
_MOST_BYTES = 1 << 16  # of a file, which other users may be able to write
_STALE_S = 600.0  # older files belong to another run


@dataclass(frozen=True)
class RankStage:
    """The stage of a rank.

    Args:
        rank: the rank.
        host: its host.
        pid: its process id.
        step: the number of its stage.
        stage: the name of its stage.
    """

    rank: int
    host: str
    pid: int
    step: int
    stage: str


def run_folder(environment: Mapping[str, str], place: Path | None = None) -> Path:
    """Return a folder that all ranks of this run, and no other run, choose without communication.

    Args:
        environment: the rank's environment variables.
        place: the parent folder; default: the system's folder for temporary files.
    """
    run = next((f"{name}={environment[name]}" for name in _RUN_VARIABLES if name in environment), f"pid {os.getpid()}")
    name = hashlib.sha256(run.encode()).hexdigest()[:16]
    return (place or Path(tempfile.gettempdir())) / f".xmc_tf-check-{os.getuid()}-{name}"


class StatusFiles:
    """The status files of a run, written and read by one rank.

    Args:
        folder: the run's folder.
        rank: this rank.
        size: the number of ranks.
        host: this rank's host.
    """

    def __init__(self, folder: Path, rank: int, size: int, host: str) -> None:
        self.folder, self.rank, self.size, self.host = folder, rank, size, host
        self._step = -1
        folder.mkdir(parents=True, exist_ok=True)
        self._stage_file(rank).unlink(missing_ok=True)

    def enter(self, stage: str) -> None:
        """Enter the next stage; all ranks enter the same stages in the same order."""
        self._step += 1
        self._write(
            self._stage_file(self.rank), asdict(RankStage(self.rank, self.host, os.getpid(), self._step, stage))
        )

    def write_heartbeat(self, state: str) -> None:
        """Write the state of this rank's process, which also shows that its host works."""
        self._write(self._heartbeat_file(self.rank), {"state": state})

    def leave(self) -> None:
        """Remove this rank's files, and the folder if it is then empty."""
        self._stage_file(self.rank).unlink(missing_ok=True)
        self._heartbeat_file(self.rank).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other ranks' files are still in it
            self.folder.rmdir()

    def clear(self) -> None:
        """Remove all files after a failure, in which ranks do not remove their own."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def entry(self, rank: int) -> RankStage | None:
        """Return the stage of a rank, or None if it has not reported in this run."""
        path = self._stage_file(rank)
        with contextlib.suppress(OSError, ValueError, TypeError):
            if time.time() - path.stat().st_mtime < _STALE_S or self._silence(rank) < _SILENT_S:
                return RankStage(**read_json(path, limit=_MOST_BYTES))
        return None

    def behind(self) -> list[str]:
        """Return a line for each rank that is missing, not running, or behind the furthest one."""
        entries = {rank: self.entry(rank) for rank in range(self.size)}
        furthest = max((entry.step for entry in entries.values() if entry), default=0)
        lines = []
        for rank, entry in entries.items():
            if entry is None:
                lines.append(
                    f"rank {rank} has not reported: it has not started, or does not "
                    f"see {self.folder} (--rendezvous names a folder that all hosts see)"
                )
                continue
            who = f"rank {rank} (pid {entry.pid} on {entry.host})"
            silence, state = self._silence(rank), self._state(rank)
            if silence > _SILENT_S:
                lines.append(f"{who} has been silent for {silence:.0f} s, in {entry.stage!r}")
            elif state != "running":
                lines.append(f"{who} {'is' if state == 'stopped' else 'has'} {state}, in {entry.stage!r}")
            elif entry.step < furthest:
                lines.append(f"{who} was last heard of in {entry.stage!r}")
        return lines

    def should_report(self) -> bool:
        """Return whether this rank reports for all: the lowest of the ranks that are furthest."""
        if self.entry(self.rank) is None:
            return False  # another rank has reported and removed the files
        entries = [entry for rank in range(self.size) if (entry := self.entry(rank))]
        furthest = max((entry.step for entry in entries), default=0)
        return min((entry.rank for entry in entries if entry.step == furthest), default=-1) == self.rank

    def _silence(self, rank: int) -> float:
        """Return the seconds between the heartbeats of a rank and this rank, by the file system's clock."""
        with contextlib.suppress(OSError):
            return self._heartbeat_file(self.rank).stat().st_mtime - self._heartbeat_file(rank).stat().st_mtime
        return 0.0

    def _state(self, rank: int) -> str:
        with contextlib.suppress(OSError, ValueError, KeyError):
            return str(read_json(self._heartbeat_file(rank), limit=_MOST_BYTES)["state"])
        return "running"

    def _stage_file(self, rank: int) -> Path:
        return self.folder / f"{rank}.stage.json"

    def _heartbeat_file(self, rank: int) -> Path:
        return self.folder / f"{rank}.life.json"

    def _write(self, path: Path, content: dict[str, object]) -> None:
        with atomic_file(path) as part:
            part.write_text(json.dumps(content))
