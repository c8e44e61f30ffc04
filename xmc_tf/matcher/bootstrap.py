"""Initialize a label head: from rankers, parents' rows or centroids, or at random. A rank sets only its own rows."""

import logging
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from keras.initializers import RandomNormal
from scipy.sparse import csc_matrix, csr_matrix

from xmc_tf.collective.tables.initial_values import first_values
from xmc_tf.collective.tables.lookup import lookup
from xmc_tf.collective.tables.table import set_rows
from xmc_tf.data import as_features
from xmc_tf.matcher.head import LabelHead
from xmc_tf.matcher.tasks import LevelTask
from xmc_tf.params import LinearChainParams, LinearLevelParams, RankerParams
from xmc_tf.rankers.fit import train_rankers

logger = logging.getLogger(__name__)

_ROWS_AT_ONCE = 16384
_ROOTS_ROWS = 1024  # at each end of its own rows, a rank may compute up to this many rows of other ranks
_PENALTY = 100.0  # Cp and Cn: little regularization, because embeddings have few dimensions for many documents

# Methods that read the documents' embeddings.
NEED_VECTORS = ("linear", "weighted-linear", "centroid")


def bootstrap(
    head: LabelHead, method: str, *, task: LevelTask, matched: csr_matrix | None = None,
    vectors: np.ndarray | None = None, parent_head: LabelHead | None = None, loss_function: str = "squared-hinge",
    seed: int = 0,
) -> None:  # fmt: skip
    """Set the initial rows of a head by one of five methods. All ranks must call this function.

    linear            the weights of linear rankers that are trained on the documents' embeddings
    weighted-linear   the same, with the loss of each positive multiplied by its weight
    centroid          the mean direction of a node's documents; the bias reflects its share of the parent's documents
    inherit           the row of the node's parent, or random rows at the top level
    no-bootstrap      random rows
    """
    if method == "inherit" and parent_head is None:
        logger.info("%s: the top level has nothing to inherit from and is initialized at random", head.name)
        method = "no-bootstrap"
    low, high = head.own_rows()
    if method == "no-bootstrap":
        # Normally distributed weights and biases of 0, the same on any number of ranks.
        values = first_values(RandomNormal(stddev=0.02), head.name, head.nr_nodes, head.dim, seed)
        assert values is not None
        for begin in range(low, high, _ROWS_AT_ONCE):
            end = min(begin + _ROWS_AT_ONCE, high)
            set_rows(head.table.variable, begin - low, tf.pad(values(begin, end), [[0, 0], [0, 1]]))
    elif method == "inherit":
        assert parent_head is not None
        # Every rank makes as many lookups as the one with the most rows.
        for offset in range(0, int(np.diff(head.table.partition.bounds).max()), _ROWS_AT_ONCE):
            begin, end = min(low + offset, high), min(low + offset + _ROWS_AT_ONCE, high)
            parents = np.searchsorted(task.splits, np.arange(begin, end), side="right") - 1
            rows = lookup(parent_head.table, tf.constant(parents, tf.int64))
            if begin < end:
                set_rows(head.table.variable, begin - low, rows)
    elif method == "centroid":
        assert vectors is not None
        _centroids(head, task, matched, vectors, loss_function)
    else:
        assert vectors is not None
        _solve(head, task, matched, vectors, weighted=method == "weighted-linear", seed=seed)


def _solve(
    head: LabelHead, task: LevelTask, matched: csr_matrix | None, vectors: np.ndarray, *, weighted: bool, seed: int
) -> None:
    """Initialize the head with one-versus-rest rankers, trained on the documents that match each node's parent."""
    X = as_features(head.scaling.apply(vectors))
    targets = task.targets.tocsc()
    of_parents = None if matched is None else csc_matrix(matched)
    level = LinearLevelParams(threshold=0.0, Cp=_PENALTY, Cn=_PENALTY, bias=1.0)
    hlm_args = LinearChainParams(neg_mining_chain="usn", model_chain=level)
    rel_mode = "induce" if weighted else "disable"
    params = RankerParams(mode="ranker", ranker_level=1, rel_mode=rel_mode, hlm_args=hlm_args)
    for begin, end, first, last in _own_blocks(head, task):
        of_block = targets[:, begin:end]
        binary = of_block.copy()
        binary.data[:] = 1
        clusters, negatives = _problem(task, begin, end, first, last, of_parents)
        model = train_rankers(
            X, binary, [clusters], R=of_block if weighted else None, params=params, seed=seed,
            user_negatives={1: negatives} if negatives is not None else None,
        )  # fmt: skip
        _keep_own(head, begin, model.levels[-1].weights.T.toarray())


def _problem(
    task: LevelTask, begin: int, end: int, first: int, last: int, matched: csc_matrix | None
) -> tuple[csc_matrix, csc_matrix | None]:
    """Return a block's clusters (nodes × parents) and its matches (documents × parents; None if all match)."""
    nodes = np.arange(end - begin, dtype=np.int32)
    if matched is None:
        return csc_matrix((np.ones(len(nodes), np.float32), nodes, [0, len(nodes)]), shape=(len(nodes), 1)), None
    # Append a parent without children: the solver would treat a single parent as the root, which all documents match.
    starts = np.concatenate([task.splits[first : last + 1] - begin, [end - begin]])
    clusters = csc_matrix((np.ones(len(nodes), np.float32), nodes, starts), shape=(len(nodes), last - first + 1))
    own = matched[:, first:last]
    parts = own.data, own.indices, np.concatenate([own.indptr, own.indptr[-1:]])
    return clusters, csc_matrix(parts, shape=(matched.shape[0], last - first + 1))


def _centroids(
    head: LabelHead, task: LevelTask, matched: csr_matrix | None, vectors: np.ndarray, loss_function: str
) -> None:
    """Set a node's weights to its documents' mean direction, and its bias from its share of the parent's documents."""
    targets = task.targets.tocsc()
    of_parents = None if matched is None else csc_matrix(matched)
    every_document = np.arange(len(vectors))
    for begin, end, first, last in _own_blocks(head, task):
        for parent in range(first, last):
            low_child, high_child = max(begin, int(task.splits[parent])), min(end, int(task.splits[parent + 1]))
            if low_child == high_child:
                continue
            of_nodes = targets[:, low_child:high_child]
            own = every_document
            if of_parents is not None:
                own = of_parents.indices[of_parents.indptr[parent] : of_parents.indptr[parent + 1]]
            documents = np.union1d(own, of_nodes.indices)
            seen = head.scaling.apply(vectors[documents])
            lengths = np.linalg.norm(seen, axis=1)
            directions = seen / np.maximum(lengths, 1e-12)[:, None]
            belongs = csr_matrix((of_nodes[documents] != 0).astype(np.float32))
            counts = np.asarray(belongs.sum(axis=0)).ravel()
            means = (belongs.T @ directions) / np.maximum(counts, 1.0)[:, None]
            weights = means * (head.scaling.factor / max(float(lengths.mean()) if len(lengths) else 1.0, 1e-12))
            share = (counts + 0.5) / (len(documents) + 1.0)
            aim = np.log(share / (1 - share)) if loss_function == "cross-entropy" else 2 * share - 1
            middle = seen.mean(axis=0) if len(seen) else np.zeros(head.dim, np.float32)
            _keep_own(head, low_child, np.column_stack([weights, aim - weights @ middle]))


def _own_blocks(head: LabelHead, task: LevelTask) -> Iterator[tuple[int, int, int, int]]:
    """Yield (begin, end, first parent, last parent) of blocks that cover this rank's rows. Both ends are exclusive."""
    low, high = head.own_rows()
    if task.nr_parents == 1:
        # The root's children may be split anywhere, but a solver's result depends slightly on the labels that it solves
        # together. So the blocks are the same on any number of ranks, and a rank keeps only its own rows of them.
        for begin in range(low - low % _ROOTS_ROWS, high, _ROOTS_ROWS):
            yield begin, min(begin + _ROOTS_ROWS, head.nr_nodes), 0, 1
        return
    while low < high:
        first = int(np.searchsorted(task.splits, low, side="right")) - 1
        last = max(first + 1, int(np.searchsorted(task.splits, min(low + _ROWS_AT_ONCE, high), side="right")) - 1)
        end = int(task.splits[last])
        yield low, end, first, last
        low = end


def _keep_own(head: LabelHead, begin: int, rows: np.ndarray) -> None:
    """Write ``rows``, which start at node ``begin``, to the head; skip rows that belong to other ranks."""
    low, high = head.own_rows()
    first, last = max(low, begin), min(high, begin + len(rows))
    if first < last:
        own = np.ascontiguousarray(rows[first - begin : last - begin], np.float32)
        set_rows(head.table.variable, first - low, own)
