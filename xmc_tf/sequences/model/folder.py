"""Save a sequence model to a folder, load it on any number of ranks, and export it as a SavedModel."""

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import tensorflow as tf

from xmc_tf.collective.checkpoints.checkpoint import load_tables, save_tables
from xmc_tf.collective.saved_model import Signature
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.common.errors import InputError
from xmc_tf.params import SequenceParams
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.sequences.data.batches import MASK, PAD
from xmc_tf.sequences.data.folder import PreparedFolder, write_names
from xmc_tf.sequences.model.ranking import best_items
from xmc_tf.sequences.model.recommender import Recommender
from xmc_tf.store.checksums import checksum_of, record_files
from xmc_tf.store.kinds import FolderKind, read_header
from xmc_tf.store.publishing import publish

FORMAT = "xmc_tf.sequences.model"
VERSION = 1
HEADER, ITEMS, WEIGHTS = "params.json", "items.txt", "weights"

SEQUENCE_MODEL = FolderKind(
    "a sequence model of xmc_tf", header=HEADER, recognises=lambda header: header.get("format") == FORMAT,
    parts=rf"params\.json|items\.txt|{WEIGHTS}",
)  # fmt: skip


def save_model(folder: str | Path, model: Recommender, names: Sequence[str], metrics: dict[str, Any]) -> None:
    """Write a trained model to a folder that all hosts can access. All ranks must call this function."""
    world, folder = model.strategy.communicator, Path(folder)
    with publish(folder, SEQUENCE_MODEL) if world.rank == 0 else nullcontext() as part:
        part = Path(world.broadcast(str(part)))
        values = {f"model/{number:05d}": one.numpy for number, one in enumerate(model.replicated)}
        save_tables(part / WEIGHTS, [model.table], world, values)

        def finish() -> None:
            if world.rank == 0:
                write_names(part / ITEMS, [name.encode() for name in names])
                header: dict[str, Any] = {
                    "format": FORMAT, "version": VERSION, "params": model.params.to_json(), "items": model.nr_items,
                    "metrics": metrics, "files": record_files(part),
                }  # fmt: skip
                header["checksum"] = checksum_of(header)
                (part / HEADER).write_text(json.dumps(header, indent=1) + "\n", encoding="utf-8")

        run_on_all_ranks(world, finish)
    world.barrier()


def load_model(folder: str | Path, strategy: CollectiveStrategy) -> tuple[Recommender, list[str]]:
    """Return a trained model and the names of its items, on any number of ranks. All ranks must call this function."""
    folder, world = Path(folder), strategy.communicator
    fix = "copy the model again, or train it with python -m xmc_tf.sequences.train"
    header = run_on_all_ranks(
        world, lambda: read_header(folder / HEADER, FORMAT, VERSION, of="a sequence model", fix=fix)
    )
    # The loss is not needed, nor the counts of its sampler. The table is sharded in any case.
    settings = {"loss": "full", "route": "features", "model_parallel": True}
    params = SequenceParams.from_json({**header["params"], **settings})
    model = Recommender(strategy, params, int(header["items"]))
    found = load_tables(folder / WEIGHTS, [model.table], world, slots=False)
    for number, variable in enumerate(model.replicated):
        value = found.get(f"model/{number:05d}")
        if value is None or value.shape != tuple(variable.shape):
            raise InputError(
                f"{folder / WEIGHTS} does not fit {HEADER}: {variable.name}",
                expected=f"shape {tuple(variable.shape)}",
                received="nothing" if value is None else f"shape {value.shape}",
                fix="copy the model again",
            )
        variable.assign(value)
    return model, run_on_all_ranks(world, lambda: _read_names(folder / ITEMS, model.nr_items))


def _read_names(path: Path, nr_items: int) -> list[str]:
    names = path.read_bytes().decode(errors="replace").split("\n")[:-1]
    if len(names) != nr_items:
        raise InputError(
            f"{path} does not fit {HEADER}", expected=f"{nr_items:,} names", received=f"{len(names):,}",
            fix="copy the model again",
        )  # fmt: skip
    return names


def check_same_items(names: Sequence[str], data: PreparedFolder) -> None:
    """Raise an error if the data number the items differently from the model."""
    theirs = data.item_names()
    if list(names) == theirs:
        return
    at = next((at for at, (one, other) in enumerate(zip(names, theirs, strict=False)) if one != other), 0)
    same_length = len(names) == len(theirs)
    raise InputError(
        f"{data.folder} has different items from the model, or in a different order",
        expected=f"item {at} is {names[at]!r}" if same_length else f"{len(names):,} items",
        received=repr(theirs[at]) if same_length else f"{len(theirs):,}",
        fix="use the folder that the model was trained on",
    )


def export_model(folder: str | Path, model: Recommender, model_folder: str | Path, k: int) -> Path:
    """Write a SavedModel for TensorFlow Serving. All ranks must call this function.

    The input of ``serving_default`` is ``history``: item names of each request, ``[requests, any]``, the oldest first.
    Empty strings are padding and may be anywhere; unknown names are left out. The outputs are ``items``, ``numbers``
    and ``scores``, ``[requests, k]``.
    """
    names = str(Path(model_folder) / ITEMS)
    lines = tf.lookup.TextFileIndex
    numbers = tf.lookup.StaticHashTable(
        tf.lookup.TextFileInitializer(names, tf.string, lines.WHOLE_LINE, tf.int64, lines.LINE_NUMBER), PAD
    )
    back = tf.lookup.StaticHashTable(
        tf.lookup.TextFileInitializer(names, tf.int64, lines.LINE_NUMBER, tf.string, lines.WHOLE_LINE), ""
    )

    def serve(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        rows = inputs_of(model, numbers.lookup(inputs["history"]))
        best = best_items(model.table, model.last_vectors(rows), k)
        return {"items": back.lookup(best.items), "numbers": best.items, "scores": best.scores}

    signature = Signature(serve, {"history": tf.TensorSpec([None, None], tf.string, "history")})
    return model.strategy.export_saved_model(folder, {"serving_default": signature}, track=[numbers, back])


def inputs_of(model: Recommender, numbers: tf.Tensor) -> tf.Tensor:
    """Return model inputs for histories of item numbers, ``[histories, any]``. Entries of ``PAD`` are left out."""
    width = model.params.max_len - (not model.shape.causal)
    kept = tf.ragged.boolean_mask(numbers, numbers >= 0)
    ends, begins = kept.row_splits[1:], kept.row_splits[:-1]
    at = ends[:, None] + tf.range(-width, 0, dtype=tf.int64)
    there = at >= begins[:, None]
    flat = tf.concat([kept.flat_values, [0]], axis=0)
    rows = tf.where(there, tf.gather(flat, tf.where(there, at, 0)), PAD)
    if model.shape.causal:
        return rows
    return tf.concat([rows, tf.fill([tf.shape(rows)[0], 1], tf.constant(MASK, tf.int64))], axis=1)
