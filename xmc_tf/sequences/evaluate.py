"""``python -m xmc_tf.sequences.evaluate``: measure a sequence model on held-out items."""

import argparse
import json
from collections.abc import Sequence

from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import positive
from xmc_tf.common.process import cli
from xmc_tf.params import add_flags
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.sequences.data.batches import HeldOut
from xmc_tf.sequences.data.folder import PARTS, PreparedFolder

_DESCRIPTION = """Measure a sequence model, which predicts the last item of each user from those before it.

    python -m xmc_tf.sequences.evaluate -m model --data data

Recall@k is the share of users whose held-out item is among the k best of all items; NDCG@k and MRR also depend on its
rank. Among equal scores, the more frequent item comes first. The command can run on several ranks."""


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser("xmc_tf.sequences.evaluate", _DESCRIPTION)
    add = out.add_argument
    add_flags(out, model_folder={"required": True})
    add("--data", required=True, metavar="DIR", help="prepared interactions that the model was trained on")
    add("--eval-data", default=PARTS, metavar="PATTERN", help="parts of the data to evaluate; may contain wildcards")
    add("--split", choices=("test", "validation"), default="test",
        help="item to predict for each user: the last (test) or the second to last (validation)")  # fmt: skip
    add("--batch-size", type=positive, default=256, metavar="INT", help="users in a batch, per rank")
    add("--json", action="store_true", help="print the metrics as JSON")
    add_flags(out, "verbose_level")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    world = choose_communicator()
    cli.set_verbosity(arguments.verbose_level if world.rank == 0 else 0)
    data = run_on_all_ranks(world, lambda: PreparedFolder(arguments.data))
    parts = run_on_all_ranks(world, lambda: data.parts(arguments.eval_data))
    from xmc_tf.collective.strategy import CollectiveStrategy
    from xmc_tf.sequences.model.folder import check_same_items, load_model
    from xmc_tf.sequences.model.ranking import Ranker

    model, names = load_model(arguments.model_folder, CollectiveStrategy(world))
    run_on_all_ranks(world, lambda: check_same_items(names, data))
    batch = arguments.batch_size * world.size
    held_out = HeldOut(parts, model.shape, arguments.split, batch, world.rank, world.size)
    if not held_out.users:
        raise InputError(f"{arguments.data} has no users to evaluate", expected="users with at least three items")
    metrics = Ranker(model).metrics(held_out)
    if world.rank == 0:
        rows = [f"{name:<10} {value:.4f}" for name, value in metrics.items()]
        text = "\n".join([f"{held_out.users:,} users, {data.nr_items:,} items, {arguments.split}", *rows])
        print(json.dumps({"users": held_out.users, **metrics}) if arguments.json else text)


if __name__ == "__main__":
    cli.run(main)
