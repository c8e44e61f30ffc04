"""``python -m xmc_tf.sequences.train``: train a sequence model, on one or several ranks."""

import argparse
import dataclasses
import json
import logging
import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.common.process import cli
from xmc_tf.common.process.quiet import muted_stderr
from xmc_tf.common.process.resuming import finished, resume_hint
from xmc_tf.params import SequenceParams, add_flags, load_sequence_params
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.claiming import claimed_by_all
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.sequences.data.batches import HeldOut, TrainBatches
from xmc_tf.sequences.data.folder import HEADER, PreparedFolder
from xmc_tf.store.files import content_hash
from xmc_tf.store.publishing import named_folder

_LOG = logging.getLogger(__name__)
_DESCRIPTION = """Train a sequence model (BERT4Rec or SASRec) that predicts the next item of a history.

    python -m xmc_tf.sequences.train --config configs/bert4rec.toml
    horovodrun -np 4 python -m xmc_tf.sequences.train --config configs/bert4rec.toml
    python -m xmc_tf.launch --np 2 -m xmc_tf.sequences.train --config configs/sasrec.toml

The configuration names the folder that xmc_tf.sequences.prepare wrote (data_dir) and that of the model (model_dir).
Rerun an interrupted command to resume, on the same or a different number of ranks."""


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser("xmc_tf.sequences.train", _DESCRIPTION)
    out.add_argument("--config", metavar="FILE", help="parameters: a TOML file")
    out.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="replace a parameter; may be repeated"
    )
    out.add_argument("--show-config", action="store_true", help="print all parameters as TOML, and exit")
    add_flags(out, "verbose_level")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    if arguments.show_config:
        print(_as_toml(_params(arguments)))
        return
    if not arguments.config and not arguments.set:
        raise InputError(
            "--config is missing",
            expected="a TOML file of parameters",
            fix="python -m xmc_tf.sequences.train --show-config prints one with all defaults",
        )
    communicator = choose_communicator()
    # Rank 0 logs for all.
    cli.set_verbosity(arguments.verbose_level if communicator.rank == 0 else 0)
    if communicator.rank == 0:
        cli.on_interrupt(resume_hint)
    params = run_on_all_ranks(communicator, lambda: _params(arguments))
    folder = named_folder(params.model_dir)
    work = folder.with_name(f"{folder.name}.work")
    with muted_stderr():
        from xmc_tf.sequences.model.folder import SEQUENCE_MODEL
    with claimed_by_all(communicator, folder, SEQUENCE_MODEL, work, fix="give another model_dir"):
        _train(communicator, params, folder, work)


def _train(communicator: Communicator, params: SequenceParams, folder: Path, work: Path) -> None:
    from xmc_tf.collective.strategy import CollectiveStrategy
    from xmc_tf.sequences.model.folder import save_model
    from xmc_tf.sequences.model.ranking import Ranker
    from xmc_tf.sequences.model.recommender import Recommender, shape_of
    from xmc_tf.sequences.training import train_recommender

    rank, size, shape = communicator.rank, communicator.size, shape_of(params)
    data = run_on_all_ranks(communicator, lambda: PreparedFolder(params.data_dir))
    run_on_all_ranks(communicator, lambda: _check_resumable(communicator, work, params, data))
    names = run_on_all_ranks(communicator, data.item_names)
    parts, held_out_parts = run_on_all_ranks(
        communicator, lambda: (data.parts(params.train_data), data.parts(params.eval_data))
    )
    batches = run_on_all_ranks(
        communicator,
        lambda: TrainBatches(
            parts, shape, params.sliding_step, params.per_device_train_batch_size * size, params.seed, rank, size
        ),
    )
    strategy = CollectiveStrategy(communicator, seed=params.seed, wire=params.wire)  # type: ignore[arg-type]
    model = Recommender(strategy, params, data.nr_items, data.item_counts())
    _LOG.info(
        "%s: %s items, %s sequences of at most %d, %s steps per epoch, %s",
        params.model, f"{data.nr_items:,}", f"{batches.sequences:,}", params.max_len, f"{batches.steps:,}",
        f"{size} ranks" if size > 1 else "one process",
    )  # fmt: skip
    batch = params.per_device_eval_batch_size * size
    held_out = {split: HeldOut(held_out_parts, shape, split, batch, rank, size) for split in ("validation", "test")}
    ranker = Ranker(model)
    validate = (lambda: ranker.metrics(held_out["validation"])) if held_out["validation"].users else None
    result = train_recommender(model, batches, work, validate)
    test = ranker.metrics(held_out["test"]) if held_out["test"].users else {}
    save_model(folder, model, names, {"steps": result.steps, "test": test})
    finished()
    if rank == 0:
        if result.stopped_early:
            _LOG.info("stopped after %d steps: no better validation among the last %d", result.steps, params.patience)
        print(f"{folder}: test " + ", ".join(f"{name} {value:.4f}" for name, value in test.items()))
        shutil.rmtree(work)


def _params(arguments: argparse.Namespace) -> SequenceParams:
    params = load_sequence_params(arguments.config) if arguments.config else SequenceParams()
    return with_settings(params, arguments.set)


def with_settings(params: SequenceParams, settings: Sequence[str]) -> SequenceParams:
    """Return the parameters changed by ``KEY=VALUE`` settings. A value is TOML, or a text without quotes."""
    replaced: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting} has no value", expected="KEY=VALUE, such as n_epochs=5")
        try:
            replaced |= tomllib.loads(f"{key} = {value}")
        except RecursionError:
            raise InputError(f"--set {key}: too many brackets", expected="a number or a text") from None
        except tomllib.TOMLDecodeError:
            replaced[key.strip()] = value.strip()
    return SequenceParams.from_json({**params.to_json(), **replaced})


def _check_resumable(communicator: Communicator, work: Path, params: SequenceParams, data: PreparedFolder) -> None:
    """Raise an error if parameters or data differ from those of an interrupted run. If there is none, record them."""
    if communicator.rank != 0:
        return
    free = {"per_device_train_batch_size", "per_device_eval_batch_size", "num_workers", "model_parallel", "route",
            "wire", "logging_steps", "logdir", "n_epochs", "max_steps", "patience", "eval_steps"}  # fmt: skip
    fixed = {name: value for name, value in params.to_json().items() if name not in free}
    fixed |= {"batch": params.per_device_train_batch_size * communicator.size, "items": data.nr_items}
    fixed["data"] = content_hash(data.folder / HEADER)  # which has the checksums of the other files
    path = work / "training.json"
    if path.exists():
        before = read_json(path, fix=f"remove {work} to start again")
        if different := [name for name in fixed if before.get(name) != fixed[name]]:
            name = different[0]
            what = "total batch size" if name == "batch" else name
            raise InputError(
                f"{work} holds an interrupted training run with a different {what}",
                expected=str(before.get(name)),
                received=str(fixed[name]),
                fix=f"restore the value to resume, or remove {work} to start again",
            )
        return
    work.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(fixed), encoding="utf-8")


def _as_toml(params: SequenceParams) -> str:
    lines = []
    for field in dataclasses.fields(params):
        value = getattr(params, field.name)
        text = json.dumps(value, ensure_ascii=False)  # JSON is TOML for these types
        line = f"{field.name} = {text}" if value is not None else f"# {field.name} ="
        lines.append(f"{line:<40} # {field.metadata['help']}")
    return "\n".join(lines)


if __name__ == "__main__":
    cli.run(main)
