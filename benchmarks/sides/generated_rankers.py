"""A generated linear model with Zipf-distributed labels, in which no ranker is trained.

Each label has at least one document; further documents fall on labels by Zipf's law. A document has words that are
frequent everywhere, words of its cluster and of the clusters above, and rare words. A ranker has random weights for the
words of its own documents and of some documents of its siblings; so has a trained ranker, whose weights are sums over
documents. To be fast, this is done for a sixteenth of the labels; the others are copies with weights of another scale.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.sparse import block_diag, csc_matrix, csr_matrix, hstack, vstack

from xmc_tf.data import save_matrix
from xmc_tf.features import Tfidf
from xmc_tf.models.linear.parts import LinearParts, write_model
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.params import LinearLevelPredParams, TfidfParams
from xmc_tf.rankers.level import Level
from xmc_tf.rankers.xlinear import XLinear
from xmc_tf.tree import LabelTree

_FEATURES = 1_000_000
_WORDS = 20  # of a document
_LEAF = 98  # labels of a cluster
_SPLITS = 16
_OWN, _OTHER = 16, 12  # documents of a label, and of its siblings, that have an effect on its weights
_COPIES = 16
_OTHER_ABOVE = 1  # for a node above the labels: documents of its siblings, per own document


def write_generated(folder: Path, nr_labels: int, queries: int, seed: int = 0) -> None:
    """Write a model that reads text to ``folder/model``, and queries to ``folder/queries.txt`` and ``.npz``."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    levels, D = _trained_like(random, nr_labels // _COPIES)
    levels = _copied(random, levels)
    nr_labels = levels[-1].clusters.shape[0]
    tfidf = _vectorizer(random)
    names = [f"label number {label}" for label in range(nr_labels)]
    tree = LabelTree.from_chain([level.clusters for level in levels])
    content = {
        "model": "XLinear", "nr_features": _FEATURES, "nr_labels": nr_labels, "versions": {"xmc_tf": ""}, "seed": seed,
        "tfidf_params": {},
    }  # fmt: skip
    ranker = XLinear(levels, _FEATURES, 0)
    model = LinearParts(ranker, tree, names, ModelMetadata(content))
    write_model(folder / "model", model, [ranker.save], tfidf.save)
    chosen = np.sort(random.choice(D.shape[0], queries, replace=False))
    save_matrix(folder / "queries.npz", D[chosen])
    words = np.array(tfidf.names)
    lines = [" ".join(words[D.indices[D.indptr[row] : D.indptr[row + 1]]]) for row in chosen]
    (folder / "queries.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _trained_like(random: np.random.Generator, nr_labels: int) -> tuple[list[Level], csr_matrix]:
    """Return rankers of some labels, and the documents × features on which they would have been trained."""
    sizes = [max(1, nr_labels // _LEAF)]
    while sizes[0] > 2 * _SPLITS:
        sizes.insert(0, -(-sizes[0] // _SPLITS))
    splits = [_even(below, above) for above, below in pairwise([1, *sizes, nr_labels])]
    own = 1 + np.bincount(_zipf(random, nr_labels, nr_labels // 2), minlength=nr_labels)
    own = np.minimum(random.permutation(own), 1000)
    first = np.concatenate([[0], np.cumsum(own)])  # of each label's documents
    D = _documents(random, first[splits[-1]], sizes[-1])
    levels = []
    for number, split in enumerate(splits):
        last, nodes = number == len(splits) - 1, int(split[-1])
        bounds = first
        for lower in reversed(splits[number + 1 :]):
            bounds = bounds[lower]
        W = _weights(random, D, bounds, split, last)
        parents = np.repeat(np.arange(len(split) - 1, dtype=np.int32), np.diff(split))
        C = csc_matrix((np.ones(nodes, np.float32), (np.arange(nodes, dtype=np.int32), parents)))
        levels.append(Level(W, C, 1.0, LinearLevelPredParams(20 if last else 10, "l3-hinge")))
    return levels, D


def _copied(random: np.random.Generator, levels: list[Level]) -> list[Level]:
    """Return rankers of the same tree several times, below a level with a node for each copy."""
    top = np.asarray(levels[0].weights.sum(axis=1), np.float32)
    columns = csc_matrix(np.repeat(top, _COPIES, axis=1) * random.random(_COPIES, np.float32))
    pred = levels[0].pred_params
    out = [Level(columns, csc_matrix(np.ones((_COPIES, 1), np.float32)), 1.0, pred)]
    for level in levels:
        scales = random.random(_COPIES, np.float32) + 0.5
        one = level.weights
        W = csc_matrix((one.shape[0], one.shape[1] * _COPIES), dtype=np.float32)
        W.data = np.concatenate([one.data * scale for scale in scales])
        W.indices = np.tile(one.indices, _COPIES)
        W.indptr = np.concatenate([[0], np.cumsum(np.tile(np.diff(one.indptr), _COPIES))]).astype(np.int32)
        W.has_canonical_format = True
        C = csc_matrix(block_diag([level.clusters] * _COPIES, format="csc"))
        out.append(Level(W, C, 1.0, level.pred_params))
    return out


def _even(count: int, parts: int) -> np.ndarray:
    return np.linspace(0, count, parts + 1).astype(np.int64)


def _zipf(random: np.random.Generator, values: int, count: int) -> np.ndarray:
    """Return numbers from 0 to ``values``, the probability of each being inverse to its rank."""
    return (np.exp(random.random(count, np.float32) * np.log(values)) - 1).astype(np.int64)


def _documents(random: np.random.Generator, bounds: np.ndarray, clusters: int) -> csr_matrix:
    """Return documents × features, those of each cluster one after the other, from ``bounds`` on."""
    cluster = np.repeat(np.arange(clusters), np.diff(bounds))
    count = len(cluster)
    columns = []
    for topic, vocabulary, words in ((cluster, 400, 7), (cluster // _SPLITS, 2_000, 4), (None, 30_000, 6)):
        drawn = _zipf(random, vocabulary, count * words).reshape(count, words)
        if topic is None:
            columns.append(drawn)
        else:  # a topic's words are scattered over all features
            columns.append((topic[:, None] * 7919 + drawn * 104_729 + vocabulary) % _FEATURES)
    columns.append(random.integers(0, _FEATURES, (count, _WORDS - sum(one.shape[1] for one in columns))))
    indices = np.concatenate(columns, axis=1).astype(np.int32).ravel()
    values = random.random(count * _WORDS, np.float32) * 0.2 + 0.13
    D = csr_matrix((values, indices, np.arange(0, len(indices) + 1, _WORDS)), (count, _FEATURES))
    D.sum_duplicates()
    return D


def _weights(
    random: np.random.Generator, D: csr_matrix, bounds: np.ndarray, split: np.ndarray, last: bool
) -> csc_matrix:
    """Return the weights of a level's nodes, whose documents begin at ``bounds`` and whose siblings at ``split``."""
    pieces = []
    step = max(1, (1 << 22) // max(1, int(bounds[-1] // (len(split) - 1))))
    for begin in range(0, len(split) - 1, step):
        end = min(begin + step, len(split) - 1)
        nodes = np.arange(split[begin], split[end])
        family = np.repeat(np.arange(begin, end), np.diff(split[begin : end + 1]))
        own = bounds[nodes + 1] - bounds[nodes]
        if last:
            own = np.minimum(own, _OWN)
        others = np.full(len(nodes), _OTHER) if last else own * _OTHER_ABOVE
        documents = np.concatenate([
            np.repeat(bounds[nodes], own) + np.arange(own.sum()) - np.repeat(np.cumsum(own) - own, own),
            _between(random, bounds[split[family]], bounds[split[family + 1]], others),
        ])  # fmt: skip
        rows = np.concatenate([np.repeat(np.arange(len(nodes)), own), np.repeat(np.arange(len(nodes)), others)])
        signs = np.concatenate([np.ones(own.sum(), np.float32), np.full(others.sum(), -1, np.float32)])
        alpha = csr_matrix((signs * random.random(len(signs), np.float32), (rows, documents - bounds[nodes[0]])),
                           (len(nodes), bounds[nodes[-1] + 1] - bounds[nodes[0]]))  # fmt: skip
        W = alpha @ D[bounds[nodes[0]] : bounds[nodes[-1] + 1]]
        bias = csr_matrix(np.full((len(nodes), 1), -0.3, np.float32))
        W = csr_matrix(hstack([W, bias], format="csr"))
        W.sort_indices()
        pieces.append(W)
    return csc_matrix(vstack(pieces, format="csr", dtype=np.float32).T)


def _between(random: np.random.Generator, low: np.ndarray, high: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return ``counts`` random numbers from ``low`` to ``high`` each."""
    low, high = np.repeat(low, counts), np.repeat(high, counts)
    return low + (random.random(len(low)) * (high - low)).astype(np.int64)


def _vectorizer(random: np.random.Generator) -> Tfidf:
    """Return a TF-IDF with a word for each feature."""
    words = [f"word{number}" for number in random.permutation(_FEATURES)]
    texts = [" ".join(words[at : at + 100]) for at in range(0, _FEATURES, 100)]
    return Tfidf.fit(texts, TfidfParams.plain(ngram_max=1, min_df=1, max_features=_FEATURES))
