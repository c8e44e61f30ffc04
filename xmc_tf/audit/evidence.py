"""The evidence for each pair of a document and a label, learned from other documents only.

The evidence does not depend on whether the document has the label: counts leave the document out, and rankers are
trained without it. The evidence for the labels of a document is therefore comparable with that for random labels.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix, vstack

from xmc_tf.audit.cooccurrence import COMPANY, Companions
from xmc_tf.audit.data import AuditData
from xmc_tf.audit.neighbours import ALIKE, alike_documents, unit_rows
from xmc_tf.audit.pairs import LabelPairs, random_pairs
from xmc_tf.label_names import LabelNames, Mentions
from xmc_tf.label_names.find_mentions import find_matches
from xmc_tf.label_names.match_precision import precision_elsewhere

FOLDS = 5
_CELLS = 30_000_000  # similarities at a time, to bound memory
NEIGHBOURS = 50
_COMPANIONS = 15  # labels per document that the other labels suggest
_MOST_RANDOM = 80_000
_NOT_RANKED = 60.0
_LEAST_SCORE = 1e-9
COLUMNS = (
    "score", "margin", "below the best", "best score", "rank", "name", "name present", *COMPANY, "similarity",
    "how alike", "neighbours", "share of neighbours", "nearest", "documents", "words", "score × company",
    "score × name", "similarity × words", *ALIKE,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class PairEvidence:
    """Pairs of a document and a label, with the evidence for each pair."""

    pairs: LabelPairs  # all labels that documents have, random ones, and those that any evidence suggests
    columns: np.ndarray  # float32 [pairs, COLUMNS]
    has: np.ndarray  # bool [pairs]: whether the document has the label
    random: np.ndarray  # bool [pairs]: whether the label was drawn at random
    near: csr_matrix  # the most similar documents: documents × documents
    companions: Companions
    named: csr_matrix  # documents × labels: the precision of the names in the texts; empty without texts or names

    def column(self, name: str) -> np.ndarray:
        return self.columns[:, COLUMNS.index(name)]


def gather_evidence(data: AuditData) -> PairEvidence:
    """Gather the evidence for the labels of documents, for labels that they may lack, and for random labels."""
    Y, count = data.Y, data.Y.shape[0]
    order = np.random.default_rng([data.seed, 0x6175646974]).permutation(count)
    folds = [np.sort(part) for part in np.array_split(order, FOLDS)]
    X = unit_rows(data.sparse)
    named = _named(data, folds)
    companions = Companions(Y)
    drawn = random_pairs(Y, min(1.0, _MOST_RANDOM / max(Y.nnz, 1)), data.seed)
    wanted = [Y, drawn, named, companions.likely(_COMPANIONS)]
    pairs, score, margin, rank = _scores(data, folds, wanted)
    has, random = pairs.values(Y) > 0, pairs.values(drawn) > 0
    best = np.full(count, -np.inf)
    np.maximum.at(best, pairs.rows, score)
    name = pairs.values(named)
    company = companions.evidence(pairs)
    similar = _similarity_to_labels(X, Y, pairs)
    near, alike = alike_documents(X, Y, pairs, has, NEIGHBOURS, data.threads)
    votes, total = pairs.values(csr_matrix(near @ Y)), np.asarray(near.sum(axis=1)).ravel()[pairs.rows]
    documents = np.bincount(Y.indices, minlength=Y.shape[1])[pairs.labels] - has
    words = np.log1p(np.diff(data.sparse.indptr))[pairs.rows]
    columns = (
        score, margin, score - best[pairs.rows], best[pairs.rows], -np.log(rank), name, name > 0, *company.T,
        *similar.T, votes, votes / np.maximum(total, 1e-9), total, np.log1p(documents), words, score * company[:, 0],
        score * name, similar[:, 0] * words, *alike.T,
    )  # fmt: skip
    out = np.empty((len(score), len(COLUMNS)), np.float32)
    for place, column in enumerate(columns):
        out[:, place] = column
    return PairEvidence(pairs, out, has, random & ~has, near, companions, named)


def _named(data: AuditData, folds: list[np.ndarray]) -> csr_matrix:
    """Return a matrix of documents × labels: how likely a label is if its name occurs, learned from the other folds."""
    if data.texts is None or data.names is None:
        return csr_matrix(data.Y.shape, dtype=np.float32)
    names = data.label_names
    if names is None:
        names, _ = LabelNames.learn(data.names, data.texts, data.Y, data.threads, language=data.language)
    found = find_matches(names.index, data.texts, names.reading, data.threads)
    precision = precision_elsewhere(names.index, found, data.Y, folds)
    return Mentions.of(names.index, found, precision).precisions(*data.Y.shape)


def _scores(
    data: AuditData, folds: list[np.ndarray], wanted: list[csr_matrix]
) -> tuple[LabelPairs, np.ndarray, np.ndarray, np.ndarray]:
    """Return all pairs, the logarithms of their scores and sigmoid scores, and their places among the predictions."""
    every = np.arange(data.Y.shape[0])
    found: list[tuple[csr_matrix, ...]] = []
    for fold in folds:
        others = np.setdiff1d(every, fold, assume_unique=True)
        asked = LabelPairs.of(*(csr_matrix(one[fold]) for one in wanted)).matrix(len(fold))
        best, *scores = data.score(others, fold, asked)
        place = np.concatenate([np.arange(1, size + 1, dtype=np.float32) for size in np.diff(best.indptr)])
        found.append((*scores, csr_matrix((place, best.indices, best.indptr), shape=best.shape)))
    back = np.argsort(np.concatenate(folds))
    scores, margins, ranked = (csr_matrix(vstack(parts, format="csr")[back]) for parts in zip(*found, strict=True))
    pairs = LabelPairs.of(scores)
    rank = pairs.values(ranked)
    score, margin = (np.log(np.maximum(pairs.values(one), _LEAST_SCORE)) for one in (scores, margins))
    return pairs, score, margin, np.where(rank > 0, rank, _NOT_RANKED)


def _similarity_to_labels(X: csr_matrix, Y: csr_matrix, pairs: LabelPairs) -> np.ndarray:
    """Return the similarity of each pair's document to the label's other documents, and of those to each other.

    The result is float64 ``[pairs, 2]``.
    """
    documents = np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.float64)
    centroids = csr_matrix(Y.astype(np.float32).T @ X)
    squares = np.asarray(centroids.multiply(centroids).sum(axis=1), np.float64).ravel()
    own = pairs.values(Y) > 0
    dots = np.zeros(len(pairs.rows))
    turned = csr_matrix(centroids.T)
    block = int(np.clip(_CELLS // max(Y.shape[1], 1), 16, 4096))
    for begin in range(0, X.shape[0], block):
        first, last = np.searchsorted(pairs.rows, [begin, begin + block])
        some = LabelPairs(pairs.rows[first:last] - begin, pairs.labels[first:last], pairs.nr_labels)
        dots[first:last] = some.values(csr_matrix(X[begin : begin + block] @ turned))
    length = np.asarray(X.multiply(X).sum(axis=1), np.float64).ravel()[pairs.rows]
    others = documents[pairs.labels] - own
    left = np.maximum(squares[pairs.labels] - own * (2 * dots - length), 0.0)
    dots = np.maximum(dots - own * length, 0.0)
    cosine = np.divide(dots, np.sqrt(left), out=np.zeros(len(dots)), where=left > 1e-9)
    alike = np.clip((left - others) / np.maximum(others * (others - 1), 1.0), 0.0, 1.0)
    return np.column_stack([cosine, alike])
