"""``python -m xmc_tf.sequences.predict``: predict the next items of histories."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json
from xmc_tf.common.numbers import positive
from xmc_tf.common.process import cli
from xmc_tf.common.process.terminal import printable_json
from xmc_tf.common.regular import existing_file
from xmc_tf.params import add_flags
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.sequences.data.folder import PreparedFolder
from xmc_tf.store.files import atomic_file
from xmc_tf.store.outputs import PREDICTIONS, check_output_path

_DESCRIPTION = """Predict the next items of histories, the best first.

    python -m xmc_tf.sequences.predict -m model -q tea -q milk
    python -m xmc_tf.sequences.predict -m model -i histories.jsonl -o next.jsonl -k 20
    python -m xmc_tf.sequences.predict -m model --data data -o next.jsonl

A line of histories.jsonl is a list of item names, or an object such as {"user": "ann", "items": ["tea", "milk"]}; the
oldest item comes first. --data predicts for all users of prepared interactions. Items that the model does not know are
ignored; without any known item, the prediction is that of an empty history. The command can run on several ranks."""


History: TypeAlias = tuple[str | None, Any]  # a user, and names or numbers of items


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser("xmc_tf.sequences.predict", _DESCRIPTION)
    add = out.add_argument
    add_flags(out, model_folder={"required": True})
    add("-q", "--query", action="append", metavar="ITEM", help="item of the history; may be repeated, oldest first")
    add("-i", "--histories", metavar="FILE", help="JSON Lines file of histories, one per line")
    add("--data", metavar="DIR", help="folder of prepared interactions that the model was trained on")
    add("-o", "--output", metavar="FILE", help="JSON Lines file to write (default: print the lines)")
    add("-k", "--only-topk", type=positive, default=10, metavar="INT", help="number of items to predict")
    add("--batch-size", type=positive, default=256, metavar="INT", help="histories in a batch, per rank")
    add_flags(out, "force", "verbose_level")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    flags = {"-q": arguments.query, "-i": arguments.histories, "--data": arguments.data}
    sources = [flag for flag, value in flags.items() if value]
    if len(sources) != 1:
        raise InputError(
            "cannot tell which histories to predict",
            expected="one of -q, -i and --data",
            received=" and ".join(sources) or "none",
        )
    world = choose_communicator()
    cli.set_verbosity(arguments.verbose_level if world.rank == 0 else 0)
    inputs = {"-i": arguments.histories, "--data": arguments.data}
    run_on_all_ranks(
        world, lambda: check_output_path("-o", arguments.output, inputs, PREDICTIONS, force=arguments.force)
    )
    data = run_on_all_ranks(world, lambda: PreparedFolder(arguments.data) if arguments.data else None)
    from xmc_tf.collective.strategy import CollectiveStrategy
    from xmc_tf.sequences.model.folder import check_same_items, load_model
    from xmc_tf.sequences.model.ranking import Predictor

    model, names = load_model(arguments.model_folder, CollectiveStrategy(world))
    if data is not None:
        run_on_all_ranks(world, lambda: check_same_items(names, data))
    predictor = Predictor(model, names, arguments.only_topk)
    given = _of_data(data) if data is not None else _of_arguments(arguments)
    batch = arguments.batch_size * world.size
    writes = arguments.output and world.rank == 0
    with (
        atomic_file(arguments.output) if writes else nullcontext() as path,
        open(path, "w", encoding="utf-8") if path else nullcontext(sys.stdout) as out,
    ):
        while histories := run_on_all_ranks(world, lambda: list(islice(given, batch))):
            first, last = (len(histories) * rank // world.size for rank in (world.rank, world.rank + 1))
            own = histories[first:last]
            predict = predictor.of_names if data is None else predictor.of_numbers
            gathered = world.gather([(one.items, one.scores) for one in predict([items for _, items in own])])
            if world.rank == 0:
                for (user, _), (items, scores) in zip(histories, chain(*gathered), strict=True):
                    answer = {"items": items, "scores": [round(score, 5) for score in scores]}
                    named = answer if user is None else {"user": user, **answer}
                    out.write(printable_json(named) + "\n")


def _of_data(data: PreparedFolder) -> Iterator[History]:
    for part in data.parts():
        for number, user in enumerate(part.users):
            items = np.asarray(part.items[part.splits[number] : part.splits[number + 1]])
            yield user.decode("utf-8", errors="replace"), items


def _of_arguments(arguments: argparse.Namespace) -> Iterator[History]:
    if arguments.query:
        yield None, arguments.query
        return
    path = existing_file(arguments.histories, "histories")
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _history(parse_json(line, of=f"{path}, line {number}", top=None), f"{path}, line {number}")


def _history(value: Any, place: str) -> History:
    items = value.get("items") if isinstance(value, dict) else value
    if not isinstance(items, list) or not all(isinstance(item, str | int) for item in items):
        raise InputError(
            f"{place} is not a history",
            expected='a list of item names, or {"user": "ann", "items": ["tea", "milk"]}',
            received=json.dumps(value)[:80],
        )
    user = value.get("user") if isinstance(value, dict) else None
    return None if user is None else str(user), [str(item) for item in items]


if __name__ == "__main__":
    cli.run(main)
