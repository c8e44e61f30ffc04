"""Ideas for fine-tuning an encoder, each alone, measured on held-out training documents.

    python -m benchmarks.encoder_ablation --encoder MODEL --data DIR [--seeds 0 1 2] [--only IDEA …]
        [-- more flags of xmc_tf.train]

A quarter of the training documents, chosen by the seed, is measured and not used in training. Each idea trains a model
with label names in a process of its own, where it replaces a part of the package. Prints for each the mean over the
seeds of P@1, P@3 and P@5 of the answers, of the label head alone and of the rankers alone, and the seconds of training.
"""

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import tensorflow as tf
from scipy.sparse import csr_matrix, save_npz

import xmc_tf
from benchmarks.sides import matrices
from benchmarks.sides.corpora import read_corpus
from xmc_tf.matcher.head import LabelHead
from xmc_tf.matcher.matcher import LevelByLevel
from xmc_tf.metrics import format_table
from xmc_tf.models import prediction
from xmc_tf.train import main as train

_MEASURED = 4  # one in so many training documents
_METHODS = {"answers": None, "head": "transformer-only", "rankers": "concat-only"}
_DROPPED, _TEMPERATURE, _LABELS = 0.5, 0.05, 2.5  # of embeddings; of contrasts; of a document, about


def dropout() -> None:
    """Drop half of the embedding before the label head."""
    plain = LabelHead.losses_of_all
    LabelHead.losses_of_all = lambda head, vectors, *more: plain(head, tf.nn.dropout(vectors, _DROPPED), *more)


def softmax() -> None:
    """Score each label of a document against all labels that it does not have, instead of one by one."""

    def losses(head: LabelHead, vectors: tf.Tensor, positives: tf.RaggedTensor, *_: object) -> tf.Tensor:
        scores = tf.matmul(head._with_one(vectors), tf.convert_to_tensor(head.table.variable), transpose_b=True)
        right = _right(positives, tf.shape(scores, tf.int64))
        others = tf.reduce_logsumexp(scores - 1e9 * right, axis=1, keepdims=True)
        return tf.reduce_sum(right * tf.nn.softplus(others - scores), axis=1)

    plain = prediction.predict_by_heads

    def by_heads(model: object, windows: object, options: object) -> csr_matrix:
        found = plain(model, windows, dataclasses.replace(options, post_processor="noop"))
        rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
        weights = np.exp(found.data - found.data[found.indptr[:-1]][rows])  # the first is the largest
        found.data = 1 - np.exp(-_LABELS * weights / np.bincount(rows, weights)[rows])
        return found

    LabelHead.losses_of_all, prediction.predict_by_heads = losses, by_heads


def contrasts() -> None:
    """Also tell a name of each document's labels from those of the other documents in the batch."""
    known, plain, plain_train = {}, LabelHead.losses_of_all, LevelByLevel.train

    def train_levels(levels: LevelByLevel) -> object:
        store, tree = levels.data.store, levels.data.tree  # the names are the last documents
        texts = store.padded(store.nr_documents - tree.nr_labels + tree.labels, pad_id=levels.data.pad_id)
        known.update(encoder=levels.encoder, texts=[tf.constant(one) for one in texts])
        return plain_train(levels)

    def losses(head: LabelHead, vectors: tf.Tensor, positives: tf.RaggedTensor, *more: object) -> tf.Tensor:
        counts = positives.row_lengths()
        drawn = tf.cast(tf.random.uniform(tf.shape(counts)) * tf.cast(counts, tf.float32), tf.int64)
        nodes = tf.gather(positives.values, positives.row_splits[:-1] + drawn)
        ids, mask = (tf.gather(one, nodes) for one in known["texts"])
        names = known["encoder"].in_graph(ids, mask, training=True, seed=tf.constant([0, 1], tf.int64))
        right = tf.gather(_right(positives, [positives.nrows(), head.nr_nodes]), nodes, axis=1)
        cosines = tf.matmul(*(tf.math.l2_normalize(one, 1) for one in (vectors, names)), transpose_b=True)
        own = tf.linalg.diag_part(cosines) / _TEMPERATURE
        scores = cosines / _TEMPERATURE - 1e9 * tf.linalg.set_diag(right, tf.zeros_like(own))
        both = tf.reduce_logsumexp(scores, 0) + tf.reduce_logsumexp(scores, 1)
        return plain(head, vectors, positives, *more) + both / 2 - own

    LabelHead.losses_of_all, LevelByLevel.train = losses, train_levels


def _right(positives: tf.RaggedTensor, shape: object) -> tf.Tensor:
    at = tf.stack([positives.value_rowids(), positives.values], axis=1)
    return tf.scatter_nd(at, tf.ones_like(positives.values, tf.float32), tf.cast(tf.stack(shape), tf.int64))


IDEAS: dict[str, tuple[list[str], Callable[[], None]]] = {
    "as built": ([], lambda: None),
    "four trees": (["--effort", "balanced"], lambda: None),
    "mean of scores": (["--ensemble-method", "average"], lambda: None),
    "dropout before the head": ([], dropout),
    "decoupled softmax": ([], softmax),
    "contrasts with names": ([], contrasts),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", required=True, type=Path, help="a folder of weights and tokenizer")
    parser.add_argument("--data", required=True, type=Path, help="X.trn.txt, Y.trn.npz, labels.txt, and test files")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=list(IDEAS), default=list(IDEAS))
    parser.add_argument("more", nargs="*", help="flags of xmc_tf.train, after --")
    a = parser.parse_args()
    results: dict[str, list[str]] = {}
    flags = ["--model-shortcut", str(a.encoder.resolve()), *a.more]
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as alone:
        for idea in a.only:
            found = np.mean([alone.submit(measured, a.data, seed, idea, flags).result() for seed in a.seeds], axis=0)
            *precisions, seconds = found.tolist()
            parts = [precisions[first : first + 3] for first in (0, 3, 6)]
            results[idea] = [*(" / ".join(f"{one:.2f}" for one in part) for part in parts), f"{seconds:.0f}"]
            print(idea, *results[idea], file=sys.stderr, flush=True)
    print(format_table(["", *_METHODS, "seconds"], [[idea, *found] for idea, found in results.items()]))
    print(json.dumps({"figure": "encoder_ablation", "data": a.data.name, "seeds": a.seeds, "results": results}))


def measured(data: Path, seed: int, idea: str, more: list[str]) -> list[float]:
    """Train with an idea; return P@1, P@3 and P@5 of answers, label head and rankers, and the seconds of training."""
    flags, apply = IDEAS[idea]
    apply()
    texts, labels = read_corpus(data, 1 / _MEASURED, seed)
    with tempfile.TemporaryDirectory(prefix="xmc-tf-bench-") as work:
        lines, targets, model = (Path(work) / name for name in ("X.txt", "Y.npz", "model"))
        lines.write_text("".join(f"{line}\n" for line in texts["trn"]), encoding="utf-8")
        save_npz(targets, labels["trn"], compressed=False)
        inputs = ["-t", lines, "-y", targets, "--labels", data / "labels.txt", "-m", model, "--seed", seed]
        begin = time.perf_counter()
        train([*map(str, inputs), *flags, *more])
        seconds = time.perf_counter() - begin
        loaded = xmc_tf.load(model)
        found = [loaded.predict(texts["tst"], k=5, ensemble_method=method) for method in _METHODS.values()]
    return [*(matrices.precision(one, labels["tst"])[k] for one in found for k in (0, 2, 4)), seconds]


if __name__ == "__main__":
    main()
