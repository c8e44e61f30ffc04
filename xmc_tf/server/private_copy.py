"""A private copy of a served model: its weights are mapped, and a change of mapped files would end the server."""

import errno
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, TypeVar

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.leftovers import TemporaryFolder
from xmc_tf.store.checksums import MODEL_HEADER
from xmc_tf.store.models import DOCUMENTS, FOLDERS, TRAINING

_LOG = logging.getLogger(__name__)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOENT)

State: TypeAlias = tuple[tuple[str, int, int, int], ...]
Result = TypeVar("Result")


def state_of(folder: Path) -> State:
    """Return the paths, inodes, sizes and times of a folder's files, which change while files are copied into it."""
    found, seen = [], set()
    for place, inner, names in os.walk(folder, followlinks=True):
        seen.add(os.path.realpath(place))  # a link may lead to a folder around it
        inner[:] = [name for name in inner if os.path.realpath(os.path.join(place, name)) not in seen]
        for name in names:
            path = os.path.join(place, name)
            try:
                status = os.stat(path)
            except OSError:  # it has just been renamed
                continue
            found.append((os.path.relpath(path, folder), status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(sorted(found))


def load_copy(folder: Path, load: Callable[[Path], Result]) -> tuple[Result, TemporaryFolder | None]:
    """Copy a model folder into the temporary folder, and load the copy, which must exist as long as the model is used.

    If there is no room for a copy, the model is loaded from its folder, with a warning.

    Args:
        folder: the model folder.
        load: loads a model folder. Its errors name ``folder`` instead of the copy.

    Raises:
        InputError: the folder changed while it was copied, or the model cannot be loaded.
    """
    copy = _copied(folder)
    if copy is None:
        return load(folder), None
    try:
        return load(Path(copy.name)), copy
    except InputError as error:
        raise InputError(str(error).replace(copy.name, str(folder))) from None


def _copied(folder: Path) -> TemporaryFolder | None:
    state = state_of(folder)
    left_out = {DOCUMENTS, TRAINING}  # needed only to change the model
    if (folder / MODEL_HEADER).is_file():
        left_out |= {entry.name for entry in folder.iterdir() if entry.is_dir()} - set(FOLDERS)
    try:
        copy = TemporaryFolder()
        for name, *_ in state:
            if Path(name).parts[0] not in left_out:
                place = Path(copy.name, name)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / name, place)
    except OSError as error:
        if error.errno not in _NO_ROOM or state_of(folder) != state:
            raise
        _LOG.warning(
            "%s cannot be copied to the temporary folder (%s): do not write into it while it is served, but rename "
            "another folder to its name; or set TMPDIR to a folder with room", folder, error.strerror,
        )  # fmt: skip
        return None
    if state_of(folder) != state:
        raise InputError(
            f"{folder} changed while it was read",
            expected="a folder that nothing writes to",
            fix="wait until it is complete",
        )
    return copy
