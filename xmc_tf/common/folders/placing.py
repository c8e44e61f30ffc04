"""Folders that are replaced as a whole, while everything in them that is not ours stays.

A new folder is filled beside the old one. Then, in order of preference:

- where nothing is, it is renamed;
- where an older folder of ours is, the two are exchanged in one step, after the files that are not ours have got a
  second name in the new one: at every moment the name leads to a complete folder, and a file that another process
  writes to stays the same file;
- otherwise (other people's files alone, a mount point, a disk without exchange or links) the files are moved in one by
  one, the header last. A journal in the folder lets whoever comes next finish that.
"""

import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.atomic import umask
from xmc_tf.common.files.json_files import read_json
from xmc_tf.common.folders.kinds import FolderKind, files_of
from xmc_tf.common.folders.locks import folder_lock, leftovers_beside, place_beside, temporary_folder_beside
from xmc_tf.common.folders.renames import exchange, rename_to_free_name

_LOG = logging.getLogger(__name__)
JOURNAL = ".xmc_tf.placing"
# With more files of other people than that, their folder stays where it is: nobody stores a model in a home folder
# twice, and a second name for each file would take long.
_MOST_CARRIED = 1000


@contextmanager
def claimed_folder(path: str | Path, kind: FolderKind, fix: str = "use another folder") -> Iterator[Path]:
    """Hold a folder's lock, after what a killed run left of it has been completed or removed.

    For a command that will fill the folder at its end and wants to know at its beginning that it may.

    Args:
        path: the folder, which need not exist.
        kind: what kind of folder it will be.
        fix: what to do when it cannot be used.

    Raises:
        InputError: the folder holds somebody else's files under names that we write, or another process writes it.
    """
    folder = Path(path).resolve()
    with folder_lock(folder):
        _recover(folder, kind)
        kind.check_place(folder, fix)
        yield folder


@contextmanager
def placed_folder(path: str | Path, kind: FolderKind) -> Iterator[Path]:
    """Yield a folder to fill; its files take their places in ``path`` only when the block ends well.

    Of what is in ``path`` already, the files of an older folder of this kind are removed and all others stay.

    Example:
        >>> with placed_folder("model", MODEL) as part:
        ...     write_all_parts(part)

    Args:
        path: the folder's name in the end.
        kind: what kind of folder it is.

    Raises:
        InputError: the folder holds somebody else's files under names that we write, or another process writes it.
    """
    with claimed_folder(path, kind) as folder:
        part = temporary_folder_beside(folder)
        try:
            part.chmod(0o777 & ~umask())
            yield part
            _place(part, folder, kind)
        finally:
            # Whatever is left there is ours or has its place in the folder: see _merge_foreign.
            shutil.rmtree(part, ignore_errors=True)


def _recover(folder: Path, kind: FolderKind) -> None:
    """Complete or removes what a killed run left of ``folder``, and says so; needs the folder's lock."""
    if finish_placing(folder):
        _LOG.info("%s: completed what an interrupted run had begun to place", folder)
    for leftover in leftovers_beside(folder):
        if leftover.is_dir():
            # Without a header it is half filled, or an older folder of which everything else has found its place.
            if kind.is_at(leftover):
                _merge_foreign(leftover, folder, kind)
            shutil.rmtree(leftover)
        else:
            leftover.unlink()
        _LOG.info("%s: removed %s, left by an interrupted run", folder, leftover.name)
    _recover_first_version(folder, kind)


def finish_placing(folder: Path) -> bool:
    """Move in what a journal says is to be moved in.

    Returns:
        Whether there was a journal.

    Raises:
        InputError: the journal cannot be carried out.
    """
    folder = folder.resolve()
    path = folder / JOURNAL
    try:
        if not os.path.lexists(path):
            return False
        journal = read_json(path)
        part = place_beside(folder) / str(journal["part"])
        header, outdated = str(journal["header"]), [str(name) for name in journal["outdated"]]
        ours = part.name.startswith(f".{folder.name}.new-") and "/" not in journal["part"] and not part.is_symlink()
        honest = ours and not any(map(_leads_outside, [header, *outdated]))
    except (InputError, KeyError, TypeError):
        honest = False
    if not honest:
        raise InputError(f"{path} is not a journal of xmc_tf", fix="remove the file, then train or copy again")
    if part.is_dir():
        # Each step may have been done already. While the new header waits, one in the folder is the old one.
        if (part / header).exists() and header in outdated:
            (folder / header).unlink(missing_ok=True)
        _remove_files(folder, (name for name in outdated if name != header))
        for name in sorted(files_of(part), key=lambda name: (name == header, name)):
            place = (folder / name).parent
            place.mkdir(parents=True, exist_ok=True)
            if not place.resolve().is_relative_to(folder):
                raise InputError(f"{place} leads out of {folder}", expected="folders, no links", fix="remove the link")
            (part / name).replace(folder / name)
        shutil.rmtree(part)
    path.unlink()
    return True


def _place(part: Path, folder: Path, kind: FolderKind) -> None:
    replaceable = True
    if folder.is_dir():
        replaceable = _may_be_exchanged(folder, part)
        shutil.copystat(folder, part)
    if replaceable:
        try:
            part.rename(folder)  # succeeds where there is nothing, or an empty folder
            return
        except OSError as error:
            if not folder.is_dir():
                raise
            _LOG.debug("%s: not renamed: %s", folder, error)
    kind.check_place(folder)  # once more: somebody may have put files there meanwhile
    outdated = kind.own_files(folder)
    if outdated and replaceable and _carry_foreign(folder, part, outdated) and exchange(part, folder):
        # From here on ``part`` is the older folder; the caller removes it.
        _merge_foreign(part, folder, kind, newer=True)
        return
    _drop_carried(part, folder)
    # Files with the same name are replaced; only the others are to be removed.
    outdated -= {*files_of(part)} - {kind.header}
    journal = {"part": part.name, "header": kind.header, "outdated": sorted(outdated)}
    written = part.with_name(f"{part.name}.journal")
    written.write_text(json.dumps(journal), encoding="utf-8")
    written.replace(folder / JOURNAL)
    finish_placing(folder)


def _may_be_exchanged(folder: Path, part: Path) -> bool:
    """Not a mount point, somebody else's folder, or one that this process works in: they stay the same folder."""
    works_there = Path.cwd().is_relative_to(folder)
    return part.parent == folder.parent and folder.stat().st_uid == os.geteuid() and not works_there


def _carry_foreign(folder: Path, part: Path, own: set[str]) -> bool:
    """Gives all files that are not ours a second name in the new folder; False where that cannot be done."""
    foreign = list(islice((name for name in files_of(folder) if name not in own), _MOST_CARRIED + 1))
    if len(foreign) > _MOST_CARRIED:
        return False
    of_own = {str(parent) for name in own for parent in Path(name).parents}
    of_foreign = {str(parent) for name in foreign for parent in Path(name).parents}
    try:
        for place, _, _ in os.walk(folder):
            relative = os.path.relpath(place, folder)
            if (relative not in of_own or relative in of_foreign) and not (part / relative).exists():
                (part / relative).mkdir()
                shutil.copystat(place, part / relative)
        for name in foreign:
            os.link(folder / name, part / name, follow_symlinks=False)
    except OSError as error:
        _LOG.debug("%s: files are moved in one by one: %s", folder, error)
        return False
    return True


def _drop_carried(part: Path, folder: Path) -> None:
    """Remove the second names again."""
    for name in list(files_of(part)):
        if _same_file(part / name, folder / name):
            (part / name).unlink()


def _merge_foreign(old: Path, folder: Path, kind: FolderKind, newer: bool = False) -> None:
    """Move files that are not ours from a folder that goes into the one that stays, where they are missing.

    Nearly all of them have a name there already; others came between the second names and the exchange.

    Args:
        old: the folder that goes.
        folder: the folder that stays.
        kind: of both.
        newer: whether a file that differs has been replaced in ``old`` since it got its second name.
    """
    own = kind.own_files(old)
    for name in list(files_of(old)):
        if name in own or name == JOURNAL or not folder.is_dir() or _same_file(old / name, folder / name):
            continue
        if newer or not os.path.lexists(folder / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (old / name).replace(folder / name)


def _recover_first_version(folder: Path, kind: FolderKind) -> None:
    """What version 0.1 left behind: its older folder between two renames, or a folder half filled."""
    for leftover in sorted(folder.parent.glob(f".{folder.name}-*")):
        old = leftover / folder.name
        if leftover.name.startswith(f".{folder.name}-old-") and kind.is_at(old):
            if rename_to_free_name(old, folder):
                _LOG.info("%s: restored from %s, left by an interrupted run", folder, leftover.name)
            else:
                _merge_foreign(old, folder, kind)
                shutil.rmtree(old)
                _LOG.info("%s: removed %s, left by an interrupted run", folder, leftover.name)
            leftover.rmdir()
        elif _is_temporary_of_first_version(leftover, folder) and all(map(kind.may_have, files_of(leftover))):
            shutil.rmtree(leftover)
            _LOG.info("%s: removed %s, left by an interrupted run", folder, leftover.name)


def _is_temporary_of_first_version(leftover: Path, folder: Path) -> bool:
    letters = leftover.name.removeprefix(f".{folder.name}-")
    return leftover.is_dir() and not leftover.is_symlink() and len(letters) == 8


def _remove_files(folder: Path, names: Iterable[str]) -> None:
    """Remove files and the folders that are empty without them."""
    folders: set[Path] = set()
    for name in names:
        (folder / name).unlink(missing_ok=True)
        folders.update(parent for parent in Path(name).parents if parent != Path())
    for inner in sorted(folders, key=lambda path: len(path.parts), reverse=True):
        try:
            (folder / inner).rmdir()
        except OSError:
            continue  # not empty, or not there


def _same_file(one: Path, other: Path) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except FileNotFoundError:
        return False


def _leads_outside(name: str) -> bool:
    return Path(name).is_absolute() or ".." in Path(name).parts
