"""Data sets of the benchmarks: texts and labels, to train on and to test on."""

from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.data import load_matrix


def read_corpus(data: Path, held_out: float = 0.0, seed: int = 0) -> tuple[dict[str, list[str]], dict[str, csr_matrix]]:
    """Return texts and labels by part, "trn" and "tst"."""
    texts = {
        part: (data / f"X.{part}.txt").read_text("utf-8").removesuffix("\n").split("\n") for part in ("trn", "tst")
    }
    labels = {part: load_matrix(data / f"Y.{part}.npz").tocsr() for part in ("trn", "tst")}
    if held_out:
        order = np.random.default_rng(seed).permutation(len(texts["trn"]))
        cut = int(held_out * len(order))
        parts = {"tst": np.sort(order[:cut]), "trn": np.sort(order[cut:])}
        texts = {part: [texts["trn"][row] for row in rows] for part, rows in parts.items()}
        labels = {part: labels["trn"][rows] for part, rows in parts.items()}
    return texts, labels


def generated_corpus(documents: int, labels: int, seed: int = 0) -> tuple[dict[str, list[str]], dict[str, csr_matrix]]:
    """Return texts and labels by part, "trn" and "tst", of which the second has a fifth as many, and 1,000 at least.

    Each label has ten words. A document has one to five labels, frequent ones more often, four of their words for each,
    and ten other words.
    """
    rng = np.random.default_rng(seed)
    words = 2000 + 2 * labels
    own = rng.integers(0, words, (labels, 10))
    frequency = 1 / np.arange(1, labels + 1) ** 0.7
    texts: dict[str, list[str]] = {}
    matrices: dict[str, csr_matrix] = {}
    for part, count in (("trn", documents), ("tst", max(1000, documents // 5))):
        lines, chosen = [], []
        for _ in range(count):
            chosen.append(np.unique(rng.choice(labels, rng.integers(1, 6), p=frequency / frequency.sum())))
            found = [*rng.choice(own[chosen[-1]].ravel(), 4 * len(chosen[-1])), *rng.integers(0, words, 10)]
            lines.append(" ".join(f"word{number}" for number in found))
        indptr = np.cumsum([0, *map(len, chosen)])
        columns = np.concatenate(chosen)
        texts[part] = lines
        matrices[part] = csr_matrix((np.ones(len(columns), np.float32), columns, indptr), shape=(count, labels))
    return texts, matrices
