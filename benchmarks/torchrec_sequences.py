"""Steps of a recommender of histories whose table is sharded by rows over two ranks, compared with TorchRec on CPUs.

    python -m benchmarks.torchrec_sequences --peer PYTHON [--items 2000000] [--engine gloo]

PYTHON is that of a venv with torch==2.13.0+cpu, fbgemm-gpu-cpu==1.8.0, numpy, tensordict, torchmetrics==1.0.3, pyre-
extensions and tqdm, and with torchrec==1.8.0, installed by ``pip install --no-deps``. Prints one JSON line. Both sides
train the same model (``sides/two_towers.py``) with the same data, initial values and optimizer (Adagrad), on two ranks
of one thread each: TorchRec over Gloo, and ours over MPI (mpi4py), or Horovod over Gloo. Both stay loaded and take
turns, so that other load on the machine affects both; the ratio is the median of those of the rounds. The losses must
agree. Memory is the peak of a process, and its pages that no other process shares, as the ranks share those of
TensorFlow's libraries.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sides.two_towers import DIM, RATE, TABLE, WORLD, batches, dense_kernel, initial_rows, take_turns

_SIDE = Path(__file__).parent / "sides" / "torchrec_side.py"
SIDES = ("xmc_tf", "torchrec")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="a Python that has torchrec and fbgemm-gpu-cpu")
    parser.add_argument("--engine", choices=["mpi", "gloo"], default="mpi", help="of our side")
    parser.add_argument("--items", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=20, help="in a turn")
    parser.add_argument("--rank", metavar="FOLDER", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.rank:
        run_rank(Path(a.rank), a.items, a.steps)
        return
    if not a.peer:
        parser.error("--peer is required")
    with tempfile.TemporaryDirectory() as name:
        turns = measure(Path(name), a)
    # The first turn of each side traces graphs, fills caches, and is compared.
    for ours, theirs in zip(turns["xmc_tf"][0], turns["torchrec"][0], strict=True):
        # Adagrad's first update of a number is its gradient's sign, so rounding moves later losses apart.
        np.testing.assert_allclose(ours["losses"][:3], theirs["losses"][:3], rtol=1e-4)
        np.testing.assert_allclose(np.mean(ours["losses"]), np.mean(theirs["losses"]), rtol=1e-2)
    figures: dict[str, Any] = {}
    for side in SIDES:
        seconds = [np.mean([rank["seconds"] for rank in turn]) / a.steps for turn in turns[side][1:]]
        cpu = [np.mean([rank["cpu_seconds"] for rank in turn]) / a.steps for turn in turns[side][1:]]
        figures[side] = {
            "steps_per_second": round(float(1 / np.median(seconds)), 1),
            "cpu_ms_per_step": round(1000 * float(np.median(cpu)), 1),
            "peak_mb_per_rank": [round(rank["peak_mb"]) for rank in turns[side][-1]],
            "private_mb_per_rank": [round(rank["private_mb"]) for rank in turns[side][-1]],
        }
    ratio = {
        kind: round(float(np.median([_sum(t, kind) / _sum(o, kind) for o, t in _rounds(turns)])), 2)
        for kind in ("seconds", "cpu_seconds")
    }
    table_mb = round(2 * 4 * DIM * a.items / 2**20)  # with the slot
    print(json.dumps({
        "figure": "torchrec_sequences", "engine": a.engine, "items": a.items, "table_and_slot_mb": table_mb, **figures,
        "times_as_fast": ratio["seconds"], "times_as_fast_by_cpu": ratio["cpu_seconds"],
    }))  # fmt: skip


def measure(folder: Path, a: argparse.Namespace) -> dict[str, list[list[dict[str, Any]]]]:
    """Return the reports of each side's turns, by rank."""
    from tests.distributed.launch import horovodrun, mpiexec

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    peers = []
    for rank in range(WORLD):
        own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": WORLD, "LOCAL_WORLD_SIZE": WORLD}
        environment = {**os.environ, "PYTHONPATH": "", **shared, **{name: str(value) for name, value in own.items()}}
        command = [a.peer, str(_SIDE), str(folder), str(a.items), str(a.steps)]
        peers.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
    words = [f"--rank={folder}", f"--items={a.items}", f"--steps={a.steps}"]
    with ThreadPoolExecutor(1) as pool:
        launch = mpiexec if a.engine == "mpi" else horovodrun
        ours = pool.submit(launch, "module:benchmarks.torchrec_sequences", *words, world=WORLD, timeout=1800)
        try:
            turns: dict[str, list[list[dict[str, Any]]]] = {side: [] for side in SIDES}
            for turn in range(a.rounds + 1):
                for side in SIDES if turn % 2 else SIDES[::-1]:
                    (folder / f"go-{side}-{turn}").touch()
                    turns[side].append([_report(folder / f"done-{side}-{turn}-{r}", ours, peers) for r in range(WORLD)])
        finally:
            (folder / "end").touch()
            for peer in peers:
                peer.wait()
        ours.result()
    return turns


def run_rank(folder: Path, rows: int, steps: int) -> None:
    """Run a rank of our side."""
    import keras
    import tensorflow as tf

    from xmc_tf import CollectiveStrategy, EmbeddingTable

    strategy = CollectiveStrategy()
    table = EmbeddingTable(TABLE, rows, DIM, ("history", "item"), "sum", initial_rows, placement="rows")
    layer = strategy.embeddings([table], slots=1)
    with strategy.scope():
        kernel, bias = tf.Variable(dense_kernel()), tf.Variable(tf.zeros([DIM]))
    inner = keras.optimizers.Adagrad(RATE, initial_accumulator_value=0.0, epsilon=1e-20)
    optimizer, variables = strategy.optimizer(inner), [*layer.trainable_variables, kernel, bias]

    @tf.function(autograph=False)
    def train(history: tf.Tensor, item: tf.Tensor, clicks: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            found = layer({"history": history, "item": item})
            scores = tf.reduce_sum(tf.nn.relu(tf.matmul(found["history"], kernel) + bias) * found["item"], axis=1)
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(clicks, scores))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    data = batches(rows, strategy.rank())
    take_turns(folder, "xmc_tf", strategy.rank(), steps, lambda: float(train(*map(tf.constant, next(data)))))


def _report(path: Path, ours: "Future[Any]", peers: list["subprocess.Popen[bytes]"]) -> dict[str, Any]:
    """Return a rank's report of its turn, once there is one."""
    while not path.exists():
        if ours.done() or any(peer.poll() is not None for peer in peers):
            sys.exit(f"one side ended early: {ours.exception() if ours.done() else 'torchrec'}")
        time.sleep(0.02)
    return dict(json.loads(path.read_text()))


def _rounds(turns: dict[str, list[list[dict[str, Any]]]]) -> list[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    return list(zip(turns["xmc_tf"][1:], turns["torchrec"][1:], strict=True))


def _sum(turn: list[dict[str, Any]], kind: str) -> float:
    return float(sum(rank[kind] for rank in turn))


if __name__ == "__main__":
    main()
