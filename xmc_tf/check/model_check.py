import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.common.process.terminal import printable
from xmc_tf.common.progress import Progress
from xmc_tf.common.threads import thread_count
from xmc_tf.store.checksums import MODEL_HEADER, Records
from xmc_tf.store.kinds import FolderKind, files_of
from xmc_tf.store.models import ABOUT, EXPORT, kind_at

_MOST_LEVELS = 1000  # a deeper tree is an error

OK, DAMAGED, MISSING = "ok", "damaged", "missing"
UNKNOWN, FOREIGN = "no checksum recorded", "not part of the model"
STATES = (OK, DAMAGED, MISSING, UNKNOWN, FOREIGN)


@dataclass(frozen=True)
class FileState:
    file: str
    bytes: int
    state: str
    problem: str = ""


@dataclass(frozen=True)
class ModelCheck:
    folder: Path
    what: str
    files: list[FileState]

    @property
    def intact(self) -> bool:
        return not any(one.state in (DAMAGED, MISSING) for one in self.files)

    def to_text(self) -> str:
        width = max((len(printable(one.file)) for one in self.files), default=0)
        digits = max((len(f"{one.bytes:,}") for one in self.files), default=0)
        lines = []
        for one in self.files:
            lines.append(f"{printable(one.file):<{width}}  {one.bytes:>{digits},}  {one.state}")
            lines += [f"    {printable(line)}" for line in one.problem.splitlines()]
        counts = [f"{count:,} {state}" for state, count in self._counts().items() if count]
        size = sum(one.bytes for one in self.files if one.state != FOREIGN)
        verdict = "intact" if self.intact else "damaged"
        if self.intact and self._counts()[UNKNOWN]:
            verdict = "no damage found"
        lines.append(f"\n{self.folder} ({self.what}): {verdict}; {', '.join(counts)}; {size / 1e6:,.1f} MB")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        files = [{key: value for key, value in asdict(one).items() if value or key != "problem"} for one in self.files]
        about = {"folder": str(self.folder), "kind": self.what, "intact": self.intact}
        return {**about, "counts": self._counts(), "files": files}

    def _counts(self) -> dict[str, int]:
        return {state: sum(one.state == state for one in self.files) for state in STATES}


def check_model(folder: str | Path) -> ModelCheck:
    """Check all files of a model or export against its checksums. If it has none, check archives against their own."""
    folder = Path(folder)
    kind = kind_at(folder)
    if kind is None or not kind.is_model:
        raise InputError(
            f"{folder} is not a model" if folder.exists() else f"{folder} does not exist",
            expected="a model (params.json), a PECOS model (param.json and ranker/), or an export (saved_model.pb)",
            fix="use the folder that training wrote (-m), or an export such as served/1",
        )
    header = ABOUT if kind is EXPORT else MODEL_HEADER
    problem, records = "", None
    try:
        records = Records.read(folder, header) or _records_around(folder)
    except InputError as error:
        problem = str(error)
    # Broken links and links to folders are left out; anything other than a file, such as a pipe, has size 0.
    existing = [(name, path) for name in files_of(folder) if (path := folder / name).exists() and not path.is_dir()]
    found = {name: path.stat().st_size if path.is_file() else 0 for name, path in existing}
    names = sorted({*found, *(records.files if records else _files_of_rankers(folder))})

    def state(name: str) -> FileState:
        if name == header:
            result = (DAMAGED, problem) if problem else _header_state(folder / name, records)
        elif records is None:
            result = _state_without_records(folder, kind, name)
        elif name not in records.files:
            result = FOREIGN, ""
        elif (wrong := records.problem(name)) is None:
            result = OK, ""
        else:
            result = DAMAGED if name in found else MISSING, str(wrong)
        return FileState(name, found.get(name, 0), *result)

    total = sum(found.get(name, 0) for name in names)
    with ThreadPoolExecutor(thread_count(-1)) as pool, Progress("verifying", total, "bytes") as progress:
        states = []
        for one in pool.map(state, names):
            states.append(one)
            progress.add(one.bytes)
    return ModelCheck(folder, kind.the.removeprefix("the "), states)


def _header_state(path: Path, records: Records | None) -> tuple[str, str]:
    if records is None:
        try:
            Records.parse(path)
        except InputError as error:
            return DAMAGED, str(error)
        return UNKNOWN, ""
    if records.unchanged is False:
        accept = 'fix: if you edited it, delete its line "checksum" to accept the change; if not, copy the model again'
        return DAMAGED, f"it has changed since it was saved\n{accept}"
    return OK if records.unchanged else UNKNOWN, ""


def _records_around(folder: Path) -> Records | None:
    """Return the enclosing model's records for a ranker folder, which is itself a PECOS model, or None."""
    records = Records.around(folder)
    if records is None or not records.files:
        return None
    for start in (Path(os.path.abspath(folder)), Path(os.path.realpath(folder))):
        if start.is_relative_to(records.folder):
            inside = start.relative_to(records.folder).as_posix() + "/"
            files = {name.removeprefix(inside): record for name, record in records.files.items()}
            return Records(folder, records.header, files, records.unchanged)
    return None


def _files_of_rankers(folder: Path) -> Iterator[str]:
    """Yield the files that rankers must have at each level, for models that do not record their files."""
    for ranker in ("ranker", "ranker/ranker"):
        try:
            depth = read_json(folder / ranker / "param.json").get("depth")
        except InputError:
            continue
        if type(depth) is int and 0 < depth <= _MOST_LEVELS:
            needed = ["param.json", "C.npz", *([] if (folder / ranker).with_name("search").is_dir() else ["W.npz"])]
            yield from (f"{ranker}/{t}.model/{name}" for t in range(depth) for name in needed)


def _state_without_records(folder: Path, kind: FolderKind, name: str) -> tuple[str, str]:
    path = folder / name
    if not kind.has_part(name.split("/")[0]):
        return FOREIGN, ""
    if not os.path.lexists(path):
        return MISSING, ""
    if not path.is_file():
        return DAMAGED, "it is not a file"
    if path.suffix == ".npz" or zipfile.is_zipfile(path):
        wrong = archive_problem(path)
        return (DAMAGED, f"{path} {wrong}\nfix: copy the model again from where it is intact") if wrong else (OK, "")
    return UNKNOWN, ""


def archive_problem(path: Path) -> str:
    """Return what is wrong with an archive, whose members have checksums of their own, or "" if it is intact."""
    try:
        with zipfile.ZipFile(path) as archive:
            wrong = archive.testzip()
    # RuntimeError for a password, its subclass NotImplementedError for an unknown compression
    except (zipfile.BadZipFile, zipfile.LargeZipFile, struct.error, zlib.error, RuntimeError, ValueError, EOFError,
            OSError) as error:  # fmt: skip
        return f"is damaged: {error}"
    return f"is damaged: the content of its member {wrong} has changed since it was saved" if wrong else ""
