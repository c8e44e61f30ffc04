"""``python -m xmc_tf.labels.remove``: remove labels from a linear model."""

import argparse
from collections.abc import Sequence

from xmc_tf.common.process import cli
from xmc_tf.data import load_names
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import add_flags
from xmc_tf.store.outputs import claimed_model

_DESCRIPTION = """Remove labels from a linear model, without training.

    python -m xmc_tf.labels.remove -m model names.txt -o model-2

The labels after them get lower numbers. The scores of the other labels do not change, but if label names are evidence,
their probabilities can change a little, because they also depend on the other candidates of a text."""


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser("xmc_tf.labels.remove", _DESCRIPTION, usage="%(prog)s -m MODEL NAMES [-o OUTPUT]")
    out.add_argument("names", metavar="NAMES", help="file of the names of the labels to remove, one per line")
    add_flags(out, model_folder={"required": True})
    add_flags(out, "output", "verbose_level")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    cli.set_verbosity(arguments.verbose_level)
    with claimed_model(arguments.model_folder, arguments.output, {"NAMES": arguments.names}) as folder:
        model = XRLinear.load(arguments.model_folder)
        smaller = model.without_labels(load_names(arguments.names))
        smaller.save(folder)
    print(f"{folder}: {smaller.nr_labels:,} labels, {model.nr_labels - smaller.nr_labels:,} removed")


if __name__ == "__main__":
    cli.run(main)
