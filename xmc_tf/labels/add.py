"""``python -m xmc_tf.labels.add``: add labels to a trained model, which then finds them by their names in texts."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.process import cli
from xmc_tf.data import load_names
from xmc_tf.label_names import label_vocabulary
from xmc_tf.models.folder import read_metadata, read_names
from xmc_tf.models.incremental.added_labels import add_labels, check_new, only_new
from xmc_tf.params import add_flags
from xmc_tf.store.outputs import check_output_folder

_SHOWN = 10
_DESCRIPTION = """Add labels to a trained model, without retraining. The model finds them by their names in texts.

    python -m xmc_tf.labels.add -m model names.txt -o model-2
Show what would be added:
    python -m xmc_tf.labels.add -m model names.txt --dry-run

The model must have been trained with label names. The probabilities of its other labels hardly change. If you have
documents with the new labels, training on them gives better results."""


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser("xmc_tf.labels.add", _DESCRIPTION, usage="%(prog)s -m MODEL NAMES -o OUTPUT [options]")
    out.add_argument("names", metavar="NAMES", help="file of names to add: a label per line, other names after tabs")
    add_flags(out, model_folder={"required": True})
    out.add_argument("-o", "--output", metavar="DIR", help="folder of the new model; unchanged files are linked")
    out.add_argument("--skip-known", action="store_true", help="leave out names that the model has already")
    out.add_argument("--dry-run", action="store_true", help="show what would be added, and write nothing")
    add_flags(out, "verbose_level")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    cli.set_verbosity(arguments.verbose_level)
    if not arguments.output and not arguments.dry_run:
        raise InputError("no output is given", expected="-o DIR", fix="add -o, or --dry-run to write nothing")
    if arguments.output:
        check_output_folder("-o", arguments.output, {"-m": arguments.model_folder, "NAMES": arguments.names})
    lines = load_names(arguments.names)
    model = Path(arguments.model_folder)
    names = read_names(model, read_metadata(model).nr_labels) or []
    new = only_new(lines, names) if arguments.skip_known else lines
    if arguments.dry_run:
        check_new(label_vocabulary(new).preferred, names)
        shown = [f"  {len(names) + at:>9,}  {line}" for at, line in enumerate(new[:_SHOWN])]
        more = [f"  … {len(new) - _SHOWN:,} more"] if len(new) > _SHOWN else []
        heading = f"would add {len(new):,} labels to the {len(names):,} of {model}:"
        print("\n".join([heading, *shown, *more]))
    else:
        count = add_labels(model, new, arguments.output)
        print(f"{arguments.output}: {count:,} labels, {len(new):,} of them added")
    if len(new) < len(lines):
        print(f"left out {len(lines) - len(new):,} names that the model has already")


if __name__ == "__main__":
    cli.run(main)
