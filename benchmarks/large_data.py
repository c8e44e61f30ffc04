"""Write a data set of the shape of Amazon-3M, or of a part of it.

    python -m benchmarks.large_data FOLDER [--scale 0.1]

At scale 1: 1.7 million training documents with 36 labels and 50 features each, 2.8 million labels, 337,000 features. A
scale changes the numbers of documents and labels. A document has a topic, of whose thousand labels it has some; most of
its features are among the dozen of its labels, the others are noise. Topics, labels and features have the frequencies
of Zipf's law. The files depend on the scale alone: X.trn.npz, Y.trn.npz, X.tst.npz and Y.tst.npz (5,000 documents).
"""

import argparse
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.data import save_matrix

DOCUMENTS, LABELS, FEATURES, TESTS = 1_700_000, 2_800_000, 337_000, 5_000
_LABELS_EACH, _FEATURES_EACH = 38.0, 54.5  # drawn, some of them twice
_TOPIC = 1000  # labels of a topic
_OWN = 12  # features of a label
_BLOCK = 50_000


def write(folder: Path, scale: float) -> None:
    """Write the data set.

    Args:
        folder: the folder, which is created.
        scale: share of the documents and labels.
    """
    folder.mkdir(parents=True, exist_ok=True)
    nr_labels = round(LABELS * scale)
    for part, count, seed in (("trn", round(DOCUMENTS * scale), 1), ("tst", TESTS, 2)):
        blocks = [
            _block(min(_BLOCK, count - first), nr_labels, np.random.default_rng([seed, first]))
            for first in range(0, count, _BLOCK)
        ]
        save_matrix(folder / f"X.{part}.npz", _stacked([features for features, _ in blocks]))
        save_matrix(folder / f"Y.{part}.npz", _stacked([labels for _, labels in blocks]))


def _block(count: int, nr_labels: int, random: np.random.Generator) -> tuple[csr_matrix, csr_matrix]:
    """Return features and labels of some documents."""
    each = np.maximum(random.poisson(_LABELS_EACH * random.gamma(4.0, 0.25, count)), 1)
    starts = np.concatenate(([0], np.cumsum(each)))
    topics = -(-nr_labels // _TOPIC)
    topic = np.repeat((topics * random.random(count) ** 1.5).astype(np.int64), each)
    label = np.minimum(topic * _TOPIC + (_TOPIC * random.random(starts[-1]) ** 2).astype(np.int64), nr_labels - 1)
    words = np.maximum(random.poisson(_FEATURES_EACH * random.gamma(4.0, 0.25, count)), 3)
    document = np.repeat(np.arange(count), words)
    chosen = label[starts[document] + (random.random(len(document)) ** 1.5 * each[document]).astype(np.int64)]
    own = (_OWN * random.random(len(document)) ** 2).astype(np.int64)
    uniform = np.where(random.random(len(document)) < 0.7, _hashed(chosen * _OWN + own), random.random(len(document)))
    feature = np.minimum((FEATURES * uniform**3).astype(np.int64), FEATURES - 1)
    X = csr_matrix(
        (np.ones(len(feature), np.float32), feature.astype(np.int32), np.concatenate(([0], np.cumsum(words)))),
        shape=(count, FEATURES),
    )
    X.sum_duplicates()
    X.data = (1.0 + np.log(X.data)) * (1.0 + np.log1p(X.indices / 10.0))
    norms = np.sqrt(np.add.reduceat(np.square(X.data), X.indptr[:-1]))
    X.data = (X.data / np.repeat(norms, np.diff(X.indptr))).astype(np.float32)
    # Spread over all numbers, so that neighbours are not alike: the factor is prime and divides no number of labels.
    Y = csr_matrix(
        (np.ones(len(label), np.float32), (label * 15_485_863 % nr_labels).astype(np.int32), starts),
        shape=(count, nr_labels),
    )
    Y.sum_duplicates()
    Y.data[:] = 1.0
    return X, Y


def _hashed(number: np.ndarray) -> np.ndarray:
    """Return a number from 0 to 1 for each whole number, always the same."""
    mixed = number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53


def _stacked(blocks: list[csr_matrix]) -> csr_matrix:
    """Return the rows of all blocks, which are removed from the list one by one."""
    shape = (sum(one.shape[0] for one in blocks), blocks[0].shape[1])
    indptr = np.concatenate(([0], np.cumsum(np.concatenate([np.diff(one.indptr) for one in blocks]), dtype=np.int64)))
    indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    at = 0
    for one in blocks:
        indices[at : at + one.nnz], data[at : at + one.nnz] = one.indices, one.data
        at += one.nnz
    return csr_matrix((data, indices, indptr), shape=shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the documents and labels")
    a = parser.parse_args()
    write(a.folder, a.scale)


if __name__ == "__main__":
    main()
