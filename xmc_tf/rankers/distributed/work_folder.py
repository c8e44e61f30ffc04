"""The work folder, in which all ranks store intermediate results, beside the model's folder."""

import json
import logging
import secrets
import shutil
from pathlib import Path

import numpy as np
from scipy.sparse import csc_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.params import LinearLevelParams
from xmc_tf.rankers.problems import LevelProblem
from xmc_tf.rankers.tasks import LevelTasks
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.ranks.this_host import appears
from xmc_tf.store.arrays import open_group, open_sparse, save_group, save_sparse
from xmc_tf.store.files import atomic_file, hidden_prefix

_LOG = logging.getLogger(__name__)
_PROBLEM, _TASKS, _NAME = "problem.json", "tasks", "work.json"
_PATIENCE_S = 10.0
_UNFINISHED = ".work-"  # prefix of the name of ``work.json`` until it is complete


class WorkFolder:
    """A folder of intermediate results, from which a later run with the same key (the same inputs) resumes."""

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        self.blocks, self.tree, self.features = path / "blocks", path / "tree", path / "features"

    def file(self, name: str) -> Path:
        return self.path / name

    def level(self, t: int) -> Path:
        """Return the folder of a level, which contains its problem and, once the blocks are joined, its weights."""
        return self.path / "levels" / str(t)

    def weights(self, t: int) -> Path:
        return self.level(t) / "W"

    def has_problem(self, t: int) -> bool:
        return (self.level(t) / _PROBLEM).is_file()

    def save_problem(self, t: int, problem: LevelProblem, tasks: LevelTasks) -> None:
        """Write a level's problem and tasks. ``problem.json`` is written last and marks them as complete."""
        folder, clusters = self.level(t), problem.clusters.astype(np.float32)
        folder.mkdir(parents=True, exist_ok=True)
        every = {"Y": problem.labels, "C": clusters, "M": problem.matched, "R": problem.costs}
        matrices = {name: matrix for name, matrix in every.items() if matrix is not None}
        for name, matrix in matrices.items():
            save_sparse(folder / name, matrix)
        content = {"covered": problem.covered, "params": problem.params.to_json(), "matrices": list(matrices)}
        save_group(folder / _TASKS, tasks._asdict())
        with atomic_file(folder / _PROBLEM) as part:
            part.write_text(json.dumps(content), encoding="utf-8")

    def problem(self, t: int) -> LevelProblem:
        """Load a level's problem with memory-mapped matrices."""
        content = read_json(self.level(t) / _PROBLEM)
        found = {name: open_sparse(self.level(t) / name) for name in content["matrices"]}
        return LevelProblem(
            csc_matrix(found["Y"]), csc_matrix(found["C"]), found.get("M"), found.get("R"), content["covered"],
            LinearLevelParams.from_json(content["params"]),
        )  # fmt: skip

    def tasks(self, t: int) -> LevelTasks:
        """Load a level's tasks. Only one rank computes them, because that takes a pass over all matched documents."""
        arrays = open_group(self.level(t) / _TASKS)
        return LevelTasks(*(arrays[name] for name in LevelTasks._fields))

    def remove(self) -> None:
        """Rename the folder before removing it, so that no later run resumes from a partly removed folder."""
        gone = _discarded(self.path)
        if gone.exists():
            shutil.rmtree(gone)
        self.path.rename(gone)
        shutil.rmtree(gone)


def work_path(model: Path) -> Path:
    return model.with_name(f"{model.name}.work")


def has_begun(model: Path) -> bool:
    """Return whether an interrupted training over ranks has left its work folder."""
    return (work_path(model) / _NAME).is_file()


def open_work_folder(communicator: Communicator, model: Path, key: str) -> WorkFolder:
    """Open the work folder of an earlier run with the same key, or create an empty one. Check that all ranks see it."""
    path = work_path(model)
    run_on_all_ranks(communicator, lambda: _prepare(path, key) if communicator.rank == 0 else None)
    token = communicator.broadcast(secrets.token_hex(8))
    seen = path / f"seen-{token}"
    run_on_all_ranks(communicator, lambda: seen.write_text(token) if communicator.rank == 0 else None)
    run_on_all_ranks(communicator, lambda: _require(seen, token))
    if communicator.rank == 0:
        seen.unlink()
    return WorkFolder(path, key)


def remove_discarded(model: Path) -> None:
    """Remove the rest of a work folder whose removal was interrupted. The caller must hold the model's lock."""
    gone = _discarded(work_path(model))
    if gone.exists():
        shutil.rmtree(gone)
        _LOG.info("removed %s, left by an interrupted run", gone)


def _discarded(path: Path) -> Path:
    """Return the path to which a work folder is renamed before it is removed."""
    return path.with_name(f"{hidden_prefix(path.name)}removed")


def _prepare(path: Path, key: str) -> None:
    # A run that was interrupted while it wrote ``work.json`` has left only that file's unfinished copy.
    if path.exists() and any(not entry.name.startswith(_UNFINISHED) for entry in path.iterdir()):
        if not (path / _NAME).is_file():
            raise InputError(
                f"{path} is needed for intermediate results, but contains other files",
                fix="move it elsewhere, or choose another folder with -m",
            )
        if read_json(path / _NAME, fix=f"remove {path}").get("key") != key:
            _LOG.info("%s belongs to different inputs, options or versions: starting from the beginning", path)
            WorkFolder(path, key).remove()
        else:
            _LOG.info("resuming from %s", path)
    for old in path.glob("claims-*"):
        shutil.rmtree(old)
    for old in path.glob("seen-*"):
        old.unlink()
    if not (path / _NAME).is_file():
        with atomic_file(path / _NAME) as part:
            part.write_text(json.dumps({"what": "unfinished training of xmc_tf", "key": key}) + "\n", encoding="utf-8")
    (path / "blocks").mkdir(exist_ok=True)


def _require(mark: Path, token: str) -> None:
    """Raise an error if this rank does not see rank 0's file; a shared disk may show it some seconds later."""
    if not appears(mark, token, _PATIENCE_S):
        raise InputError(
            f"{mark.parent} is not the folder that rank 0 created",
            expected="a folder that all ranks share, for example on NFS",
            received="a folder without rank 0's files", fix="choose a folder on a shared disk with -m",
        )  # fmt: skip
