"""TF-IDF of one file of texts: the compiled kernels, the graph of exports, and scikit-learn's TfidfVectorizer.

    python -m benchmarks.tfidf X.txt

Prints one JSON line for each number of threads. All have the same settings and begin with texts: ours reads the file
itself, scikit-learn and the graph are given the lines. They run in turn, so that what else the machine does hits all;
the seconds are those of each side's best round, the microseconds of one text are medians. scikit-learn can use but
one thread. The kernels must return the graph's bits.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer

from xmc_tf.common.threads import map_in_order
from xmc_tf.data import TextFile
from xmc_tf.features import Tfidf
from xmc_tf.features.texts import text_batches
from xmc_tf.params import TfidfParams

SINGLE_TEXTS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="texts in UTF-8, one per line")
    parser.add_argument("--rounds", type=int, default=2, help="times that each side runs (default 2)")
    parser.add_argument("-n", "--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads (default 1 2)")
    args = parser.parse_args()

    lines = list(TextFile(args.file))
    Tfidf.fit(["compile the kernels", "compile the kernels"], TfidfParams.plain()).transform(["the kernels"])
    tfidf = Tfidf.fit(TextFile(args.file), TfidfParams.plain())
    weigh = tfidf.graph().__call__.get_concrete_function()

    def graph(texts: list[bytes], threads: int) -> list[tuple]:
        return [rows for _, rows in map_in_order(lambda batch: weigh(tf.constant(batch)), text_batches(texts), threads)]

    def one_by_graph(line: bytes) -> tuple:
        return weigh(tf.constant([line]))

    for threads in args.threads:
        vectorizer = TfidfVectorizer(
            ngram_range=(1, 2), min_df=2, sublinear_tf=True, dtype=np.float32, max_features=500_000
        )
        seconds: dict[str, list[float]] = {}
        for _ in range(args.rounds):
            took(seconds, "fit", Tfidf.fit, TextFile(args.file), TfidfParams.plain(), threads)
            ours = took(seconds, "transform", tfidf.transform, TextFile(args.file), threads)
            answers = took(seconds, "graph_transform", graph, lines, threads)
            took(seconds, "sklearn_fit", vectorizer.fit, lines)
            theirs = took(seconds, "sklearn_transform", vectorizer.transform, lines)
        best = {name: min(values) for name, values in seconds.items()}
        single: dict[str, list[float]] = {}
        for line in lines[:: max(1, len(lines) // SINGLE_TEXTS)]:
            took(single, "transform", tfidf.transform, [line], threads)
            took(single, "graph", one_by_graph, line)
            took(single, "sklearn", vectorizer.transform, [line])
        one = {name: statistics.median(values) for name, values in single.items()}
        print(
            json.dumps(
                {
                    "figure": "tfidf",
                    "documents": len(lines),
                    "threads": threads,
                    **{f"{name}_s": round(value, 3) for name, value in best.items()},
                    **{f"one_text_{name}_us": round(value * 1e6) for name, value in one.items()},
                    "fit_vs_sklearn": round(best["sklearn_fit"] / best["fit"], 2),
                    "transform_vs_sklearn": round(best["sklearn_transform"] / best["transform"], 2),
                    "transform_vs_graph": round(best["graph_transform"] / best["transform"], 2),
                    "one_text_vs_sklearn": round(one["sklearn"] / one["transform"], 2),
                    "one_text_vs_graph": round(one["graph"] / one["transform"], 2),
                    "aim": "4 times as fast as scikit-learn, and faster than the graph",
                    "same_bits_as_graph": same_bits(ours, answers),
                    "same_vocabulary_as_sklearn": set(tfidf.names) == set(vectorizer.vocabulary_),
                    "largest_difference_from_sklearn": largest_difference(tfidf, ours, vectorizer, theirs),
                }
            ),
            flush=True,
        )


def took(seconds: dict[str, list[float]], name: str, work: Callable, *arguments: Any) -> Any:
    """Return the result of ``work(*arguments)``, and record how long it took."""
    start = time.perf_counter()
    result = work(*arguments)
    seconds.setdefault(name, []).append(time.perf_counter() - start)
    return result


def same_bits(ours: csr_matrix, answers: list[tuple]) -> bool:
    """Return whether the graph's answers are the same features with the same weights, bit for bit."""
    ids = np.concatenate([answer[1].numpy() for answer in answers])
    weights = np.concatenate([answer[2].numpy() for answer in answers])
    sizes = np.concatenate([np.diff(answer[0].numpy()) for answer in answers])
    same = np.array_equal(np.diff(ours.indptr), sizes) and np.array_equal(ours.indices, ids)
    return bool(same and ours.data.tobytes() == weights.tobytes())


def largest_difference(tfidf: Tfidf, ours: csr_matrix, vectorizer: TfidfVectorizer, theirs: csr_matrix) -> float | None:
    """Return the largest difference of any two weights; None where the vocabularies differ."""
    if set(tfidf.names) != set(vectorizer.vocabulary_):
        return None
    difference = ours - theirs[:, [vectorizer.vocabulary_[name] for name in tfidf.names]]
    return float(abs(difference).max())


if __name__ == "__main__":
    main()
