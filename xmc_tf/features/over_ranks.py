"""TF-IDF over ranks: each rank counts and weighs a range of the documents; the files equal those of one process."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.progress import Progress
from xmc_tf.data import save_matrix
from xmc_tf.data.npz.stored import open_matrix
from xmc_tf.features import store
from xmc_tf.features.batches import text_range
from xmc_tf.features.merging import choose_over_ranks
from xmc_tf.features.tfidf import Tfidf, count_terms, resolved, weighted
from xmc_tf.params import TfidfParams
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.joint_files import remove_from_all_ranks
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.ranks.partition import balanced
from xmc_tf.ranks.stacking import stack_rows

if TYPE_CHECKING:
    from xmc_tf.data import TextFile

# Number of documents weighed and written at a time, which bounds a rank's memory.
DOCUMENTS_PER_PIECE = 100_000


def vectorize_over_ranks(
    communicator: Communicator,
    texts: "TextFile | Sequence[bytes] | Sequence[str]",
    params: TfidfParams,
    folder: Path,
    target: Path,
    *,
    threads: int = -1,
) -> csr_matrix:
    """Fit a TF-IDF to texts and compute their features; all ranks call it.

    Example:
        >>> X = vectorize_over_ranks(choose_communicator(), texts, TfidfParams(), work / "features", work / "X.npz")

    Args:
        communicator: the ranks.
        texts: all texts, the same on all ranks.
        params: how to split and weigh words.
        folder: the folder of the fitted TF-IDF, as written by ``Tfidf.fit(texts, params).save(folder)``. An existing
            one is used.
        target: the file of the features, as written by ``save_matrix`` for ``transform(texts)``, in a folder that all
            ranks share. Pieces left beside it by an interrupted run are used.
        threads: number of threads of this rank; -1: one per core.

    Returns:
        The features, mapped from the file.

    Raises:
        InputError: on all ranks, if no n-gram occurs in ``min_df`` documents.
    """
    sizes = np.asarray(texts.lengths) if hasattr(texts, "lengths") else np.ones(len(texts), np.int64)
    bounds = balanced(sizes + 1, communicator.size).range(communicator.rank)
    if not communicator.broadcast((folder / "params.json").exists()):
        _fit(communicator, texts, bounds, params, folder, threads)
    if not communicator.broadcast(target.exists()):
        _transform(communicator, texts, bounds, folder, target, threads)
    return run_on_all_ranks(communicator, lambda: csr_matrix(open_matrix(target)))


def _fit(
    communicator: Communicator,
    texts: "TextFile | Sequence[bytes] | Sequence[str]",
    bounds: tuple[int, int],
    params: TfidfParams,
    folder: Path,
    threads: int,
) -> None:
    first = communicator.rank == 0
    mine = text_range(texts, *bounds)
    # Rank 0 finds the language, and prepares its dictionary if that has not been done.
    found = run_on_all_ranks(communicator, lambda: resolved(params, texts)[0] if first else None)
    params = TfidfParams.from_json(communicator.broadcast((found or params).to_json()))
    lexicon = run_on_all_ranks(communicator, lambda: resolved(params, texts)[1])
    with Progress("TF-IDF: counting words", len(mine), "documents", 2.0 if first else float("inf")) as progress:
        counts = run_on_all_ranks(communicator, lambda: count_terms(mine, params, lexicon, threads, progress))
    params = weighted(params, sum(communicator.allgather(counts.nr_words)), len(texts))
    vocabulary = choose_over_ranks(communicator, counts, len(texts), params)

    def save() -> None:
        if vocabulary is not None:
            store.save(folder, params, vocabulary, len(texts), lexicon.reduced(vocabulary.keys))

    run_on_all_ranks(communicator, save)


def _transform(
    communicator: Communicator,
    texts: "TextFile | Sequence[bytes] | Sequence[str]",
    bounds: tuple[int, int],
    folder: Path,
    target: Path,
    threads: int,
) -> None:
    cuts = [*range(bounds[0], bounds[1], DOCUMENTS_PER_PIECE), bounds[1]]
    # A text's features do not depend on other texts, so the cuts do not change the result.
    pieces = [(a, b, target.with_name(f"{target.stem}-{a}-{b}.npz")) for a, b in pairwise(cuts)]

    def weigh() -> None:
        tfidf = Tfidf.load(folder)
        for a, b, piece in pieces:
            if not piece.exists():
                rows = tfidf.transform(text_range(texts, a, b), threads, quiet=communicator.rank != 0)
                save_matrix(piece, rows)

    run_on_all_ranks(communicator, weigh)
    if len(mine := [piece for *_, piece in pieces]) == communicator.size == 1:
        run_on_all_ranks(communicator, lambda: mine[0].replace(target))
    else:
        stack_rows(communicator, mine, target)
    # Pieces of other ranks of an interrupted run are removed too.
    leftovers = target.parent.glob(f"{target.stem}-*-*.npz") if communicator.rank == 0 else []
    remove_from_all_ranks(communicator, leftovers)
