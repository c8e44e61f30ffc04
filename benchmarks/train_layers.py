"""Fine-tuning of all layers of an encoder, and of the upper ones on the output of the others, computed once.

    python -m benchmarks.train_layers --encoder MODEL --data DIR [--layers all half] [--seeds 0] [--documents N]
        [-- more flags of xmc_tf.train]

Each training runs in a process of its own. Prints for each value of --train-layers the mean over the seeds of P@1, P@3
and P@5 on the test documents, of the processor seconds of fine-tuning (with the frozen layers), of the frozen layers
and of the embeddings, of the seconds of fine-tuning, of the file in megabytes, and of the peak memory.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import save_npz

import xmc_tf
from benchmarks.sides import matrices
from benchmarks.sides.corpora import read_corpus
from xmc_tf.metrics import format_table
from xmc_tf.pipeline.stages import Stage, Stages
from xmc_tf.train import main as train

_COLUMNS = (
    "P@1", "P@3", "P@5", "fine-tuning CPU s", "frozen layers CPU s", "embeddings CPU s", "fine-tuning s", "file MB",
    "peak MB",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", required=True, type=Path, help="a folder of weights and tokenizer")
    parser.add_argument("--data", required=True, type=Path, help="X.trn.txt, Y.trn.npz, labels.txt, and test files")
    parser.add_argument("--layers", nargs="+", default=["all", "half"], help="values of --train-layers")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--documents", type=int, help="number of training and of test documents (default: all)")
    parser.add_argument("more", nargs="*", help="flags of xmc_tf.train, after --")
    a = parser.parse_args()
    results: dict[str, list[float]] = {}
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as alone:
        for layers in a.layers:
            flags = ["--model-shortcut", str(a.encoder.resolve()), "--train-layers", layers, *a.more]
            each = [alone.submit(measured, a.data, seed, a.documents, flags).result() for seed in a.seeds]
            results[layers] = [round(one, 2) for one in np.mean(each, axis=0).tolist()]
            print(layers, *each, file=sys.stderr, flush=True)
    print(format_table(["layers", *_COLUMNS], [[layers, *map(str, found)] for layers, found in results.items()]))
    print(
        json.dumps({
            "figure": "train_layers", "data": a.data.name, "seeds": a.seeds, "documents": a.documents,
            "columns": _COLUMNS, "results": results,
        })
    )  # fmt: skip


def measured(data: Path, seed: int, documents: int | None, more: list[str]) -> list[float]:
    """Train and predict; return the columns of the table."""
    used: dict[str, tuple[float, float]] = {}
    _time_stages(used)
    texts, labels = read_corpus(data)
    if documents is not None:
        for part, whole in texts.items():
            chosen = np.sort(np.random.default_rng(0).permutation(len(whole))[:documents])
            texts[part], labels[part] = [whole[row] for row in chosen], labels[part][chosen]
    with tempfile.TemporaryDirectory(prefix="xmc-tf-bench-") as work:
        lines, targets, model = (Path(work) / name for name in ("X.txt", "Y.npz", "model"))
        lines.write_text("".join(f"{line}\n" for line in texts["trn"]), encoding="utf-8")
        save_npz(targets, labels["trn"], compressed=False)
        inputs = ["-t", lines, "-y", targets, "--labels", data / "labels.txt", "-m", model, "--seed", seed]
        train([*map(str, inputs), "--keep-work", *more])
        file = sum(path.stat().st_size for path in Path(f"{model}.work").glob("frozen-layers*/states.npy"))
        found = xmc_tf.load(model).predict(texts["tst"], k=5)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    stages = [used.get(stage, (0.0, 0.0))[0] for stage in ("fine-tuning", "frozen-layers", "embeddings")]
    precisions = [matrices.precision(found, labels["tst"])[k] for k in (0, 2, 4)]
    return [*precisions, *stages, used.get("fine-tuning", (0, 0))[1], file / 1e6, peak]


def _time_stages(used: dict[str, tuple[float, float]]) -> None:
    """Write the processor seconds and the seconds of each stage into ``used``."""
    plain: Callable[..., Stage] = Stages.run

    def run(stages: Stages, name: str, *given: Any, **more: Any) -> Stage:
        begin = time.process_time(), time.perf_counter()
        stage = plain(stages, name, *given, **more)
        now = time.process_time(), time.perf_counter()
        used.setdefault(name, (now[0] - begin[0], now[1] - begin[1]))
        return stage

    Stages.run = run  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
