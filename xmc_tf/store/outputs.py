"""Checks of output paths before any work. Paths are compared by file identity, because links give a file many names."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.store.files import remove_leftovers
from xmc_tf.store.models import EXPORT, MODEL, kind_at
from xmc_tf.store.publishing import claimed_folder

# Marks by which a command recognizes files that it wrote earlier. It overwrites no other files.
# Comments of .npz archives.
FEATURES, LABELS, RELEVANCE = "xmc_tf features", "xmc_tf labels", "xmc_tf relevance"
MATRIX_OF_PREDICTIONS = "xmc_tf predictions"
# Spaces at the end of an .npy header; NumPy writes fewer.
EMBEDDINGS = " " * 256
# The marks of a matrix of predictions, of JSON lines, and of tables of predicted labels.
PREDICTIONS = (MATRIX_OF_PREDICTIONS, '"scores": [', "label 1,score 1", "label 1;score 1", "label 1	score 1")
_HEAD, _TAIL = 1 << 16, 64
Named = str | Path | Sequence[str | Path] | None
"""What a flag names: a path, several, or nothing."""


def check_output_path(
    flag: str,
    path: str | Path | None,
    inputs: Mapping[str, Named],
    marks: Sequence[str] | None = (),  # None: the command itself checks what it overwrites
    *,
    force: bool = False,
) -> None:
    """Refuse to overwrite an input, part of a model, or another command's file. Remove what killed runs left there."""
    if path is None:
        return
    _refuse_clash(flag, path, inputs)
    _refuse_place(flag, path, "a file")
    kept = marks is not None and not force and os.path.isfile(path)
    if kept and not (os.access(path, os.R_OK) and _is_marked(Path(path), marks or ())):
        raise InputError(
            f"{flag} {path} exists and was not written by this command",
            expected="a new file, or one written by this command",
            received=f"a file of {os.path.getsize(path):,} bytes",
            fix=f"give another name with {flag}, or overwrite the file with --force",
        )
    remove_leftovers(path)


def check_output_folder(flag: str, path: str | Path, inputs: Mapping[str, Named]) -> None:
    """Refuse an output folder that is an input, is part of a model, or cannot be written."""
    _refuse_clash(flag, path, inputs)
    _refuse_place(flag, path, "a folder")


def _refuse_clash(flag: str, path: str | Path, inputs: Mapping[str, Named]) -> None:
    for other, read in _each(inputs):
        if _same(path, read) or (os.path.isdir(read) and _is_read_there(path, read)):
            raise _also_read(f"{flag} {path}", other, read)
    # From the outermost folder inward: rankers in a model of xmc_tf are its parts, and also complete PECOS models.
    for folder, inside in sorted(_around(path), key=lambda found: len(found[0].parts)):
        kind = kind_at(folder)
        if kind is not None and kind.has_part(inside[0]):
            raise InputError(
                f"{flag} {path} is part of {kind.the} in {folder}", expected="a path that is not part of a model",
                received="/".join(inside), fix=f"give another name with {flag}",
            )  # fmt: skip


def _refuse_place(flag: str, path: str | Path, wanted: str) -> None:
    """Refuse an output path that cannot be created or written, or that exists but is of another type."""
    problem = ""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode) != (wanted == "a folder") or not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            problem = "a folder" if stat.S_ISDIR(mode) else "a file" if stat.S_ISREG(mode) else "a device or a pipe"
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # a circle of links, a name that is too long
        problem = getattr(error, "strerror", None) or str(error)
    if not problem:
        inside = os.path.isdir(path)
        around = [Path(path)] if inside else Path(os.path.abspath(path)).parents
        parent = next(folder for folder in around if os.path.lexists(folder))
        if not os.path.isdir(parent):
            problem = f"{parent} is a file"
        elif not os.access(parent, os.W_OK | os.X_OK):
            problem = f"{parent} is not writable"
    if problem:
        raise InputError(
            f"{flag} {path} cannot be written", expected=f"{wanted} that is writable or does not exist yet",
            received=problem, fix=f"give another name with {flag}",
        )  # fmt: skip


def refuse_same_outputs(outputs: Mapping[str, str | None]) -> None:
    flags: dict[str, str] = {}
    for flag, path in outputs.items():
        if path is not None and (other := flags.setdefault(os.path.realpath(path), flag)) != flag:
            raise InputError(
                f"{other} and {flag} are the same file: {path}", expected="a different file for each output",
                fix=f"give another name with {flag}",
            )  # fmt: skip


def refuse_model_folder(
    flag: str, path: str | Path, inputs: Mapping[str, Named], *, export: bool = False, unchanged: Sequence[str] = ()
) -> None:
    """Refuse a model folder that is an input, is inside a model, or would overwrite an input not in ``unchanged``."""
    if not os.fspath(path):
        fix = f"give a folder with {flag}; in a script, a variable may be unset"
        raise InputError(f"{flag} is empty", expected="a folder to write", fix=fix)
    written = EXPORT if export else MODEL
    for other, read in _each(inputs):
        if _same(path, read):
            raise _also_read(f"{flag} {path}", other, read)
        kept = other in unchanged and kind_at(Path(path)) is written
        for folder, inside in _around(read):
            if not kept and _same(folder, path) and written.has_part(inside[0]):
                problem = f"{flag} {path} would replace {read}, which is the input {other}"
                expected = "inputs outside the folder, or with names that models do not use"
                fix = f"move the input elsewhere, or give another folder with {flag}"
                raise InputError(problem, expected=expected, received="/".join(inside), fix=fix)
    for folder, inside in _around(path):
        kind = kind_at(folder)
        if kind is not None and kind.is_model:
            raise InputError(
                f"{flag} {path} lies inside {kind.the} in {folder}", expected="a folder outside other models",
                received="/".join(inside), fix=f"give another folder with {flag}",
            )  # fmt: skip
    _refuse_place(flag, path, "a folder")
    written.check_place(Path(path), f"give another folder with {flag}", f"{flag} {path}")


@contextmanager
def claimed_model(model: str, output: str | None, inputs: Mapping[str, Named]) -> Iterator[Path]:
    """Check and lock the folder of a changed model, and yield it: ``output`` (-o), or the model's own (-m)."""
    flag, folder = ("-m", model) if output is None else ("-o", output)
    refuse_model_folder(flag, folder, inputs)
    with claimed_folder(folder, MODEL):
        yield Path(folder)


def refuse_other_folder(flag: str, path: str | Path) -> None:
    """Refuse a data folder that is a model or an export, or is inside one."""
    _refuse_place(flag, path, "a folder")
    for folder in (Path(path), *(around for around, _ in _around(path))):
        kind = kind_at(folder)
        if kind is not None and kind.is_model:
            raise InputError(
                f"{flag} {path} is inside {kind.the} {folder}, or is that folder", expected="a separate folder",
                fix=f"give another folder with {flag}",
            )  # fmt: skip


def refuse_work_folder(flag: str, path: str | Path, inputs: Mapping[str, Named]) -> None:
    """Refuse a work folder that contains an input or is part of a model: the work folder is deleted at the end."""
    for other, read in _each(inputs):
        if _same(path, read) or any(_same(folder, path) for folder, _ in _around(read)):
            problem = f"{path}, the work folder of {flag}, holds {read}, which is the input {other}"
            expected = "a folder without inputs, because it is deleted when the model is complete"
            fix = f"move the input elsewhere, or give another folder with {flag}"
            raise InputError(problem, expected=expected, fix=fix)
    check_output_folder(flag, path, {})


def _each(inputs: Mapping[str, Named]) -> Iterator[tuple[str, str]]:
    for flag, named in inputs.items():
        for path in [named] if isinstance(named, str | Path) else named or []:
            read = os.path.expanduser(os.fspath(path))
            if os.path.exists(read):  # an encoder may also be a name on the hub
                yield flag, read


def _also_read(output: str, flag: str, read: str) -> InputError:
    problem, fix = f"{output} is also the input {flag} {read}", f"give another name with {output.split()[0]}"
    received = "the same file" if not os.path.isdir(read) else "a file of that folder, or the folder itself"
    return InputError(problem, expected="an output that is not also an input", received=received, fix=fix)


def _is_read_there(path: str | Path, folder: str) -> bool:
    """Return whether ``path`` is read as a part of the input ``folder``. In a model, only its own parts are read."""
    if not os.path.exists(path):
        return False
    kind = kind_at(Path(folder))
    read = [os.path.join(folder, name) for name in os.listdir(folder) if kind is None or kind.has_part(name)]
    if kind is not None:
        walks = [walk for top in read for walk in os.walk(top)]
        read += [os.path.join(place, name) for place, _, names in walks for name in names]
    return any(_same(one, path) for one in read)


def _around(path: str | Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yield each parent folder of a path and the path relative to it, both as named and with links resolved."""
    seen = set()
    resolved = Path(os.path.realpath(path))
    # After a link, ".." leads elsewhere than the text suggests, so only the resolved path is right.
    for start in (resolved if ".." in Path(path).parts else Path(os.path.abspath(path)), resolved):
        for depth, folder in enumerate(start.parents, 1):
            inside = start.parts[-depth:]
            if (folder, inside) not in seen:
                seen.add((folder, inside))
                yield folder, inside


def _same(one: str | Path, other: str | Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def _is_marked(path: Path, marks: Iterable[str]) -> bool:
    """Return whether a file has one of the marks near its beginning or at its end. Empty files count as marked."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
        size = file.seek(0, 2)
        file.seek(max(size - _TAIL, 0))
        tail = file.read()
    return not head or any(mark.encode() in head or tail.endswith(mark.encode()) for mark in marks)
