"""The fine-tuned matcher: an encoder, and a sharded head for each fine-tuned level."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from xmc_tf.collective.checkpoints.checkpoint import save_tables
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.matcher.fine_tune import LevelResult
from xmc_tf.matcher.head import LabelHead
from xmc_tf.matcher.label_search import LabelSearch
from xmc_tf.matcher.levels import MatcherData, MatcherSettings, deepest_level
from xmc_tf.matcher.training import LevelByLevel
from xmc_tf.params import MatcherParams, MatcherPredParams


class Matcher(LabelSearch):
    """A model that scores documents against the nodes of a tree by the embeddings of their texts. All ranks must call
    the methods that take embeddings, each with the embeddings of its own documents.
    """

    def __init__(
        self, strategy: CollectiveStrategy, heads: Sequence[LabelHead], splits: Sequence[np.ndarray],
        labels: np.ndarray | None, encoder: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(heads, splits, labels)
        self.strategy, self.encoder = strategy, encoder
        self.results: list[LevelResult] = []

    @classmethod
    def train(
        cls, strategy: CollectiveStrategy, encoder: Any, data: MatcherData, settings: MatcherSettings, *,
        folder: str | Path, logdir: str | Path | None = None,
    ) -> Self:  # fmt: skip
        """Fine-tune encoder and heads level by level; resume if an earlier call with this folder was interrupted. All
        ranks must call it, with a folder that all hosts share and the caller removes. With ``negative_sampling="all"``,
        only the last level is trained, under one root: its candidates do not depend on a level above.
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

    def save(self, folder: str | Path) -> None:
        """Save the heads, but not the encoder, to a shared folder; all ranks must call it, and each writes its rows."""
        save_tables(folder, [head.table for head in self.heads], self.strategy.communicator, self.extra())


def _last(params: Any) -> Any:
    """Return the parameters of the last level, from those of all levels or of each."""
    return params if isinstance(params, MatcherParams | MatcherPredParams) else params[-1]
