"""The vocabulary over ranks, from the n-grams that ranks have counted in parts of the documents.

Each n-gram's key determines its owner among the ranks, which adds up the counts of all ranks. The owners keep at most
``max_features`` candidates each, and rank 0 chooses among them. So no rank ever holds all n-grams. A rank sends 20
bytes per n-gram that it has seen, and the names of the chosen ones.

The parts are in the order of the ranks. So the first rank that has seen an n-gram has the first document with it, and
names it as counting all documents in order would.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xmc_tf.common.wire import register
from xmc_tf.features.counts import NgramCounts
from xmc_tf.features.tfidf import Counts
from xmc_tf.features.vocabulary import FeatureBlock, Vocabulary, best, lines_of, no_features_error, vocabulary_of
from xmc_tf.params import TfidfParams
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks


@register
class NgramSums(NamedTuple):
    """N-grams and their counts."""

    keys: np.ndarray
    total: np.ndarray
    documents: np.ndarray
    first: np.ndarray
    """The first rank that has seen each n-gram."""

    def at(self, places: np.ndarray) -> "NgramSums":
        """Return the n-grams at some places."""
        return NgramSums(*(column[places] for column in self))


def choose_over_ranks(
    communicator: Communicator, counts: Counts, nr_documents: int, params: TfidfParams
) -> Vocabulary | None:
    """Return the vocabulary of the documents of all ranks; all ranks call it.

    Args:
        communicator: the ranks.
        counts: the n-grams and pieces of this rank's documents.
        nr_documents: number of documents of all ranks.
        params: how to choose.

    Returns:
        The vocabulary on rank 0, None on the others.

    Raises:
        InputError: on all ranks, if no n-gram occurs in enough documents.
    """
    blocks = [_choose(communicator, counts.ngrams, nr_documents, params, required=True)]
    if params.pieces:
        blocks.append(_choose(communicator, counts.pieces, nr_documents, params, params.piece_weight or 0.0))
    chosen = [block for block in blocks if block is not None]
    return vocabulary_of(chosen, nr_documents) if communicator.rank == 0 else None


def _choose(
    communicator: Communicator,
    counted: NgramCounts,
    nr_documents: int,
    params: TfidfParams,
    weight: float = 1.0,
    *,
    required: bool = False,
) -> FeatureBlock | None:
    """Return ``choose_block`` for the documents of all ranks, on rank 0; all ranks call it."""
    first = communicator.rank == 0
    sums = add_up(communicator.alltoall(_by_owner(counted, communicator.size)))
    seen = communicator.gather((len(sums.keys), int(sums.documents.max(initial=0))))
    # An n-gram that is not among the best of its owner is not among the best of all.
    candidates = communicator.gather(sums.at(best(sums.keys, sums.total, sums.documents, params)))

    def select() -> NgramSums | None:
        if not first:
            return None
        found = NgramSums(*(np.concatenate(columns) for columns in zip(*candidates, strict=True)))
        chosen = found.at(best(found.keys, found.total, found.documents, params))
        if required and not len(chosen.keys):
            raise no_features_error(sum(n for n, _ in seen), max(most for _, most in seen), nr_documents, params)
        return chosen

    chosen = run_on_all_ranks(communicator, select)
    wanted = None if chosen is None else [chosen.keys[chosen.first == rank] for rank in range(communicator.size)]
    named = communicator.gather(_names(counted, communicator.scatter(wanted)))
    if chosen is None:
        return None
    lines = _names_in_order(named, chosen.first)
    return FeatureBlock(chosen.keys, chosen.documents, weight, lambda: lines)


def add_up(parts: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> NgramSums:
    """Sum the totals and document counts of all ranks by key; the keys are ascending."""
    keys, total, documents = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    source = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part[0]) for part in parts])
    order = np.argsort(keys, kind="stable")  # stable: entries of lower ranks stay first
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)])
    if not len(starts):
        return NgramSums(keys, total, documents, source)
    return NgramSums(
        keys[starts],
        np.add.reduceat(total[order], starts),
        np.add.reduceat(documents[order], starts),
        source[order[starts]],
    )


def _by_owner(counted: NgramCounts, size: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return what to send to each rank; keys are hashes, but their lowest bits are poor where words repeat."""
    owner = ((counted.keys.astype(np.uint64) >> np.uint64(24)) % np.uint64(size)).astype(np.int32)
    order = np.argsort(owner, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(owner, minlength=size))[:-1])
    return [
        (counted.keys[part], counted.total[part], counted.documents[part].astype(np.int64)) for part in parts
    ]  # fmt: skip


def _names(counted: NgramCounts, keys: np.ndarray) -> bytes:
    """Return the n-grams of these keys, which this rank has counted, one per line."""
    if not len(keys):
        return b""
    order = np.argsort(keys)
    place = np.minimum(np.searchsorted(keys, counted.keys, sorter=order), len(keys) - 1)
    ours = order[place]
    hit = np.flatnonzero(keys[ours] == counted.keys)
    entries = np.empty(len(keys), np.int64)
    entries[ours[hit]] = hit
    return lines_of(counted, entries)()


def _names_in_order(named: Sequence[bytes], first: np.ndarray) -> bytes:
    """Return the names of all features; each rank has sent those that it was the first to see."""
    lines = np.empty(len(first), object)
    for rank, names in enumerate(named):
        lines[first == rank] = [name + b"\n" for name in names.split(b"\n")[:-1]]
    return b"".join(lines.tolist())
