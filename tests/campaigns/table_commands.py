"""The part of the bad-input campaign about tables: reading, training, prediction, recorded runs, reports."""

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

BASE = {
    "prepare": {"": "{in}/data.csv", "-o": "{out}/new.sqlite"},
    "runs": {"": "{in}/data.sqlite"},
    "predict": {"": "{in}/data.csv", "-m": "{in}/text-model", "-o": "{out}/labels.csv"},
    "report.command": {"": "{in}/data.sqlite", "-m": "{out}/model", "-o": "{out}/report"},
    "report.audit": {"": "{in}/data.csv", "-m": "{in}/text-model", "-o": "{out}/audit"},
    "evaluate": {"": "{in}/data.csv", "-m": "{in}/text-model"},
    "explain": {"-m": "{in}/text-model", "": "word1 word2"},
    "sequences.prepare": {"": "{in}/interactions.csv", "-o": "{out}/new"},
}
# A report fills the card of its model too.
MODELS: dict[str, dict[str, Any]] = {"report.command": {"model": "text-model", "replaces": True}}
FILE_FLAGS = {
    "prepare": ["", "--test-table", "--names-file", "--label-lists"],
    "runs": [""],
    "predict": ["", "-m"],
    "report.command": ["", "-m"],
    "report.audit": ["", "-m"],
    "evaluate": ["", "-m"],
    "explain": ["-m"],
    "sequences.prepare": [""],
}
NUMBER_FLAGS = {
    "prepare": ["--max-bad-rows", "--validation", "--test", "--split-seed"],
    "runs": ["show", "delete"],
    "predict": ["-k", "-b", "-n", "--threshold", "--back-off"],
    "report.command": ["-k", "-b"],
    "report.audit": ["-n", "--most"],
    "evaluate": ["-k", "--buckets"],
    "explain": ["-k", "-b", "--words"],
    "sequences.prepare": ["--max-bad-rows", "--min-rating", "--min-item-count", "--min-user-count"],
}
TEXT_FLAGS = {
    "prepare": [
        "--text-column", "--label-column", "--label-separator", "--document-column", "--encoding", "--separator",
        "--table", "-o", "--test-label-lists",
    ],
    "runs": ["-o"],
    "predict": ["--column", "--keep", "--encoding", "--separator", "-o"],
    "report.command": ["--split", "--title", "-o"],
    "report.audit": ["--text-column", "--label-column", "--label-separator", "--encoding", "--separator", "-o"],
    "evaluate": ["--text-column", "--label-column", "--label-separator", "--encoding", "--title", "--report"],
    "explain": ["--unknown-flag", ""],
    "sequences.prepare": ["--user-column", "--item-column", "--encoding", "--separator", "-o"],
}  # fmt: skip
_GOOD = {"--test-table": "data.csv", "--names-file": "labels.txt", "--label-lists": "labels.txt"}
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
    return Path(BASE[command][""]).name if flag == "" else _GOOD.get(flag, "X.npz")


def arguments(command: str, flag: str, value: str) -> tuple[str, ...]:
    """Return the arguments of a valid command line with one flag, or the positional argument for "", replaced."""
    flags = {**BASE[command], flag: value}
    parts = [flags.pop(""), *itertools.chain.from_iterable(flags.items())]
    if command == "runs" and flag in ("show", "delete"):
        return (parts[0], flag, value)
    return tuple(parts)


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
