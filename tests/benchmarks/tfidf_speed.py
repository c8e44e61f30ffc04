"""TF-IDF, fitted and applied to one file of texts, against scikit-learn's TfidfVectorizer.

    python -m tests.benchmarks.tfidf_speed X.trn.txt

Prints one JSON line. Both have the same settings and do the whole work, from texts to a matrix, in turn, so
that what else the machine does hits both; the seconds are those of each side's best round. Ours reads the
file itself, scikit-learn is given the decoded lines; ours uses all cores, scikit-learn can use but one.
"""

import argparse
import json
import time

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer

from xmc_tf.data import TextFile
from xmc_tf.features import Tfidf
from xmc_tf.params import TfidfParams


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="texts in UTF-8, one per line")
    parser.add_argument("--rounds", type=int, default=2, help="times that each side runs (default 2)")
    parser.add_argument("-n", "--threads", type=int, default=-1, help="ours; -1 for one per core (default)")
    args = parser.parse_args()

    lines = list(TextFile(args.file))
    Tfidf.fit(["compile the kernels", "compile the kernels"])
    seconds: dict[str, list[float]] = {"fit": [], "transform": [], "sklearn": []}
    for _ in range(args.rounds):
        start = time.perf_counter()
        texts = TextFile(args.file)
        tfidf = Tfidf.fit(texts, TfidfParams(), args.threads)
        fitted = time.perf_counter()
        ours = tfidf.transform(texts, args.threads)
        done = time.perf_counter()
        seconds["fit"].append(fitted - start)
        seconds["transform"].append(done - fitted)

        start = time.perf_counter()
        vectorizer = TfidfVectorizer(
            ngram_range=(1, 2), min_df=2, sublinear_tf=True, dtype=np.float32, max_features=500_000
        )
        theirs = vectorizer.fit_transform(lines)
        seconds["sklearn"].append(time.perf_counter() - start)

    ours_s = min(map(sum, zip(seconds["fit"], seconds["transform"], strict=True)))
    sklearn_s = min(seconds["sklearn"])
    print(
        json.dumps(
            {
                "figure": "tfidf_fit_and_transform",
                "documents": len(lines),
                "ours_s": round(ours_s, 3),
                "ours_fit_s": round(min(seconds["fit"]), 3),
                "ours_transform_s": round(min(seconds["transform"]), 3),
                "sklearn_s": round(sklearn_s, 3),
                "ratio": round(sklearn_s / ours_s, 2),
                "ours_nnz": ours.nnz,
                "sklearn_nnz": theirs.nnz,
                "same_nnz": ours.nnz == theirs.nnz,
                "same_vocabulary": set(tfidf.names) == set(vectorizer.vocabulary_),
                "largest_difference": largest_difference(tfidf, ours, vectorizer, theirs),
            }
        )
    )


def largest_difference(tfidf: Tfidf, ours: csr_matrix, vectorizer: TfidfVectorizer, theirs: csr_matrix) -> float | None:
    """Return the largest difference of any two weights; None where the vocabularies differ."""
    if set(tfidf.names) != set(vectorizer.vocabulary_):
        return None
    difference = ours - theirs[:, [vectorizer.vocabulary_[name] for name in tfidf.names]]
    return float(abs(difference).max())


if __name__ == "__main__":
    main()
