"""TF-IDF of one file of texts: the compiled kernels, and scikit-learn's TfidfVectorizer with the same settings.

    python -m benchmarks.tfidf X.txt

Both sides run in turns, so that other load on the machine affects both. Prints one JSON line for each number of
threads: the seconds of each side's best round, and the median microseconds of one text. scikit-learn uses one thread.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from xmc_tf.data import TextFile
from xmc_tf.features import Tfidf
from xmc_tf.params import TfidfParams

SINGLE_TEXTS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="texts in UTF-8, one per line")
    parser.add_argument("--rounds", type=int, default=2, help="times that each side runs (default 2)")
    parser.add_argument("-n", "--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads (default 1 2)")
    args = parser.parse_args()
    lines, params = list(TextFile(args.file)), TfidfParams.plain()
    Tfidf.fit(["compile the kernels", "compile the kernels"], params).transform(["the kernels"])
    tfidf = Tfidf.fit(TextFile(args.file), params)
    for threads in args.threads:
        other = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, dtype=np.float32, max_features=500_000)
        seconds: dict[str, list[float]] = {}
        for _ in range(args.rounds):
            took(seconds, "fit", Tfidf.fit, TextFile(args.file), params, threads)
            ours = took(seconds, "transform", tfidf.transform, TextFile(args.file), threads)
            took(seconds, "sklearn_fit", other.fit, lines)
            theirs = took(seconds, "sklearn_transform", other.transform, lines)
        single: dict[str, list[float]] = {}
        for line in lines[:: max(1, len(lines) // SINGLE_TEXTS)]:
            took(single, "ours", tfidf.transform, [line], threads)
            took(single, "sklearn", other.transform, [line])
        columns = [other.vocabulary_.get(name, 0) for name in tfidf.names]
        print(json.dumps({
            "figure": "tfidf", "documents": len(lines), "threads": threads,
            **{f"{name}_s": round(min(values), 3) for name, values in seconds.items()},
            **{f"one_text_{name}_us": round(1e6 * statistics.median(values)) for name, values in single.items()},
            "aim": "4 times as fast as scikit-learn", "same_vocabulary": {*tfidf.names} == {*other.vocabulary_},
            "largest_difference": float(abs(ours - theirs[:, columns]).max()),
        }), flush=True)  # fmt: skip


def took(seconds: dict[str, list[float]], name: str, work: Callable, *arguments: Any) -> Any:
    """Return the result of ``work(*arguments)``, and record how long it took."""
    start = time.perf_counter()
    result = work(*arguments)
    seconds.setdefault(name, []).append(time.perf_counter() - start)
    return result


if __name__ == "__main__":
    main()
