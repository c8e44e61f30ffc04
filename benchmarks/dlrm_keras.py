"""A step of a DLRM in plain Keras, and with three changed lines over two ranks and alone, by default and exact.

    python -m benchmarks.dlrm_keras [--tables 26] [--rows 1000000] [--dim 64] [--batch 1024]
        [--peer PYTHON]
    python -m benchmarks.dlrm_keras --tables 10 --smallest 1000000 --sides keras_adagrad rows_adagrad_alone
        exact_adagrad_alone rows_adagrad exact_adagrad

Prints one JSON line. Each side is the same Keras program in processes of its own, one side after the other, because
each needs gigabytes. Plain Keras has one process and the batches of both ranks. Times are medians of steps. The
machine may be busy, so the processor time of a step, summed over the ranks, is shown too. PYTHON, of a venv with
torch, torchrec and fbgemm-gpu-cpu, runs TorchRec's side: the same layers, on two ranks over Gloo.
"""

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

DENSE, WORLD = 13, 2
# Name, optimizer, how the tables are trained, and the number of ranks.
SIDES = [
    ("keras_adagrad", "adagrad", "keras", 1),
    ("rows_adagrad_alone", "adagrad", "rows", 1),
    ("exact_adagrad_alone", "adagrad", "exact", 1),
    ("rows_adagrad", "adagrad", "rows", WORLD),
    ("exact_adagrad", "adagrad", "exact", WORLD),
    ("keras_adam", "adam", "keras", 1),
    ("rows_adam", "adam", "rows", WORLD),
    ("exact_adam_alone", "adam", "exact", 1),
    ("exact_adam", "adam", "exact", WORLD),
]


def main() -> None:
    """Run all sides, or one process of a side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=26)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the largest table")
    parser.add_argument(
        "--smallest", type=int, help="rows of the smallest table; a hundredth of the largest by default"
    )
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1024, help="of each rank")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--sides", nargs="+", choices=[name for name, *_ in SIDES], help="all by default")
    parser.add_argument("--peer", help="a Python that has torchrec and fbgemm-gpu-cpu")
    parser.add_argument("--side", nargs=2, metavar=("OPTIMIZER", "MODE"), help=argparse.SUPPRESS)
    a = parser.parse_args()
    a.smallest = a.smallest or a.rows // 100
    if a.side:
        work(a, *a.side)
        return
    from tests.distributed.launch import BIN, environment

    numbers = [f"--{name}={getattr(a, name)}" for name in ("tables", "rows", "smallest", "dim", "batch", "steps")]
    figures: dict[str, Any] = {}
    for name, optimizer, mode, world in SIDES:
        if name not in (a.sides or [name]):
            continue
        root = str(Path(__file__).resolve().parents[1])
        launcher = [] if world == 1 else [str(BIN / "mpiexec"), "-x", "PYTHONPATH", "-n", str(world)]
        threads = str(max(1, (os.cpu_count() or 1) // world))
        limits = {"TF_NUM_INTRAOP_THREADS": threads, "OMP_NUM_THREADS": threads}
        command = [*launcher, sys.executable, __file__, *numbers, "--side", optimizer, mode]
        run = subprocess.run(
            command, capture_output=True, text=True, env={**environment(), **limits, "PYTHONPATH": root}, check=False
        )
        if run.returncode:
            raise SystemExit(f"{name} failed:\n{run.stderr[-3000:]}")
        figures[name] = json.loads(next(line for line in run.stdout.splitlines() if line.startswith("{")))
        print(name, figures[name], file=sys.stderr, flush=True)
    if a.peer:
        figures["torchrec_adagrad"] = torchrec(a)
        print("torchrec_adagrad", figures["torchrec_adagrad"], file=sys.stderr, flush=True)
    for name, figure in figures.items():
        plain = figures.get(f"keras_{name.split('_')[1]}")
        if name.startswith("exact") and plain:
            np.testing.assert_allclose(figure["losses"], plain["losses"], rtol=1e-3)
    print(
        json.dumps({"figure": "dlrm_keras", "ranks": WORLD, "tables": a.tables, "batch": a.batch, **figures}),
        flush=True,
    )


def torchrec(a: argparse.Namespace) -> dict[str, float]:
    """Return the figures of TorchRec's side."""
    side = Path(__file__).parent / "sides" / "torchrec_dlrm.py"
    command = [a.peer, str(side), ",".join(map(str, sizes(a))), str(a.dim), str(a.batch), str(a.steps)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(WORLD)}
    ranks = [
        subprocess.Popen(
            command, env={**os.environ, **address, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD)
    ]  # fmt: skip
    outputs = [rank.communicate() for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit("torchrec failed:\n" + "\n".join(errors[-2000:] for _, errors in outputs))
    return json.loads(outputs[0][0].splitlines()[-1])


def sizes(a: argparse.Namespace) -> list[int]:
    """Return the number of rows of each table."""
    return np.geomspace(a.smallest, a.rows, a.tables).astype(int).tolist()


def work(a: argparse.Namespace, optimizer: str, mode: str) -> None:
    """Run one process of a side, and print its figures on rank 0."""
    import keras
    import tensorflow as tf

    rows = sizes(a)
    made = {"adagrad": keras.optimizers.Adagrad, "adam": keras.optimizers.Adam}[optimizer](0.01)
    if mode == "keras":
        rank, world = 0, 1
        model = dlrm(rows, a.dim)
        model.compile(made, keras.losses.BinaryCrossentropy(from_logits=True), jit_compile=False)
    else:
        from xmc_tf import CollectiveStrategy

        strategy = CollectiveStrategy(**({"exact": True} if mode == "exact" else {}))
        rank, world = strategy.rank(), strategy.world_size()
        with strategy.scope(), strategy.embedding_scope():
            model = dlrm(rows, a.dim)
            model.compile(made, keras.losses.BinaryCrossentropy(from_logits=True))
    times, processor, losses = [], [], []

    class Clock(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.begun = time.perf_counter(), time.process_time()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            losses.append(float(logs["loss"]))  # waits for the step
            times.append(time.perf_counter() - self.begun[0])
            processor.append(time.process_time() - self.begun[1])

    data = tf.data.Dataset.from_tensor_slices(examples(rows, a.batch * WORLD * 4)).batch(a.batch * WORLD // world)
    data = data.shard(world, rank).cache().repeat().prefetch(2)
    model.fit(data, steps_per_epoch=3 + a.steps, epochs=1, callbacks=[Clock()], verbose=0)
    own = [1000 * float(np.median(times[3:])), 1000 * float(np.median(processor[3:])), losses[-1]]
    ranks = [own] if mode == "keras" else strategy.communicator.allgather(own)
    if rank == 0:
        figures = {
            "step_ms": round(ranks[0][0], 1),
            "processor_ms": round(sum(one[1] for one in ranks), 1),
            "gb_per_rank": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
            "losses": round(float(np.mean([one[2] for one in ranks])), 5),
        }
        print(json.dumps(figures), flush=True)


def dlrm(rows: list[int], dim: int) -> Any:
    """Return the model, as a Keras program makes it."""
    import keras

    keras.utils.set_random_seed(7)
    inputs = {f"c{number}": keras.Input([], dtype="int64") for number in range(len(rows))}
    dense = keras.Input([DENSE])
    bottom = keras.layers.Dense(dim, "relu")(keras.layers.Dense(128, "relu")(dense))
    found = [
        keras.layers.Embedding(count, dim, embeddings_initializer=keras.initializers.Constant(0.01), name=name)(ids)
        for count, (name, ids) in zip(rows, inputs.items(), strict=True)
    ]
    vectors = keras.ops.stack([bottom, *found], axis=1)
    products = keras.ops.matmul(vectors, keras.ops.transpose(vectors, [0, 2, 1]))
    dots = keras.ops.reshape(products, [-1, (1 + len(rows)) ** 2])
    top = keras.layers.Dense(128, "relu")(keras.ops.concatenate([bottom, dots], axis=1))
    return keras.Model({"dense": dense, **inputs}, keras.layers.Dense(1)(top))


def examples(rows: list[int], count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return examples whose ids are frequent if they are small, as in logs of clicks."""
    draw = np.random.default_rng(0)
    ids = {f"c{number}": np.floor(size ** draw.random(count)).astype(np.int64) - 1 for number, size in enumerate(rows)}
    return {"dense": draw.standard_normal((count, DENSE)).astype(np.float32), **ids}, draw.integers(0, 2, [count, 1])


if __name__ == "__main__":
    sys.path.insert(0, os.environ.get("PYTHONPATH", str(Path(__file__).resolve().parents[1])).split(os.pathsep)[0])
    main()
