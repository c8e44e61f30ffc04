"""Check that an exported model predicts like the trained one, for any model and its texts.

    python benchmarks/interop/export_equals_predict.py MODEL X.tst.txt [-k 10] [-b 10] [--first N] [--batches 1 7 64]

Exports the model, and asks all texts and some hard ones (empty, a megabyte long, emoji, bytes that are no UTF-8) in a
process that has TensorFlow and tensorflow_text alone, through ``tf.saved_model.load`` and the session loader, in
batches of each size. Prints a table and one JSON line:

equal   rows with the same labels in the same order, scores within 1e-4
ties    rows in which labels of equal scores (within 1e-6) have changed places
near    the same for scores within 1e-4
wrong   all others; then the exit code is 1
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.plain_tensorflow import ask_in_batches  # noqa: E402
from tests.serving.cases import HARD  # noqa: E402
from xmc_tf import export  # noqa: E402
from xmc_tf.metrics import format_table  # noqa: E402

_EQUAL, _CLOSE = 1e-6, 1e-4
_EMOJI = ["🎉 sauna 👩‍👩‍👧 ☂️", "Ångström ÅNGSTRÖM 音楽 музыка", "\u200b\ufeff"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts", type=Path)
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("-b", type=int, default=10)
    parser.add_argument("--first", type=int, help="so many of the texts")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 7, 64])
    parser.add_argument("--weights", default="fp32", help="fp16 and int8 differ, of course: for looking at how much")
    a = parser.parse_args()
    texts = [*HARD, *(text.encode() for text in _EMOJI), *a.texts.read_bytes().split(b"\n")[:-1][: a.first]]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="xmc-tf-equals-") as work:
        served = Path(work) / "1"
        command = ["-m", a.model, "-o", str(served), "-k", str(a.k), "-b", str(a.b), "--weights", a.weights]
        export.main(command)
        model, _ = export._load(a.model)
        # In an order of the given texts, as always; hard ones first.
        expected = model.predict(texts, only_topk=a.k, beam_size=a.b)
        results: dict[str, Any] = {}
        for loader in ("load", "session"):
            for size in a.batches:
                answers = ask_in_batches(served, texts, size, session=loader == "session")
                results[f"{loader}, batches of {size}"] = compare(expected, answers["labels"], answers["scores"])
    rows = [[name, *(str(value) for value in one.values())] for name, one in results.items()]
    print(format_table(["", *next(iter(results.values()))], rows), file=sys.stderr)
    figure = {"figure": "export_equals_predict", "model": Path(a.model).name, "texts": len(texts)}
    print(json.dumps({**figure, "seconds": round(time.monotonic() - began), "results": results}))
    sys.exit(1 if any(one["wrong"] for one in results.values()) else 0)


def compare(expected: csr_matrix, labels: np.ndarray, scores: np.ndarray) -> dict[str, Any]:
    """Count equal rows, and describe the differences of the others."""
    counts: dict[str, Any] = {"equal": 0, "ties": 0, "near": 0, "wrong": 0}
    largest = 0.0
    for row in range(expected.shape[0]):
        begin, end = expected.indptr[row : row + 2]
        gap, difference = _gap(expected.indices[begin:end], expected.data[begin:end], labels[row], scores[row])
        largest = max(largest, difference)
        name = "wrong" if max(gap, difference) > _CLOSE else "near" if gap > _EQUAL else "ties" if gap >= 0 else "equal"
        counts[name] += 1
    return {**counts, "largest_difference_of_scores": float(f"{largest:.2g}")}


def _gap(expected: np.ndarray, its_scores: np.ndarray, labels: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    """Largest difference between scores of labels that have changed places, -1 where none has; and between scores."""
    there = labels >= 0
    labels, scores = labels[there], scores[there]
    if len(labels) != len(expected):
        return np.inf, np.inf
    if not len(labels):
        return -1.0, 0.0
    difference = float(np.abs(scores - its_scores).max())
    moved = labels != expected
    if not moved.any():
        return -1.0, difference
    known = dict(zip(expected.tolist(), its_scores.tolist(), strict=True))
    # A label that is new here has the score of the last, whose place it may have taken.
    gaps = [
        abs(known.get(label, float(its_scores[-1])) - float(at))
        for label, at in zip(labels[moved].tolist(), its_scores[moved].tolist(), strict=True)
    ]
    return max(gaps), difference


if __name__ == "__main__":
    main()
