"""Recall of a sequence model on histories of a Markov chain, compared with the best that is possible.

    python -m benchmarks.sequences_ceiling [--items 100000] [--users 300000] [--epochs 3]

Prints one JSON line. Items are in clusters of 100. After an item of a cluster follows, in 85 % of cases, one of the
cluster's successor, otherwise one of any cluster; in a cluster, items are drawn in proportion to 1 / their rank. So the
best ten items are those of the successor, and their probability is the ceiling of Recall@10. The rarest items occur
about ten times in the histories of a default run; with fewer, the model memorizes the histories. Only the end of the
training is validated, because ranking all items is slow.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SURE, LENGTH, K = 0.85, 20, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--users", type=int, default=300_000)
    parser.add_argument("--cluster", type=int, default=100, help="items in a cluster")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--negatives", type=int, default=1024)
    parser.add_argument("--model", choices=["sasrec", "bert4rec"], default="sasrec")
    a = parser.parse_args()
    from xmc_tf.sequences import train
    from xmc_tf.sequences.data.preparation import prepare

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare([write(folder / "i.csv", a.users, a.items, a.cluster)], folder / "data")
        settings = {
            "data_dir": folder / "data", "model_dir": folder / "model", "model": a.model, "max_len": LENGTH,
            "sliding_step": LENGTH, "embed_dim": 64, "n_layers": 1, "dropout": 0.0, "loss": "sampled",
            "negatives": a.negatives, "sampling": "frequency", "n_epochs": a.epochs, "learning_rate": 1e-2,
            "lr_schedule": "linear", "eval_data": "part_00000.npz", "eval_steps": 1_000_000_000,
            "per_device_train_batch_size": 128, "patience": 0,
        }  # fmt: skip
        start = time.perf_counter()
        train.main([word for key, value in settings.items() for word in ("--set", f"{key}={value}")])
        seconds = time.perf_counter() - start
        metrics = json.loads((folder / "model" / "params.json").read_text())["metrics"]
    shares = 1.0 / np.arange(1, a.cluster + 1)
    ceiling = (SURE + (1 - SURE) * a.cluster / a.items) * shares[:K].sum() / shares.sum()
    recall = metrics["test"][f"Recall@{K}"]
    figures = {
        "figure": "sequences_ceiling", "model": a.model, "items": a.items, "cluster": a.cluster, "users": a.users,
        "negatives": a.negatives, "steps": metrics["steps"], "recall_at_10": round(recall, 4),
        "ceiling": round(ceiling, 4), "ratio": round(recall / ceiling, 3), "aim": 0.95, "train_seconds": round(seconds),
    }  # fmt: skip
    print(json.dumps(figures))
    sys.exit(0 if recall >= 0.95 * ceiling else 1)


def write(path: Path, users: int, items: int, size: int) -> Path:
    """Write the histories as a CSV; a cluster has ``size`` items."""
    draw = np.random.default_rng(0)
    clusters = items // size
    successor = draw.permutation(clusters)
    shares = 1.0 / np.arange(1, size + 1)
    ends = np.cumsum(shares / shares.sum())
    cluster = draw.integers(0, clusters, users)
    with path.open("w") as file:
        file.write("user,item,time\n")
        for time_ in range(LENGTH):
            if time_:
                stays = draw.random(users) < SURE
                cluster = np.where(stays, successor[cluster], draw.integers(0, clusters, users))
            within = np.minimum(np.searchsorted(ends, draw.random(users)), size - 1)
            rows = enumerate((cluster * size + within).tolist())
            file.writelines(f"u{user},i{item},{time_}\n" for user, item in rows)
    return path


if __name__ == "__main__":
    main()
