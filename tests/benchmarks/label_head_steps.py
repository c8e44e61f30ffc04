"""Fine-tuning with a label head of up to a million labels on two ranks: memory and losses by the number of labels.

    python -m tests.benchmarks.label_head_steps [--labels 10000 1000000] [--steps 20] [--encoder MODEL]

The texts are those of the demonstration, the labels made up: five a document, twenty matched parents each. MODEL is a
folder of weights; without it, a BERT of 384 numbers with random ones. One level is trained by the real loop, candidates
capped at 500. Prints one JSON line for each number of labels, with what the head takes of each worker, and what the
PECOS's replicated one (weights, gradient and two Adam slots on every worker) would by arithmetic.
"""

import argparse
import gc
import json
import os
import resource
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

WORLD, DOCUMENTS, SIBLINGS, PARENTS, CAP, LENGTH, BATCH = 2, 2000, 16, 20, 500, 64, 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--encoder", help="a folder of weights and tokenizer")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.worker:
        work(Path(a.worker), a.labels[0], a.steps, a.encoder)
        return
    from tests.distributed.launch import horovodrun
    from xmc_tf.demo.corpus import PACKAGES, build
    from xmc_tf.demo.encoder import make_tiny

    with tempfile.TemporaryDirectory(prefix="xmc-tf-bench-") as folder:
        build(Path(folder) / "data", PACKAGES)
        texts = (Path(folder) / "data" / "X.trn.txt").read_text(encoding="utf-8").split("\n")[:DOCUMENTS]
        encoder = a.encoder or str(make_tiny(Path(folder) / "tiny", texts, LENGTH, hidden_size=384))
        for labels in a.labels:
            given = ["--worker", folder, "--labels", str(labels), "--steps", str(a.steps), "--encoder", encoder]
            run = horovodrun(
                "module:tests.benchmarks.label_head_steps", *given, engine="gloo", world=WORLD, timeout=1800
            )
            print(json.dumps({"figure": "label_head_steps", "workers": WORLD, **run.ranks[0].result}), flush=True)


def work(folder: Path, labels: int, steps: int, encoder_name: str) -> None:
    """Run one rank."""
    import tensorflow as tf
    from scipy.sparse import csr_matrix

    from xmc_tf import CollectiveStrategy
    from xmc_tf.data import TextFile
    from xmc_tf.encoder import Encoder, TextTokenizer, tokenize_file
    from xmc_tf.matcher.bootstrap import bootstrap
    from xmc_tf.matcher.candidates.batches import LevelData
    from xmc_tf.matcher.candidates.choosing import CandidateSampler
    from xmc_tf.matcher.fine_tune import fine_tune_level
    from xmc_tf.matcher.head import LabelHead
    from xmc_tf.matcher.levels import LevelTask
    from xmc_tf.params import MatcherParams

    tf.config.threading.set_intra_op_parallelism_threads(max(1, (os.cpu_count() or 1) // WORLD))
    strategy = CollectiveStrategy()
    tokenizer, encoder = TextTokenizer.load(encoder_name), Encoder.load(encoder_name)
    texts = TextFile(folder / "data" / "X.trn.txt").lines(0, DOCUMENTS)
    store = tokenize_file(texts, tokenizer, folder / "tokens", max_length=LENGTH, communicator=strategy.communicator)
    draw = np.random.default_rng(0)

    def some(columns: int, each: int) -> Any:
        ids = draw.integers(0, columns, DOCUMENTS * each).astype(np.int32)
        rows = csr_matrix((np.ones(len(ids), np.float32), ids, np.arange(0, len(ids) + 1, each)), (DOCUMENTS, columns))
        rows.sum_duplicates()
        rows.data[:] = 1
        return rows

    splits = np.append(np.arange(0, labels, SIBLINGS), labels)
    task, matched = LevelTask(4, splits, some(labels, 5)), some(len(splits) - 1, PARENTS)
    params = MatcherParams(
        negative_sampling="tfn+man", bootstrap_method="no-bootstrap", max_steps=steps, batch_size=BATCH,
        max_active_matching_labels=CAP, logging_steps=1, save_steps=10**6,
    )  # fmt: skip
    gc.collect()
    before = _peak_mb()
    head = LabelHead.for_level(strategy, 4, labels, encoder.dim, splits, params)
    bootstrap(head, "no-bootstrap", task=task)
    result = fine_tune_level(
        strategy, encoder, head, LevelData(store, CandidateSampler(task, matched, CAP, 0), tokenizer.pad_id), params,
        folder=folder / f"checkpoints-{labels}",
    )  # fmt: skip
    row_mb = 4 * (encoder.dim + 1) / 2**20
    print(
        json.dumps(
            {
                "labels": labels,
                "dim": encoder.dim,
                "steps": result.steps,
                "losses": [round(loss, 4) for loss in (result.losses[0], result.losses[-1])],
                "seconds_with_tracing_and_checkpoint": round(result.seconds, 1),
                "route": None if head.scorer.choice is None else head.scorer.choice.route,
                "head_and_slots_mb": round(3 * row_mb * head.table.local_rows, 1),
                "peak_before_mb": round(before),
                "peak_mb": round(_peak_mb()),
                "peers_replicated_head_mb_by_arithmetic": round(4 * row_mb * labels, 1),
            }
        ),
        flush=True,
    )


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
