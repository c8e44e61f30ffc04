"""Levels' problems on disk: written by one rank, mapped by all, so that a rank reads only the columns it needs."""

import json
from pathlib import Path

import numpy as np
from scipy.sparse import csc_matrix

from xmc_tf.common.files.atomic import atomic_file
from xmc_tf.common.files.json_files import read_json
from xmc_tf.data import save_matrix
from xmc_tf.data.npz.reading import read_npz
from xmc_tf.data.npz.stored import open_matrix
from xmc_tf.data.npz.writing import write_npz
from xmc_tf.params import LinearLevelParams
from xmc_tf.rankers.problems import LevelProblem
from xmc_tf.rankers.tasks import LevelTasks

_PROBLEM, _TASKS = "problem.json", "tasks.npz"


def save_problem(folder: Path, problem: LevelProblem, tasks: LevelTasks) -> None:
    """Write a level's problem and tasks; ``problem.json`` comes last and marks them as complete."""
    folder.mkdir(parents=True, exist_ok=True)
    matrices = {
        "Y": problem.labels, "C": problem.clusters.astype(np.float32), "M": problem.matched, "R": problem.costs,
    }  # fmt: skip
    for name, matrix in matrices.items():
        if matrix is not None:
            save_matrix(folder / f"{name}.npz", matrix)
    content = {
        "covered": problem.covered,
        "params": problem.params.to_json(),
        "matrices": [name for name, matrix in matrices.items() if matrix is not None],
    }
    with atomic_file(folder / _TASKS) as part:
        write_npz(part, tasks._asdict())
    with atomic_file(folder / _PROBLEM) as part:
        part.write_text(json.dumps(content), encoding="utf-8")


def is_stored(folder: Path) -> bool:
    """Return whether a level's problem is complete."""
    return (folder / _PROBLEM).is_file()


def open_problem(folder: Path) -> LevelProblem:
    """Return a problem that :func:`save_problem` wrote, memory-mapped."""
    content = read_json(folder / _PROBLEM)
    found = {name: open_matrix(folder / f"{name}.npz") for name in content["matrices"]}
    return LevelProblem(
        csc_matrix(found["Y"]), csc_matrix(found["C"]), found.get("M"), found.get("R"), content["covered"],
        LinearLevelParams.from_json(content["params"]),
    )  # fmt: skip


def open_tasks(folder: Path) -> LevelTasks:
    """Return the tasks of a level, memory-mapped: computing them reads all matched documents, so one rank does it."""
    arrays = read_npz(folder / _TASKS, name="work file")
    return LevelTasks(*(arrays[name] for name in LevelTasks._fields))
