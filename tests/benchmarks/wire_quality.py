"""The cost of fewer bits on the wire: the same sequence model, trained on two ranks with fp32, fp16, bf16 and int8.

    python -m tests.benchmarks.wire_quality [--items 2000] [--users 4000] [--seeds 2]

Prints one JSON line: for each format, Recall@10 and MRR of held-out items, the loss of the last epoch, and what a rank
sends in a step. Histories are those of ``sequences_ceiling``, whose best possible Recall@10 is known. All formats are
trained from the same initial values on the same batches; with another seed, both differ, which shows the spread.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.sequences_ceiling import LENGTH, write

WORLD, BATCH = 2, 64
FORMATS = ("fp32", "fp16", "bf16", "int8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--users", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rank", metavar="FOLDER", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.rank:
        print(json.dumps(measure(Path(a.rank), a.epochs, a.seeds)))
        return
    from tests.distributed.launch import horovodrun
    from xmc_tf.sequences.data.preparation import prepare

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare([write(folder / "i.csv", a.users, a.items, 100)], folder / "data")
        words = [f"--rank={folder}", f"--epochs={a.epochs}", f"--seeds={a.seeds}"]
        run = horovodrun("module:tests.benchmarks.wire_quality", *words, world=WORLD, timeout=3600)
    figures = {"figure": "wire_quality", "ranks": WORLD, "items": a.items, "users": a.users, "epochs": a.epochs}
    print(json.dumps({**figures, **run.ranks[0].result}))


def measure(folder: Path, epochs: int, seeds: int) -> dict[str, dict[str, Any]]:
    """Return the figures of each format, with a list over the seeds."""
    from xmc_tf.collective.meters.traffic import bytes_sent
    from xmc_tf.collective.strategy import CollectiveStrategy
    from xmc_tf.params import SequenceParams
    from xmc_tf.sequences.data.batches import HeldOut, TrainBatches
    from xmc_tf.sequences.data.folder import PreparedFolder
    from xmc_tf.sequences.model.ranking import Ranker
    from xmc_tf.sequences.model.recommender import Recommender
    from xmc_tf.sequences.training.training import train_recommender

    data = PreparedFolder(folder / "data")
    found: dict[str, dict[str, Any]] = {
        wire: {"recall_at_10": [], "mrr": [], "last_loss": [], "sent_kb_per_step": 0} for wire in FORMATS
    }
    for seed in range(seeds):
        for wire, figures in found.items():
            params = SequenceParams(
                model="sasrec", embed_dim=32, n_layers=1, max_len=LENGTH, sliding_step=LENGTH, dropout=0.0,
                loss="sampled", negatives=256, sampling="frequency", n_epochs=epochs, learning_rate=1e-2,
                lr_schedule="linear", per_device_train_batch_size=BATCH, eval_steps=10**9, seed=seed, wire=wire,
            )  # fmt: skip
            strategy = CollectiveStrategy(seed=seed, wire=wire)  # type: ignore[arg-type]
            model = Recommender(strategy, params, data.nr_items, data.item_counts())
            rank, size, parts = strategy.rank(), strategy.world_size(), data.parts()
            batches = TrainBatches(parts, model.shape, LENGTH, BATCH * size, seed, rank, size)
            before = sum(bytes_sent().values())
            result = train_recommender(model, batches, folder / f"{wire}-{seed}")
            sent = sum(bytes_sent().values()) - before
            test = Ranker(model).metrics(HeldOut(parts, model.shape, "test", 256 * size, rank, size))
            figures["recall_at_10"].append(round(test["Recall@10"], 4))
            figures["mrr"].append(round(test["MRR"], 4))
            figures["last_loss"].append(round(float(np.mean(result.losses[-batches.steps :])), 4))
            figures["sent_kb_per_step"] = round(sent / result.steps / 1000)
    return found


if __name__ == "__main__":
    main()
