"""The work folder: where ranks put what they have done, beside the model that will come of it."""

import json
import logging
import secrets
import shutil
import time
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.atomic import atomic_file
from xmc_tf.common.files.json_files import read_json
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

_LOG = logging.getLogger(__name__)
_NAME = "work.json"
_BEGINNING = ".work-"  # of the name that it has until it is whole


class WorkFolder:
    """A folder of results that any later run with the same inputs takes up.

    Args:
        path: the folder.
        key: of the inputs, as :func:`~xmc_tf.linear.distributed.inputs.check_same_inputs` gives it.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key

    @property
    def blocks(self) -> Path:
        """Where the solved sub-problems lie."""
        return self.path / "blocks"

    @property
    def tree(self) -> Path:
        """The label tree."""
        return self.path / "tree"

    @property
    def features(self) -> Path:
        """The vectorizer, where the model is trained on texts."""
        return self.path / "features"

    def file(self, name: str) -> Path:
        """A file at the folder's top."""
        return self.path / name

    def level(self, t: int) -> Path:
        """What belongs to one level: its problem, and its weights once they are joined."""
        return self.path / "levels" / str(t)

    def weights(self, t: int) -> Path:
        """The joined weights of a level."""
        return self.level(t) / "W.npz"

    def remove(self) -> None:
        """Removes it, under another name: if that is stopped, the rest must not be taken for one to go on with."""
        _discard(self.path)

    def claims(self, run: str) -> Path:
        """Where the ranks say what they have taken."""
        return self.path / f"claims-{run}"


def work_path(model: Path) -> Path:
    """Where the work folder of a model lies."""
    return model.with_name(f"{model.name}.work")


def open_work_folder(communicator: Communicator, model: Path, key: str) -> WorkFolder:
    """Takes up what an earlier run with the same inputs has left, or begins again.

    Args:
        communicator: the ranks.
        model: the model's folder; the work folder lies beside it.
        key: of the inputs.

    Raises:
        InputError: something else lies there, or a rank does not see the folder.
    """
    path = work_path(model)
    run_on_all_ranks(communicator, lambda: _prepare(path, key) if communicator.rank == 0 else None)
    token = communicator.broadcast(secrets.token_hex(8))

    def mark() -> None:
        if communicator.rank == 0:
            (path / f"seen-{token}").touch()

    run_on_all_ranks(communicator, mark)
    run_on_all_ranks(communicator, lambda: _look_for(path / f"seen-{token}"))
    if communicator.rank == 0:
        (path / f"seen-{token}").unlink()
    return WorkFolder(path, key)


def remove_discarded(model: Path) -> None:
    """Removes what a run left that was killed while it removed its work folder; needs the model's lock."""
    gone = _discarded(work_path(model))
    if gone.exists():
        shutil.rmtree(gone)
        _LOG.info("removed %s, left by an interrupted run", gone)


def _discard(path: Path) -> None:
    gone = _discarded(path)
    if gone.exists():
        shutil.rmtree(gone)
    path.rename(gone)
    shutil.rmtree(gone)


def _discarded(path: Path) -> Path:
    """The name that a work folder has while it is removed."""
    return path.with_name(f".{path.name}.removed")


def _prepare(path: Path, key: str) -> None:
    # A run that was stopped while it wrote the file that says whose the folder is has left no more than its beginning.
    if path.exists() and any(not entry.name.startswith(_BEGINNING) for entry in path.iterdir()):
        if not (path / _NAME).is_file():
            raise InputError(
                f"{path} is needed for intermediate results, but contains other files",
                fix="move it elsewhere, or choose another folder with -m",
            )
        if read_json(path / _NAME, fix=f"remove {path}").get("key") != key:
            _LOG.info("%s belongs to other inputs, options or another version: starting from the beginning", path)
            _discard(path)
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


def _look_for(mark: Path, patience_s: float = 10.0) -> None:
    """A shared disk may show a new file only after some seconds."""
    end = time.monotonic() + patience_s
    while not mark.exists():
        if time.monotonic() > end:
            raise InputError(
                f"{mark.parent} is not the folder that rank 0 created",
                expected="a folder that all ranks share, for example on NFS",
                received="a rank that does not see rank 0's files",
                fix="choose a folder on a shared disk with -m",
            )
        time.sleep(0.2)
