"""One vocabulary out of the n-grams that ranks have counted in parts of the documents.

Every n-gram has an owner among the ranks, by its key, who adds up what the ranks have counted. Of these sums the owners
keep what can be chosen, which is at most ``max_features`` each, and rank 0 chooses. So nobody ever holds all n-grams of
all documents; what travels is 20 bytes for each that a rank has seen, and the names of the chosen ones.

The documents' parts are in the order of the ranks, so that the first rank that has seen an n-gram has the document that
has it first: its name for the n-gram is the one that counting all documents in their order would give.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xmc_tf.common.wire.format import register
from xmc_tf.features.counts import Counted
from xmc_tf.features.vocabulary import Vocabulary, best, lines_of, nothing_left, vocabulary_of
from xmc_tf.params import TfidfParams
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks


@register
class Sums(NamedTuple):
    """Some n-grams, and how often they occur."""

    keys: np.ndarray
    total: np.ndarray
    documents: np.ndarray
    first: np.ndarray
    """The first rank that has seen each."""

    def at(self, places: np.ndarray) -> "Sums":
        """Some of them."""
        return Sums(*(column[places] for column in self))


def choose_over_ranks(
    communicator: Communicator, counted: Counted, nr_documents: int, params: TfidfParams
) -> Vocabulary | None:
    """What ``choose`` gives for all documents; all ranks call it together.

    Args:
        communicator: the ranks.
        counted: in this rank's part of the documents.
        nr_documents: all of them.
        params: how to choose.

    Returns:
        The vocabulary on rank 0, None on the others.

    Raises:
        InputError: on all ranks, when no n-gram is in enough documents.
    """
    first = communicator.rank == 0
    sums = add_up(communicator.alltoall(_by_owner(counted, communicator.size)))
    seen = communicator.gather((len(sums.keys), int(sums.documents.max(initial=0))))
    # What is not among an owner's best is not among the best of all.
    candidates = communicator.gather(sums.at(best(sums.keys, sums.total, sums.documents, params)))

    def select() -> Sums | None:
        if not first:
            return None
        found = Sums(*(np.concatenate(columns) for columns in zip(*candidates, strict=True)))
        chosen = found.at(best(found.keys, found.total, found.documents, params))
        if not len(chosen.keys):
            raise nothing_left(sum(n for n, _ in seen), max(most for _, most in seen), nr_documents, params)
        return chosen

    chosen = run_on_all_ranks(communicator, select)
    wanted = None if chosen is None else [chosen.keys[chosen.first == rank] for rank in range(communicator.size)]
    named = communicator.gather(_names(counted, communicator.scatter(wanted)))
    if chosen is None:
        return None
    lines = _in_order(named, chosen.first)
    return vocabulary_of(chosen.keys, chosen.documents, nr_documents, lambda: lines)


def add_up(parts: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Sums:
    """The sums over the ranks, of keys, totals and documents that came from each; the keys ascending."""
    keys, total, documents = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    source = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part[0]) for part in parts])
    order = np.argsort(keys, kind="stable")  # what comes of the first rank stays in front
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)])
    if not len(starts):
        return Sums(keys, total, documents, source)
    return Sums(
        keys[starts],
        np.add.reduceat(total[order], starts),
        np.add.reduceat(documents[order], starts),
        source[order[starts]],
    )


def _by_owner(counted: Counted, size: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """What goes to each rank. Keys are hashes; their lowest bits alone are poor where words repeat."""
    owner = ((counted.keys.astype(np.uint64) >> np.uint64(24)) % np.uint64(size)).astype(np.int32)
    order = np.argsort(owner, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(owner, minlength=size))[:-1])
    return [
        (counted.keys[part], counted.total[part], counted.documents[part].astype(np.int64)) for part in parts
    ]  # fmt: skip


def _names(counted: Counted, keys: np.ndarray) -> bytes:
    """The n-grams of these keys, which this rank has counted, one per line."""
    if not len(keys):
        return b""
    order = np.argsort(keys)
    place = np.minimum(np.searchsorted(keys, counted.keys, sorter=order), len(keys) - 1)
    ours = order[place]
    hit = np.flatnonzero(keys[ours] == counted.keys)
    entries = np.empty(len(keys), np.int64)
    entries[ours[hit]] = hit
    return lines_of(counted, entries)()


def _in_order(named: Sequence[bytes], first: np.ndarray) -> bytes:
    """The names of all features, of which each rank has given those that it was the first to see."""
    lines = np.empty(len(first), object)
    for rank, names in enumerate(named):
        lines[first == rank] = [name + b"\n" for name in names.split(b"\n")[:-1]]
    return b"".join(lines.tolist())
