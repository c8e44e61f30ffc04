"""The cost of a checkpoint of an encoder in training: all arrays in few files, compared with one file per array.

    python -m tests.benchmarks.checkpoint_speed [--hidden 384] [--layers 6] [--rounds 5] [--folder DIR]

A BERT with what Adam keeps for it and a label head of 2,617 rows, saved by one process as fine-tuning does; both ways
in turn, so that what else the machine does hits both, into a folder of DIR (the temporary one), whose disk is what is
measured. Every save replaces the one before. Prints one JSON line.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from transformers import BertConfig

from xmc_tf.collective.checkpoints.checkpoint import save_tables
from xmc_tf.collective.checkpoints.shard_files import write_shard
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.encoder import Encoder
from xmc_tf.ranks.solo import Solo

LABELS = 2617


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--words", type=int, default=30522)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder")
    a = parser.parse_args()
    config = BertConfig(
        vocab_size=a.words, hidden_size=a.hidden, num_hidden_layers=a.layers, num_attention_heads=a.hidden // 32,
        intermediate_size=4 * a.hidden,
    )  # fmt: skip
    encoder = Encoder.from_config(config, pooling="mean")
    strategy = CollectiveStrategy(Solo())
    table = strategy.table("head", LABELS, a.hidden + 1)
    optimizer = strategy.optimizer(keras.optimizers.Adam(1e-4))
    optimizer.build([*encoder.trainable_variables, table.variable])
    variables = [*encoder.variables, *optimizer.variables]
    ways: dict[str, Callable[[Path], None]] = {
        "packed": lambda folder: packed(folder, table, variables),
        "one_file_an_array": lambda folder: one_file_an_array(folder, table, variables),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    files = {}
    with tempfile.TemporaryDirectory(prefix="xmc-tf-bench-", dir=a.folder) as place:
        for number in range(a.rounds + 1):
            for way, save in ways.items():
                begun = time.perf_counter()
                save(Path(place) / way)
                if number:  # the first has nothing to replace
                    seconds[way].append(time.perf_counter() - begun)
                files[way] = sum(path.is_file() for path in (Path(place) / way).rglob("*"))
    middle = {way: statistics.median(taken) for way, taken in seconds.items()}
    print(
        json.dumps(
            {
                "figure": "checkpoint_speed",
                "mib": round(sum(4 * int(np.prod(one.shape)) for one in [*variables, *3 * [table.variable]]) / 2**20),
                "arrays": len(variables) + 3,
                "files": files,
                "seconds": {way: round(value, 3) for way, value in middle.items()},
                "times_as_fast": round(middle["one_file_an_array"] / middle["packed"], 2),
                "tensorflow": tf.__version__,
            }
        ),
        flush=True,
    )


def packed(folder: Path, table: ShardedTable, variables: list[tf.Variable]) -> None:
    """Save all arrays in few files, as the package does."""
    save_tables(folder, [table], Solo(), {str(n): one.numpy for n, one in enumerate(variables)})


def one_file_an_array(folder: Path, table: ShardedTable, variables: list[tf.Variable]) -> None:
    """Save each replicated array in its own file, flushed to the disk."""
    beside = folder / f"beside-{time.monotonic_ns()}"
    beside.mkdir(parents=True)
    for number, one in enumerate(variables):
        flat = one.numpy().reshape(-1)
        write_shard(
            beside / f"{number:05d}.npy", lambda low, high, flat=flat: flat[low:high], 0, len(flat), (), flat.dtype
        )
    save_tables(folder, [table], Solo())
    for old in folder.glob("beside-*"):
        if old != beside:
            shutil.rmtree(old)


if __name__ == "__main__":
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    main()
