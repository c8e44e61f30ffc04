"""Thousands of command lines with bad input: ``python -m tests.campaigns.bad_input [--cases N] [--match WORDS]``.

Every command line must end by itself with exit status 0, 1 or 2, without a traceback, and must leave the files that it
was given as they were. Prints one line of JSON with the counts and lists what failed.
"""

import argparse
import importlib
import json
import os
import random
import sys
import tempfile
from pathlib import Path

from tests.campaigns import growing_commands, table_commands
from tests.campaigns.command_lines import all_cases
from tests.campaigns.trial import Case, run

_LINEAR = [
    "linear.train", "linear.predict", "linear.evaluate", "evaluate", "tree.show", "check", *table_commands.BASE,
    *growing_commands.BASE,
]  # fmt: skip


def make_inputs(folder: Path) -> None:
    """Create the valid files, a model and its predictions."""
    from tests.linear.command_data import run_predict, run_train, write_corpus

    write_corpus(folder)
    table_commands.make_inputs(folder)
    growing_commands.make_inputs(folder)
    (folder / "params.json").write_text("{}")
    run_train("-x", folder / "X.npz", "-y", folder / "Y.npz", "-m", folder / "model", "--max-leaf-size", 4,
              "--nr-splits", 2, "--labels", folder / "labels.txt", "--verbose-level", 0)  # fmt: skip
    run_predict("-m", folder / "model", "-x", folder / "X.npz", "-o", folder / "P.npz", "--verbose-level", 0)


def warm(inputs: Path) -> None:
    """Load what the forked commands load, so that no child has to."""
    for command in _LINEAR:
        importlib.import_module(f"xmc_tf.{command}")
    make_inputs(inputs)


def chosen(count: int | None, match: str = "") -> list[Case]:
    """Return all cases that match, or a fixed sample of them, spread evenly over the commands."""
    cases = [case for case in all_cases() if match in str(case)]
    if count is None or count >= len(cases):
        return cases
    return random.Random(16).sample(cases, count)


def main() -> None:
    """Run the campaign; exit status 1 where a command line failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, help="how many, drawn at random but always the same; default: all")
    parser.add_argument("--match", default="", help="only command lines that hold these words")
    arguments = parser.parse_args()
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    counts = dict.fromkeys(
        ("tracebacks", "hangs", "signals", "other_codes", "files_lost", "control_characters", "silent", "ok"), 0
    )
    cases = chosen(arguments.cases, arguments.match)
    with tempfile.TemporaryDirectory(prefix="bad-input-") as name:
        inputs = Path(name, "in")
        inputs.mkdir()
        warm(inputs)
        for number, case in enumerate(cases):
            outcome = run(case, inputs)
            counts[outcome.verdict] += 1
            if outcome.verdict != "ok":
                print(
                    f"{outcome.verdict}: {case}\n    " + outcome.said.replace("\n", "\n    "),
                    file=sys.stderr,
                    flush=True,
                )
            if number % 100 == 99:
                print(f"{number + 1} of {len(cases)} command lines", file=sys.stderr, flush=True)
    print(json.dumps({"commands": len(cases), **counts}))
    sys.exit(counts["ok"] != len(cases))


if __name__ == "__main__":
    main()
