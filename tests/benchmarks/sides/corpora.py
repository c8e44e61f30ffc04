"""Data sets of the benchmarks: texts and labels, to train on and to test on."""

from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.data import load_matrix


def read_corpus(data: Path, held_out: float = 0.0, seed: int = 0) -> tuple[dict[str, list[str]], dict[str, csr_matrix]]:
    """Return texts and labels by part, "trn" and "tst".

    Args:
        data: a folder with X.trn.txt, X.tst.txt, Y.trn.npz and Y.tst.npz.
        held_out: the share of the training documents that takes the place of the test documents; 0: none.
        seed: of the choice of these documents.
    """
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
