"""``python -m xmc_tf.sequences.export``: export a sequence model as a SavedModel for TensorFlow Serving."""

import argparse
from collections.abc import Sequence

from xmc_tf.common.numbers import positive
from xmc_tf.common.process import cli
from xmc_tf.params import add_flags
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.store.outputs import refuse_model_folder

_DESCRIPTION = """Export a sequence model as a SavedModel that TensorFlow Serving loads without this package.

    python -m xmc_tf.sequences.export -m model -o served/1

A request has "history", a matrix of item names with the oldest first, padded with empty texts. The answer has
"items", their "numbers" and "scores". On several ranks, each writes its rows of the item table."""


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser("xmc_tf.sequences.export", _DESCRIPTION)
    add = out.add_argument
    add_flags(out, model_folder={"required": True})
    add("-o", "--output", required=True, metavar="DIR", help="folder to write, named after the version: served/1")
    add("-k", "--only-topk", type=positive, default=10, metavar="INT", help="number of predicted items")
    add_flags(out, "verbose_level")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    world = choose_communicator()
    cli.set_verbosity(arguments.verbose_level if world.rank == 0 else 0)
    inputs = {"-m": arguments.model_folder}
    run_on_all_ranks(world, lambda: refuse_model_folder("-o", arguments.output, inputs, export=True))
    from xmc_tf.collective.strategy import CollectiveStrategy
    from xmc_tf.sequences.model.folder import export_model, load_model

    model, _ = load_model(arguments.model_folder, CollectiveStrategy(world))
    export_model(arguments.output, model, arguments.model_folder, arguments.only_topk)
    if world.rank == 0:
        print(f"{arguments.output}: history -> the {arguments.only_topk} next of {model.nr_items:,} items")


if __name__ == "__main__":
    cli.run(main)
