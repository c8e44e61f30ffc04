"""The commands of the bad-input campaign that read matrices, models and tables, with a command line that succeeds."""

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.campaigns.trial import argv_of


class Command(NamedTuple):
    """The flags of a command line that succeeds, and those that take files, numbers and other words."""

    base: dict[str, str]
    files: tuple[str, ...]
    numbers: tuple[str, ...]
    words: tuple[str, ...] = ()
    case: dict[str, Any] = {}  # noqa: RUF012  what all cases of this command have


_MEASURED = {"-y": "{in}/Y.npz", "-p": "{in}/P.npz"}
MATRICES = {
    "linear.train": Command(
        {"-x": "{in}/X.npz", "-y": "{in}/Y.npz", "-m": "{out}/new"},
        ("-x", "-y", "--labels", "--vocabulary", "-c", "-f", "-r", "-um", "-uy", "--params-path"),
        ("--seed", "-k", "-b", "-n", "--max-leaf-size", "--nr-splits", "--trees", "--Cp", "--threshold", "--max-iter"),
    ),
    "linear.predict": Command(
        {"-m": "{in}/model", "-x": "{in}/X.npz", "-o": "{out}/p.npz"},
        ("-x", "-y", "-so", "-m"), ("-k", "-b", "-n", "-B"),
    ),
    "evaluate files": Command(
        _MEASURED, ("-y", "-p", "--train-labels", "--labels", "-t", "-m", "--vocabulary"),
        ("-k", "--buckets", "--propensity-a"),
    ),
    "linear.evaluate": Command(_MEASURED, ("-y", "-p"), ("-k",)),
    "tree.show": Command(
        {"": "{in}/model/tree"}, ("", "--labels", "-y"), ("--depth", "--max-children", "--words")
    ),
    "check": Command({"--model": "{in}/model"}, ("--model",), ("--timeout", "--megabytes")),
}  # fmt: skip
_OF_TABLES = ("--text-column", "--label-column", "--label-separator", "--encoding")
TABLES = {
    "prepare": Command(
        {"": "{in}/data.csv", "-o": "{out}/new.sqlite"},
        ("", "--test-table", "--names-file", "--label-lists"),
        ("--max-bad-rows", "--validation", "--test", "--split-seed"),
        (*_OF_TABLES, "--document-column", "--separator", "--table", "-o", "--test-label-lists"),
    ),
    "runs": Command({"": "{in}/data.sqlite"}, ("",), ("show", "delete"), ("-o",)),
    "predict": Command(
        {"": "{in}/data.csv", "-m": "{in}/text-model", "-o": "{out}/labels.csv"},
        ("", "-m"), ("-k", "-b", "-n", "--threshold", "--back-off"),
        ("--column", "--keep", "--encoding", "--separator", "-o"),
    ),
    "report.command": Command(
        {"": "{in}/data.sqlite", "-m": "{out}/model", "-o": "{out}/report"},
        ("", "-m"), ("-k", "-b"), ("--split", "--title", "-o"),
        {"model": "text-model", "replaces": True},  # a report fills the card of its model too
    ),
    "report.audit": Command(
        {"": "{in}/data.csv", "-m": "{in}/text-model", "-o": "{out}/audit"},
        ("", "-m"), ("-n", "--most"), (*_OF_TABLES, "--separator", "-o"),
    ),
    "evaluate": Command(
        {"": "{in}/data.csv", "-m": "{in}/text-model"},
        ("", "-m"), ("-k", "--buckets"), (*_OF_TABLES, "--title", "--report"),
    ),
    "explain": Command(
        {"-m": "{in}/text-model", "": "word1 word2"}, ("-m",), ("-k", "-b", "--words"), ("--unknown-flag", "")
    ),
    "sequences.prepare": Command(
        {"": "{in}/interactions.csv", "-o": "{out}/new"},
        ("",), ("--max-bad-rows", "--min-rating", "--min-item-count", "--min-user-count"),
        ("--user-column", "--item-column", "--encoding", "--separator", "-o"),
    ),
}  # fmt: skip
COMMANDS = MATRICES | TABLES
_GOOD = {
    "--test-table": "data.csv", "--names-file": "labels.txt", "--label-lists": "labels.txt", "--labels": "labels.txt",
    "-y": "Y.npz", "-p": "P.npz", "-c": "C.npz", "-r": "R.npz", "--params-path": "params.json",
}  # fmt: skip
# Training loads TensorFlow, which takes seconds, so that these are few.
TRAINING = [
    ("{in}/nothing.csv", "-m", "{out}/m"),
    ("{in}/data.csv",),
    ("{in}/data.csv", "-m", "{in}/data.csv"),
    ("{in}/data.csv", "-m", "{out}/m", "-t", "{in}/X.txt"),
    ("{in}/data.csv", "-m", "{out}/m", "--data-set", "{in}/X.npz"),
    ("{in}/data.csv", "-m", "{out}/m", "--data-set", "/proc/x.sqlite"),
    ("{in}/data.csv", "-m", "{out}/m", "--data-set", "{out}/d", "--minutes", "nan"),
    ("{in}/data.csv", "-m", "{out}/m", "--data-set", "{out}/d", "--minutes", "-1", "--effort", "best"),
    ("{in}/data.csv", "-m", "{out}/m", "--data-set", "{out}/d", "--effort", "fast", "--report", "{in}/data.csv"),
    ("{in}/data.csv", "-m", "{out}/m", "--data-set", "{out}/d", "--preponly", "--test", "1"),
    ("{in}/data.csv", "-m", "{out}/m", "--data-set", "{out}/d", "--model-shortcut", "{in}/nothing"),
    ("{in}", "-m", "{out}/m", "--data-set", "{out}/d"),
]


def good_file(command: str, flag: str) -> str:
    """Return the name of a valid file for a flag, or for the positional argument, of a command."""
    name = Path(COMMANDS[command].base.get(flag, "")).name if flag == "" else _GOOD.get(flag, "")
    return name if "." in name else "X.npz"


def arguments(command: str, flag: str, value: str) -> tuple[str, ...]:
    """Return the arguments of a valid command line with one flag, or the positional argument for "", replaced."""
    base = COMMANDS[command].base
    if command == "runs" and flag in ("show", "delete"):
        return (base[""], flag, value)
    return argv_of(base | {flag: value})


def make_inputs(folder: Path) -> None:
    """Create a table, its data set with a recorded run, and a model that reads texts.

    Args:
        folder: folder with ``X.txt``, the texts.
    """
    texts = (folder / "X.txt").read_text(encoding="utf-8").splitlines()
    rows = "".join(f'"{text}",label {number % 5}|label {number % 3}\n' for number, text in enumerate(texts))
    (folder / "data.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    events = "".join(f"user {number % 20},item {number * 7 % 30},{number}\n" for number in range(200))
    (folder / "interactions.csv").write_text(f"user,item,time\n{events}", encoding="utf-8")
    # A process of its own, because commands that are forked later cannot use a TensorFlow that is loaded here.
    command = ["train", "data.csv", "-m", "text-model", "--effort", "fast", "--verbose-level", "0"]
    subprocess.run([sys.executable, "-m", "xmc_tf", *command], cwd=folder, check=True, capture_output=True)
