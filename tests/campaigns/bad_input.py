"""Thousands of command lines with bad input: ``python -m tests.campaigns.bad_input [--from N] [--cases N]``.

Every command line must end by itself with exit status 0, 1 or 2, without a traceback, and must leave the files that it
was given as they were. Prints what fails at once, how far it is, and at the end one line of JSON with the counts. The
order is always the same: first all that was broken once, then the others at random. ``--from 500 --cases 500`` runs the
second 500 of it, so that a long campaign can be run in pieces.
"""

import argparse
import importlib
import json
import os
import random
import resource
import sys
import tempfile
from pathlib import Path

from tests.campaigns import growing_commands, once_broken, table_commands
from tests.campaigns.command_lines import all_cases
from tests.campaigns.trial import Case, run

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


def processor_seconds() -> float:
    """Return the processor time of this process and of all that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    """Run the campaign; exit status 1 where a command line failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, help="how many; default: all")
    parser.add_argument("--from", dest="first", type=int, default=0, help="how many to skip; default: none")
    parser.add_argument("--match", default="", help="only command lines that hold these words")
    arguments = parser.parse_args()
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    counts = dict.fromkeys(
        ("tracebacks", "hangs", "signals", "other_codes", "files_lost", "control_characters", "silent", "ok"), 0
    )
    refused = 0
    cases = chosen(arguments.cases, arguments.first, arguments.match)
    with tempfile.TemporaryDirectory(prefix="bad-input-") as name:
        inputs = Path(name, "in")
        inputs.mkdir()
        warm(inputs)
        print(f"the inputs took {processor_seconds():.0f} s of the processor", file=sys.stderr, flush=True)
        for number, case in enumerate(cases, 1):
            outcome = run(case, inputs)
            counts[outcome.verdict] += 1
            refused += outcome.refused
            if outcome.verdict != "ok":
                said = outcome.said.replace("\n", "\n    ")
                print(f"{outcome.verdict}: {case}\n    {said}", file=sys.stderr, flush=True)
            if number % 100 == 0:
                done = f"{number} of {len(cases)} command lines (up to --from {arguments.first + number})"
                print(f"{done}, {number - counts['ok']} failed", file=sys.stderr, flush=True)
    used = round(processor_seconds())
    print(json.dumps({"commands": len(cases), **counts, "refused": refused, "processor_seconds": used}))
    sys.exit(counts["ok"] != len(cases))


if __name__ == "__main__":
    main()
