"""The fine-tuned matcher: an encoder, and a sharded head for every level that it was trained on."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf
from scipy.sparse import csr_matrix, spmatrix

from xmc_tf.collective.checkpoints.checkpoint import load_tables, save_tables
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import parse_json
from xmc_tf.data import TokenStore
from xmc_tf.matcher.fine_tune import LevelResult
from xmc_tf.matcher.head import LabelHead
from xmc_tf.matcher.levels import deepest_level
from xmc_tf.matcher.predict_levels import head_blocks, predict_level
from xmc_tf.matcher.training import LevelByLevel, Validation
from xmc_tf.params import MatcherParams, MatcherPredParams
from xmc_tf.tree import LabelTree

_FORMAT = "xmc_tf.matcher"
_PAIRS_AT_ONCE = 1 << 16  # scored together where rows and documents are paired one by one


class Matcher:
    """Scores documents against the nodes of a tree, by what an encoder makes of their texts.

    What takes vectors takes them as the encoder gives them, each rank those of its own documents, and is called by
    all ranks together.

    Example:
        >>> matcher = Matcher.train(strategy, encoder, tokenizer.pad_id, store, tree, Y, params, folder="work/matcher")
        >>> best = matcher.predict(encode_documents(matcher.encoder, test_store), only_topk=5)
        >>> matcher.save("model/head")

    Args:
        strategy: the ranks.
        heads: of the levels from the top down to the last one that was fine-tuned.
        splits: for each of them, where the children of the level above begin and where the last ones end.
        labels: the label at each node of the last level, where its nodes are labels; None where they are clusters.
        encoder: what the heads belong to; None where only vectors come.

    Attributes:
        results: how each level's training went, for a matcher that was trained in this process.
    """

    def __init__(
        self,
        strategy: CollectiveStrategy,
        heads: Sequence[LabelHead],
        splits: Sequence[np.ndarray],
        labels: np.ndarray | None,
        encoder: Any = None,
    ) -> None:
        self.strategy, self.heads, self.encoder = strategy, list(heads), encoder
        self.splits = [np.asarray(one, np.int64) for one in splits]
        self.labels = None if labels is None else np.asarray(labels, np.int64)
        self.results: list[LevelResult] = []

    @classmethod
    def train(
        cls,
        strategy: CollectiveStrategy,
        encoder: Any,
        pad_id: int,
        store: TokenStore,
        tree: LabelTree,
        Y: spmatrix,
        params: MatcherParams | Sequence[MatcherParams],
        pred_params: MatcherPredParams | Sequence[MatcherPredParams] | None = None,
        *,
        folder: str | Path,
        weights: spmatrix | None = None,
        max_match_clusters: int = 32768,
        validation: Validation | None = None,
        rows: np.ndarray | None = None,
        seed: int = 0,
        logdir: str | Path | None = None,
        names: Sequence[str] | None = None,
    ) -> Self:
        """Fine-tunes encoder and heads level by level; resumes an interrupted call with this folder.

        With ``negative_sampling`` "all" the last level alone is trained on, under one root: it needs no level above to
        choose its candidates.

        Args:
            strategy: the ranks, all of which call it together.
            encoder: what is fine-tuned, in place.
            pad_id: of its tokenizer.
            store: the tokens of the training documents.
            tree: over the labels.
            Y: documents × labels.
            params: of all levels, or one for each.
            pred_params: how the levels predict, for negatives from the level above and for validation.
            folder: for checkpoints and what each level has come to; one that all hosts see. To be removed by the
                caller in the end.
            weights: relevance of the labels, with Y's entries, for the weighted losses and the weighted bootstrap;
                without, a node weighs as many labels of the document as it holds.
            max_match_clusters: the most nodes of a level that is fine-tuned on.
            validation: documents to validate on; the best state of each level is what remains.
            rows: the documents to train on, where some are held out; None for all.
            seed: of all that is drawn.
            logdir: TensorBoard's folder.
            names: of the labels, for what TensorBoard shows.
        """
        pred_params = pred_params or MatcherPredParams()
        if _last(params).negative_sampling == "all":
            tree = tree.under_one_root(deepest_level(tree, max_match_clusters))
            params, pred_params = _last(params), _last(pred_params)
            max_match_clusters = tree.level_sizes[1]
        levels = LevelByLevel(
            strategy,
            encoder,
            pad_id,
            store,
            tree,
            Y,
            params,
            pred_params,
            Path(folder),
            weights,
            max_match_clusters,
            validation,
            rows,
            seed,
            logdir,
            names,
        )
        heads, results = levels.train()
        labels = tree.labels if len(heads) == tree.depth else None
        matcher = cls(strategy, heads, tree.splits[: len(heads)], labels, encoder)
        matcher.results = results
        return matcher

    def __repr__(self) -> str:
        sizes = " > ".join(f"{head.nr_nodes:,}" for head in self.heads)
        return f"Matcher({sizes} nodes)"

    @property
    def head(self) -> LabelHead:
        """Of the last level."""
        return self.heads[-1]

    @property
    def level(self) -> int:
        """The number of the last level in the tree, 1 for the children of the root."""
        return len(self.heads)

    @property
    def nr_nodes(self) -> int:
        """Of the last level."""
        return self.head.nr_nodes

    def predict(
        self,
        vectors: np.ndarray,
        *,
        only_topk: int = 20,
        beam_size: int = 20,
        post_processor: str = "noop",
        parents: csr_matrix | None = None,
        only_labels: np.ndarray | None = None,
    ) -> csr_matrix:
        """The best nodes of the last level, by beam search through the heads.

        Args:
            vectors: ``[documents, dim]``.
            only_topk: how many nodes a document gets.
            beam_size: how many it keeps at the levels above.
            post_processor: what becomes of a score before it is chained.
            parents: documents × nodes of the level above the last, with scores, where another search has found them;
                only their children are scored then.
            only_labels: numbers of the labels that may be predicted, where the last level is that of the labels; the
                search keeps only nodes that lead to them.

        Returns:
            Documents × nodes in the order of the tree, the best first within a row; see ``to_labels``.
        """
        kept = [None] * self.level if only_labels is None else self._leading_to(only_labels)
        if parents is None:
            for head, splits, own in zip(self.heads[:-1], self.splits[:-1], kept, strict=False):
                parents = predict_level(
                    head, vectors, parents, splits, only_topk=beam_size, post_processor=post_processor, kept=own
                )
        return predict_level(
            self.head, vectors, parents, self.splits[-1], only_topk=only_topk, post_processor=post_processor,
            kept=kept[-1],
        )  # fmt: skip

    def scores(self, vectors: np.ndarray, nodes: csr_matrix | None = None) -> csr_matrix | np.ndarray:
        """Raw scores of the last level.

        Args:
            vectors: ``[documents, dim]``.
            nodes: documents × nodes in the order of the tree, with an entry for each score that is wanted; None for
                all nodes.

        Returns:
            A matrix with the entries of ``nodes``, or an array ``[documents, nodes]``.
        """
        if nodes is None:
            inputs = self.head.inputs(vectors).numpy()
            out = np.empty((len(vectors), self.nr_nodes), np.float32)
            for low, rows in head_blocks(self.head, self.splits[-1]):
                out[:, low : low + len(rows)] = inputs @ rows[:, :-1].T + rows[:, -1]
            return out
        if nodes.shape != (len(vectors), self.nr_nodes):
            raise InputError(
                "the nodes to score do not fit",
                expected=f"{len(vectors):,} documents × {self.nr_nodes:,} nodes",
                received=f"{nodes.shape[0]:,} × {nodes.shape[1]:,}",
            )
        found = np.empty(len(nodes.indices), np.float32)
        for low, high in self._pairs_at_once(nodes.indptr):
            begin, end = int(nodes.indptr[low]), int(nodes.indptr[high])
            wanted = tf.RaggedTensor.from_row_splits(
                nodes.indices[begin:end].astype(np.int64), (nodes.indptr[low : high + 1] - begin).astype(np.int64)
            )
            found[begin:end] = self.head.scores(tf.constant(vectors[low:high]), wanted).flat_values.numpy()
        return csr_matrix((found, nodes.indices, nodes.indptr), shape=nodes.shape)

    def to_labels(self, predicted: csr_matrix) -> csr_matrix:
        """The same scores with labels as columns instead of nodes."""
        if self.labels is None:
            raise InputError(
                f"level {self.level}, the last that was fine-tuned, is above the labels",
                expected="a matcher of the label level",
                fix="raise max_match_clusters, or use the rankers' scores (concat-only)",
            )
        parts = predicted.data, self.labels[predicted.indices], predicted.indptr
        return csr_matrix(parts, shape=predicted.shape)

    def nodes_of(self, labels: csr_matrix) -> csr_matrix:
        """The opposite of ``to_labels``, for scores that are wanted of certain labels."""
        if self.labels is None:
            return self.to_labels(labels)  # says why not
        position = np.empty_like(self.labels)
        position[self.labels] = np.arange(len(position))
        return csr_matrix((labels.data, position[labels.indices], labels.indptr), shape=labels.shape)

    def save(self, folder: str | Path) -> None:
        """Writes the heads, each rank its rows; all ranks call it together. The encoder is saved by itself.

        Args:
            folder: that all hosts see.
        """
        about = {
            "format": _FORMAT,
            "version": 1,
            "dim": self.head.dim,
            "normalize": [head.normalize for head in self.heads],
            "scale": [head.scale for head in self.heads],
        }
        extra = {"about": np.array(json.dumps(about))}
        extra |= {f"splits/{number}": splits for number, splits in enumerate(self.splits)}
        if self.labels is not None:
            extra["labels"] = self.labels
        save_tables(folder, [head.table for head in self.heads], self.strategy.communicator, extra)

    @classmethod
    def load(cls, folder: str | Path, strategy: CollectiveStrategy, encoder: Any = None) -> Self:
        """Reads what ``save`` wrote, on any number of ranks, each its rows.

        Args:
            folder: that was saved to.
            strategy: the ranks, all of which call it together.
            encoder: what the heads belong to, if it is wanted.

        Raises:
            InputError: when a file is missing or damaged, or the folder is something else.
        """
        found = load_tables(folder, [], strategy.communicator)
        about = parse_json(str(found["about"]), of=f"{folder}: about") if "about" in found else {}
        if about.get("format") != _FORMAT or about.get("version") != 1:
            raise InputError(f"{folder} is not a label head", expected="a folder that Matcher.save wrote")
        _check_about(about, found, folder)
        splits = [found[f"splits/{number}"] for number in range(len(about["scale"]))]
        heads = [
            LabelHead(
                strategy,
                f"head/level_{number + 1}",
                int(one[-1]),
                about["dim"],
                one,
                normalize=about["normalize"][number],
                scale=about["scale"][number],
            )
            for number, one in enumerate(splits)
        ]
        load_tables(folder, [head.table for head in heads], strategy.communicator, slots=False)
        return cls(strategy, heads, splits, found.get("labels"), encoder)

    def _leading_to(self, labels: np.ndarray) -> list[np.ndarray]:
        """For each level which of its nodes lead to one of the labels."""
        chosen = np.zeros(self.nr_nodes, bool)
        chosen[labels] = True
        kept = [chosen if self.labels is None else chosen[self.labels]]
        for splits in self.splits[:0:-1]:
            kept.insert(0, np.diff(np.concatenate([[0], np.cumsum(kept[0])])[splits]) > 0)
        return kept

    def _pairs_at_once(self, indptr: np.ndarray) -> list[tuple[int, int]]:
        """Ranges of documents with not too many pairs; as many on every rank, the last ones maybe empty."""
        ranges, low = [], 0
        while low < len(indptr) - 1:
            high = max(low + 1, int(np.searchsorted(indptr, indptr[low] + _PAIRS_AT_ONCE, side="right")) - 1)
            ranges.append((low, high))
            low = high
        most = int(self.strategy.communicator.allreduce_array(np.array([len(ranges)]), "max")[0])
        return ranges + [(low, low)] * (most - len(ranges))


def _check_about(about: dict[str, Any], found: dict[str, Any], folder: str | Path) -> None:
    """Refuses a description that does not belong to the arrays beside it."""
    scale, normalize = about.get("scale"), about.get("normalize")
    right = (
        type(about.get("dim")) is int
        and isinstance(scale, list)
        and isinstance(normalize, list)
        and len(scale) == len(normalize)
        and all(type(one) in (int, float) for one in scale)
        and all(f"splits/{number}" in found for number in range(len(scale)))
    )
    if not right:
        raise InputError(f"{folder}: the label head's description is damaged", fix="copy the model again")


def _last(params: Any) -> Any:
    """Of the last level, where there is one for each."""
    return params if isinstance(params, MatcherParams | MatcherPredParams) else params[-1]
