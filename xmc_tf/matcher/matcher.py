"""The fine-tuned matcher: an encoder, and a sharded head for each level that was fine-tuned."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.collective.checkpoints.checkpoint import load_tables, save_tables
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import parse_json
from xmc_tf.matcher.fine_tune import LevelResult
from xmc_tf.matcher.head import LabelHead, Scaling
from xmc_tf.matcher.levels import MatcherData, MatcherSettings, deepest_level
from xmc_tf.matcher.predict_levels import predict_level
from xmc_tf.matcher.training import LevelByLevel
from xmc_tf.params import MatcherParams, MatcherPredParams

_FORMAT = "xmc_tf.matcher"


class Matcher:
    """A model that scores documents against the nodes of a tree by the embeddings of their texts.

    Call the methods that take embeddings on all ranks, each rank with the embeddings of its own documents.

    Example:
        >>> data = MatcherData(store, Y, tree, tokenizer.pad_id)
        >>> matcher = Matcher.train(strategy, encoder, data, MatcherSettings(params), folder="work/matcher")
        >>> best = matcher.predict(encode_documents(matcher.encoder, test_store), only_topk=5)
        >>> matcher.save("model/head")

    Args:
        strategy: the ranks.
        heads: heads of the levels, from the top to the last level that was fine-tuned.
        splits: for each level, the first child of each node of the level above, then the number of nodes.
        labels: label of each node of the last level; None if its nodes are clusters.
        encoder: encoder of the embeddings; optional, because no method calls it.

    Attributes:
        results: results of the levels' training, if the matcher was trained in this process.
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
        data: MatcherData,
        settings: MatcherSettings,
        *,
        folder: str | Path,
        logdir: str | Path | None = None,
    ) -> Self:
        """Fine-tune encoder and heads level by level; resume if an earlier call with this folder was interrupted.

        Call it on all ranks. With ``negative_sampling="all"``, only the last level is trained, under one root: its
        candidates do not depend on a level above.

        Args:
            strategy: the ranks.
            encoder: the encoder, which is fine-tuned in place.
            data: documents, labels and tree.
            settings: parameters and seed.
            folder: folder for checkpoints and the results of the levels, on a disk that all hosts share. The caller
                removes it.
            logdir: TensorBoard's folder. Default: no curves.
        """
        params = _last(settings.params)
        if params.negative_sampling == "all":
            tree = data.tree.under_one_root(deepest_level(data.tree, settings.max_match_clusters))
            data = replace(data, tree=tree)
            settings = replace(
                settings,
                params=params,
                pred_params=_last(settings.pred_params),
                max_match_clusters=tree.level_sizes[1],
            )
        levels = LevelByLevel(strategy, encoder, data, settings, Path(folder), logdir)
        tree = data.tree
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
        """Head of the last level."""
        return self.heads[-1]

    @property
    def level(self) -> int:
        """Number of the last level in the tree; 1 for the children of the root."""
        return len(self.heads)

    @property
    def nr_nodes(self) -> int:
        """Number of nodes of the last level."""
        return self.head.nr_nodes

    def predict(
        self,
        vectors: np.ndarray,
        *,
        only_topk: int = 20,
        beam_size: int = 20,
        post_processor: str = "noop",
        only_labels: np.ndarray | None = None,
        windows: np.ndarray | None = None,
    ) -> csr_matrix:
        """Return the best nodes of the last level, by beam search through the heads.

        Args:
            vectors: embeddings, ``[documents, dim]``, or those of their windows.
            only_topk: number of nodes per document.
            beam_size: number of nodes kept at each level above. Larger values find better nodes and take longer.
            post_processor: function applied to a score before it is combined with the parent's.
            only_labels: numbers of the labels that may be predicted, if the nodes of the last level are labels; the
                search keeps only nodes that lead to them. Default: all.
            windows: first window of each document, then the number of windows; a node's score is the largest of the
                document's windows. Default: each document is one window.

        Returns:
            Documents × nodes in the order of the tree, the best first within a row; see ``to_labels``.
        """
        kept = [None] * self.level if only_labels is None else self._leading_to(only_labels)
        parents: csr_matrix | None = None
        for head, splits, own in zip(self.heads[:-1], self.splits[:-1], kept, strict=False):
            parents = predict_level(
                head, vectors, parents, splits, only_topk=beam_size, post_processor=post_processor, kept=own,
                windows=windows,
            )  # fmt: skip
        return predict_level(
            self.head, vectors, parents, self.splits[-1], only_topk=only_topk, post_processor=post_processor,
            kept=kept[-1], windows=windows,
        )  # fmt: skip

    def to_labels(self, predicted: csr_matrix) -> csr_matrix:
        """Return the same scores with labels as columns instead of nodes."""
        if self.labels is None:
            raise InputError(
                f"level {self.level}, the last that was fine-tuned, is above the labels",
                expected="a matcher of the label level",
                fix="raise max_match_clusters, or use the rankers' scores (concat-only)",
            )
        parts = predicted.data, self.labels[predicted.indices], predicted.indptr
        return csr_matrix(parts, shape=predicted.shape)

    def save(self, folder: str | Path) -> None:
        """Save the heads; call it on all ranks, each of which writes its rows. The encoder is saved separately.

        Args:
            folder: a folder on a disk that all hosts share.
        """
        about = {
            "format": _FORMAT,
            "version": 1,
            "dim": self.head.dim,
            "normalize": [head.scaling.normalize for head in self.heads],
            "scale": [head.scaling.factor for head in self.heads],
        }
        extra = {"about": np.array(json.dumps(about))}
        extra |= {f"splits/{number}": splits for number, splits in enumerate(self.splits)}
        if self.labels is not None:
            extra["labels"] = self.labels
        save_tables(folder, [head.table for head in self.heads], self.strategy.communicator, extra)

    @classmethod
    def load(cls, folder: str | Path, strategy: CollectiveStrategy, encoder: Any = None) -> Self:
        """Load a matcher that ``save`` wrote. Call it on all ranks, whose number may differ.

        Args:
            folder: the folder passed to ``save``.
            strategy: the ranks.
            encoder: encoder of the embeddings, for the attribute of this name.

        Raises:
            InputError: if a file is missing or damaged, or the folder contains something else.
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
                scaling=Scaling(about["normalize"][number], about["scale"][number]),
            )
            for number, one in enumerate(splits)
        ]
        load_tables(folder, [head.table for head in heads], strategy.communicator, slots=False)
        return cls(strategy, heads, splits, found.get("labels"), encoder)

    def _leading_to(self, labels: np.ndarray) -> list[np.ndarray]:
        """Return for each level a mask of the nodes that lead to one of the labels."""
        chosen = np.zeros(self.nr_nodes, bool)
        chosen[labels] = True
        kept = [chosen if self.labels is None else chosen[self.labels]]
        for splits in self.splits[:0:-1]:
            kept.insert(0, np.diff(np.concatenate([[0], np.cumsum(kept[0])])[splits]) > 0)
        return kept


def _check_about(about: dict[str, Any], found: dict[str, Any], folder: str | Path) -> None:
    """Raise an error if the description does not fit the arrays in the same file."""
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
    """Return the parameters of the last level, from those of all levels or of each."""
    return params if isinstance(params, MatcherParams | MatcherPredParams) else params[-1]
