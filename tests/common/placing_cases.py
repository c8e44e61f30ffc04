"""A kind of folder to place, and processes that are killed while they place it."""

import json
import os
from pathlib import Path

from xmc_tf.common.folders import placing
from xmc_tf.common.folders.kinds import FolderKind

KIND = FolderKind(
    "a box",
    header="box.json",
    recognises=lambda header: header.get("format") == "box",
    parts={r"box\.json|names\.txt": None, "parts": r"\d+\.bin|deep/\d+\.bin"},
)
_STEPS = ("rename", "replace", "link", "unlink", "mkdir", "rmdir")


def fill(part: Path, word: str, count: int = 3) -> None:
    """Write a complete folder of the kind, in which all files contain ``word``."""
    (part / "parts" / "deep").mkdir(parents=True)
    for number in range(count):
        (part / "parts" / f"{number}.bin").write_text(word)
    (part / "parts" / "deep" / "0.bin").write_text(word)
    (part / "names.txt").write_text(word)
    files = {path.relative_to(part).as_posix(): {} for path in part.rglob("*") if path.is_file()}
    (part / "box.json").write_text(json.dumps({"format": "box", "word": word, "files": files}))


def place(folder: Path, word: str, count: int = 3) -> None:
    """Place such a folder."""
    with placing.placed_folder(folder, KIND) as part:
        fill(part, word, count)


def word_of(folder: Path) -> str | None:
    """Return the word of a complete folder, or None without a header; fail for a mixture."""
    if not (folder / "box.json").exists():
        return None
    header = json.loads((folder / "box.json").read_text())
    words = {(folder / name).read_text() for name in header["files"]}
    assert words == {header["word"]}, f"{folder} is a mixture of {words}"
    own = {"box.json", *header["files"]}
    strays = [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and KIND.may_have(path.relative_to(folder).as_posix())
    ]
    assert set(strays) <= own, f"{folder} has files of an older one: {set(strays) - own}"
    return str(header["word"])


def dies_at_step(step: int, folder: Path, word: str, *, with_exchange: bool = True) -> bool:
    """Place a folder in a process that is killed before its ``step``-th change; return False if it has fewer."""
    child = os.fork()
    if child == 0:
        _die_at(step)
        if not with_exchange:
            placing.exchange = lambda one, other: False
        place(folder, word, count=5)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def _die_at(step: int) -> None:
    left = [step]

    def counted(function):
        def call(*arguments, **more):
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)
            return function(*arguments, **more)

        return call

    for name in _STEPS:
        setattr(os, name, counted(getattr(os, name)))
    placing._RENAMEAT2 = counted(placing._RENAMEAT2)
