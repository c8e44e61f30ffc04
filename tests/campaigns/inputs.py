"""The inputs and the order of thousands of command lines with bad input.

Every command line must end by itself with exit status 0, 1 or 2, without a traceback, and must leave the files that it
was given as they were. The order is always the same: first all that was broken once, then the others at random.
"""

import importlib
import random
from pathlib import Path

from tests.campaigns import growing_commands, once_broken, table_commands
from tests.campaigns.command_lines import all_cases
from tests.campaigns.trial import Case

_MODULES = [
    "train", "sequences.train", *growing_commands.BASE, *(name.split()[0] for name in table_commands.COMMANDS),
]  # fmt: skip


def make_inputs(folder: Path) -> None:
    """Create the valid files, a model and its predictions."""
    from tests.linear.command_data import run_predict, run_train, write_corpus

    write_corpus(folder)
    table_commands.make_inputs(folder)
    growing_commands.make_inputs(folder)
    once_broken.make_inputs(folder)
    (folder / "params.json").write_text("{}")
    run_train("-x", folder / "X.npz", "-y", folder / "Y.npz", "-m", folder / "model", "--max-leaf-size", 4,
              "--nr-splits", 2, "--labels", folder / "labels.txt", "--verbose-level", 0)  # fmt: skip
    run_predict("-m", folder / "model", "-x", folder / "X.npz", "-o", folder / "P.npz", "--verbose-level", 0)


def warm(inputs: Path) -> None:
    """Load what the forked commands load, so that no child has to."""
    for command in _MODULES:
        importlib.import_module(f"xmc_tf.{command}")
    make_inputs(inputs)


def chosen(count: int | None = None, first: int = 0, match: str = "") -> list[Case]:
    """Return the cases that match, or a part of them: first those that were broken once, then the others at random.

    Args:
        count: how many; None: all that are left.
        first: how many to skip.
        match: words that a command line must have.
    """
    cases = all_cases()
    begin = len(list(once_broken.cases()))
    mixed = cases[begin:]
    random.Random(16).shuffle(mixed)
    found = [case for case in [*cases[:begin], *mixed] if match in str(case)]
    return found[first : None if count is None else first + count]
