"""Split documents into training, validation and test, depending only on a seed and the documents' content."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError

TRAIN, VALIDATION, TEST = SPLITS = ("train", "validation", "test")
_MOST_ALONE = 0.01  # share of the texts that are put into training because nothing else has their label


@dataclass(frozen=True)
class SplitOptions:
    """The shares of documents to hold out.

    Args:
        validation: share of documents for choosing settings.
        test: share of documents for evaluating the model.
        seed: random seed; a different seed gives a different split.
    """

    validation: float = 0.1
    test: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, share in (("validation", self.validation), ("test", self.test)):
            if not 0 <= share < 1:
                raise InputError(f"--{name} is out of range", expected="from 0 to below 1", received=str(share))
        if not -(1 << 63) <= self.seed < 1 << 63:
            raise InputError("--split-seed exceeds 64 bits", received=str(self.seed)[:40], fix="use a smaller one")
        if self.validation + self.test >= 1:
            expected = "a sum of --validation and --test below 1"
            received = f"{self.validation} + {self.test}"
            raise InputError("no documents are left to train on", expected=expected, received=received)


def text_key(text: str) -> int:
    """Return a 63-bit hash of a text. Equal texts have equal hashes, so that copies stay in the same split."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 1


def split_documents(keys: Sequence[int] | np.ndarray, Y: csr_matrix, options: SplitOptions) -> np.ndarray:
    """Return the split of each document (0 training, 1 validation, 2 test), stratified by its rarest label."""
    texts, first, text_of = np.unique(np.asarray(keys, np.int64), return_index=True, return_inverse=True)
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    # The rarest label of each text (-1 for none), and whether no other document has it.
    rarest, alone = np.full(len(texts), -1, np.int64), np.zeros(len(texts), bool)
    for place, document in enumerate(first):
        labels = Y.indices[Y.indptr[document] : Y.indptr[document + 1]]
        if len(labels):
            rarest[place] = labels[counts[labels].argmin()]
            alone[place] = counts[rarest[place]] == 1
    # If many such texts were all in training, the test documents would not resemble future documents.
    if alone.sum() > _MOST_ALONE * len(texts):
        rarest[alone] = -1  # as if they had no label
        alone[:] = False
    shares = np.array([1 - options.validation - options.test, options.validation, options.test])
    chosen = np.zeros(len(texts), np.int8)
    order = np.argsort(_mixed(texts, options.seed), kind="stable")
    order = order[np.argsort(rarest[order], kind="stable")]
    begins = np.flatnonzero(np.diff(rarest[order], prepend=-2))
    # Remainders are carried over to the next label, so that rare labels fill the shares, too.
    owed = np.zeros(3)
    for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
        if alone[order[begin]]:
            continue
        owed += shares * (end - begin)
        for place, text in enumerate(order[begin:end]):
            split = 0 if place == 0 and rarest[text] >= 0 else int(owed.argmax())
            chosen[text] = split
            owed[split] -= 1
    return chosen[text_of]


def _mixed(keys: np.ndarray, seed: int) -> np.ndarray:
    """Return pseudo-random numbers that depend only on the keys and the seed (SplitMix64)."""
    with np.errstate(over="ignore"):
        z = keys.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15) % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
