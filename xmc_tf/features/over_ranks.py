"""TF-IDF on several ranks, each of which processes some documents; the files equal those of a single process."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.progress import Progress
from xmc_tf.common.serialization import register
from xmc_tf.data import TextFile, Texts, kinds_of_texts
from xmc_tf.data.text import FileRange
from xmc_tf.features import store
from xmc_tf.features.counts import NgramCounts
from xmc_tf.features.tfidf import Tfidf, count_terms, resolved, weighted
from xmc_tf.features.vocabulary import FeatureBlock, best, lines_of, no_features_error, vocabulary_of
from xmc_tf.params import TfidfParams
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.ranks.partition import balanced
from xmc_tf.ranks.stacking import remove_from_all_ranks, stack_rows
from xmc_tf.store.arrays import open_sparse, save_sparse

# Number of documents weighed and written at a time, which bounds a rank's memory.
DOCUMENTS_PER_PIECE = 100_000


@register
class NgramSums(NamedTuple):
    """N-grams and their counts."""

    keys: np.ndarray
    total: np.ndarray
    documents: np.ndarray
    first: np.ndarray  # the lowest rank that has seen each n-gram; it provides the name

    def at(self, places: np.ndarray) -> "NgramSums":
        return NgramSums(*(column[places] for column in self))


# Each n-gram's key determines its owner among the ranks, which adds up its counts and keeps at most ``max_features``
# candidates. Rank 0 chooses among them, so no rank ever holds all n-grams.
def _choose(
    communicator: Communicator, counted: NgramCounts, nr_documents: int, params: TfidfParams, weight: float = 1.0,
    *, required: bool = False,
) -> FeatureBlock | None:  # fmt: skip
    """Choose features as ``choose_block`` does, but from the documents of all ranks. All ranks must call it.

    Rank 0 gets the result, all others None.
    """
    first = communicator.rank == 0
    # Keys are hashes, but their lowest bits are poorly distributed if words repeat.
    owner = ((counted.keys.astype(np.uint64) >> np.uint64(24)) % np.uint64(communicator.size)).astype(np.int32)
    owned = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner, minlength=communicator.size))[:-1])
    columns = (counted.keys, counted.total, counted.documents.astype(np.int64))
    sums = add_up(communicator.alltoall([tuple(column[part] for column in columns) for part in owned]))
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
    wanted = [] if chosen is None else [chosen.keys[chosen.first == rank] for rank in range(communicator.size)]
    named = communicator.gather(_names(counted, communicator.broadcast(wanted)[communicator.rank]))
    if chosen is None:
        return None
    lines = np.empty(len(chosen.first), object)
    for rank, names in enumerate(named):
        lines[chosen.first == rank] = [name + b"\n" for name in names.split(b"\n")[:-1]]
    return FeatureBlock(chosen.keys, chosen.documents, weight, partial(b"".join, lines.tolist()))


def add_up(parts: Sequence[tuple[np.ndarray, ...]]) -> NgramSums:
    """Add up the totals and document counts of all ranks for each key; the keys are ascending."""
    keys, total, documents = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    source = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part[0]) for part in parts])
    order = np.argsort(keys, kind="stable")  # stable: entries of lower ranks stay first
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)])
    if not len(starts):
        return NgramSums(keys, total, documents, source)
    total, documents = (np.add.reduceat(column[order], starts) for column in (total, documents))
    return NgramSums(keys[starts], total, documents, source[order[starts]])


def _names(counted: NgramCounts, keys: np.ndarray) -> bytes:
    """Return the names of n-grams that this rank has counted, one per line, in the order of ``keys``."""
    if not len(keys):
        return b""
    order = np.argsort(keys)
    place = np.minimum(np.searchsorted(keys, counted.keys, sorter=order), len(keys) - 1)
    ours = order[place]
    hit = np.flatnonzero(keys[ours] == counted.keys)
    entries = np.empty(len(keys), np.int64)
    entries[ours[hit]] = hit
    return lines_of(counted, entries)()


def vectorize_over_ranks(
    communicator: Communicator, texts: Texts, params: TfidfParams, folder: Path, target: Path, *, threads: int = -1
) -> csr_matrix:
    """Fit a TF-IDF, save it to ``folder``, and save the features of the texts to ``target``; resume if interrupted.

    All ranks must call it, and all get the features.
    """
    sizes = np.asarray(texts.lengths) if hasattr(texts, "lengths") else np.ones(len(texts), np.int64)
    bounds = balanced(sizes + 1, communicator.size).range(communicator.rank)
    if not communicator.broadcast((folder / "params.json").exists()):
        _fit(communicator, texts, bounds, params, folder, threads)
    if not communicator.broadcast(target.exists()):
        _transform(communicator, texts, bounds, folder, target, threads)
    return run_on_all_ranks(communicator, lambda: csr_matrix(open_sparse(target)))


def _range(texts: Texts, first: int, last: int) -> Texts:
    return FileRange(texts, first, last) if isinstance(texts, TextFile) else texts[first:last]


def _fit(
    communicator: Communicator, texts: Texts, bounds: tuple[int, int], params: TfidfParams, folder: Path, threads: int
) -> None:
    first = communicator.rank == 0
    mine = _range(texts, *bounds)
    # Rank 0 detects the language and prepares its dictionary, unless it is cached.
    found = run_on_all_ranks(communicator, lambda: resolved(params, texts)[0] if first else None)
    params = TfidfParams.from_json(communicator.broadcast((found or params).to_json()))
    lexicon = run_on_all_ranks(communicator, lambda: resolved(params, texts)[1])
    quiet_s = 2.0 if first else float("inf")
    with Progress("TF-IDF: counting words", len(mine), kinds_of_texts(texts), quiet_s) as progress:
        counts = run_on_all_ranks(communicator, lambda: count_terms(mine, params, lexicon, threads, progress))
    params = weighted(params, sum(communicator.allgather(counts.nr_words)), len(texts))
    blocks = [_choose(communicator, counts.ngrams, len(texts), params, required=True)]
    if params.pieces:
        blocks.append(_choose(communicator, counts.pieces, len(texts), params, params.piece_weight or 0.0))

    def save() -> None:
        if first:
            vocabulary = vocabulary_of([block for block in blocks if block is not None], len(texts))
            store.save(folder, params, vocabulary, len(texts), lexicon.reduced(vocabulary.keys))

    run_on_all_ranks(communicator, save)


def _transform(
    communicator: Communicator, texts: Texts, bounds: tuple[int, int], folder: Path, target: Path, threads: int
) -> None:
    cuts = [*range(bounds[0], bounds[1], DOCUMENTS_PER_PIECE), bounds[1]]
    # A text's features do not depend on other texts, so the cuts do not change the result.
    pieces = [(a, b, target.with_name(f"{target.name}-{a}-{b}")) for a, b in pairwise(cuts)]

    def weigh() -> None:
        tfidf = Tfidf.load(folder)
        for a, b, piece in pieces:
            if not piece.exists():
                save_sparse(piece, tfidf.transform(_range(texts, a, b), threads, quiet=communicator.rank != 0))

    run_on_all_ranks(communicator, weigh)
    if len(mine := [piece for *_, piece in pieces]) == communicator.size == 1:
        run_on_all_ranks(communicator, lambda: mine[0].replace(target))
    else:
        stack_rows(communicator, mine, target)
    # Pieces of other ranks of an interrupted run are removed too.
    leftovers = target.parent.glob(f"{target.name}-*-*") if communicator.rank == 0 else []
    remove_from_all_ranks(communicator, leftovers)
