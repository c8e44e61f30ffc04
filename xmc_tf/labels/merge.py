"""``python -m xmc_tf.labels.merge``: merge several labels into one."""

import argparse
from collections.abc import Sequence

from xmc_tf.common.compiled import announce_compiling
from xmc_tf.common.process import cli
from xmc_tf.data import load_names
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import add_flags
from xmc_tf.store.outputs import claimed_model

_DESCRIPTION = """Merge labels of a linear model: documents with any of them get the merged label.

    python -m xmc_tf.labels.merge -m model groups.txt -o model-2

Each line of groups.txt has the name of the label that stays and, after tabs, the names of labels to merge into it. They
become its alternative names if label names are evidence. Clusters that change are trained again on all their documents,
so the model must have been trained with --keep-training-data."""


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser("xmc_tf.labels.merge", _DESCRIPTION, usage="%(prog)s -m MODEL GROUPS [-o OUTPUT] [options]")
    out.add_argument(
        "groups", metavar="GROUPS", help="file: on each line, a label to keep and, after tabs, labels to merge into it"
    )
    add_flags(out, model_folder={"required": True})
    add_flags(out, "output", "threads", "verbose_level")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    cli.set_verbosity(arguments.verbose_level)
    announce_compiling()
    with claimed_model(arguments.model_folder, arguments.output, {"GROUPS": arguments.groups}) as folder:
        groups = [line.split("\t") for line in load_names(arguments.groups)]
        model = XRLinear.load(arguments.model_folder)
        merged = model.with_merged_labels(groups, threads=arguments.threads)
        merged.save(folder)
    print(f"{folder}: {merged.nr_labels:,} labels, {model.nr_labels:,} before")


if __name__ == "__main__":
    cli.run(main)
