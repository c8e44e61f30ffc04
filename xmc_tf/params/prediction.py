"""Prediction options of all models, as command-line flags and as Python keywords."""

import argparse
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import MOST_THREADS
from xmc_tf.params.base import Params, per_level
from xmc_tf.params.choices import ENSEMBLES, POST_PROCESSORS, SCORES
from xmc_tf.params.flags import add_flags, from_arguments
from xmc_tf.params.linear import LinearLevelPredParams
from xmc_tf.params.matcher import MatcherPredParams
from xmc_tf.params.values import param_field

SEARCH = ("only_topk", "beam_size", "post_processor")
"""The options of the search through the tree, which training records as the model's defaults."""
DECISIONS = ("scores", "threshold", "min_precision")
"""The options that select the kind of scores, and the labels that are good enough to return."""


@dataclass(frozen=True)
class PredictionOptions(Params):
    """Options of a prediction, which are the keywords of ``predict`` and ``best``. None means the model's default.

    Example:
        >>> options = PredictionOptions(only_topk=3, beam_size=20)
        >>> scores = model.predict(["gradient of a sparse matrix"], **vars(options))

    Args:
        beam_size: number of nodes kept at each level above the labels; larger is slower and more exact.
        only_topk: number of labels per document; with a threshold, the maximum number.
        post_processor: function applied to the scores of each level; if set, predictions are not probabilities.
        scores: "probability", calibrated from rankers and label names; or "ranker", as PECOS computes them (default:
            probabilities if the model was trained to predict them).
        threshold: minimum score of a label (default: none).
        min_precision: minimum share of correct labels among those returned, measured on held-out documents; as many
            labels as possible are returned.
        ensemble_method: for an XR-Transformer, the scores to use: "concat-only" for the rankers', "transformer-only"
            for the label head's, or "average", "root_average", "rank_average" or "round_robin" to combine both.
        max_pred_chunk: number of documents to predict at a time; smaller saves memory.
        batch_tokens: for an XR-Transformer, the number of tokens to encode at a time.
        threads: number of threads; -1: one per core.
        quiet: whether to hide progress.
    """

    beam_size: int | None = param_field(
        None, low=1, help="number of nodes kept at each level above the labels; larger is slower and more exact"
    )
    only_topk: int | None = param_field(None, low=1, help="number of labels per document")
    post_processor: str | None = param_field(
        None, choices=POST_PROCESSORS, help="function applied to the scores of each level"
    )
    scores: str | None = param_field(
        None, choices=SCORES,
        help="probabilities, calibrated from rankers and label names; or the rankers' scores, as PECOS computes them "
        "(default: probabilities if the model was trained to predict them)",
    )  # fmt: skip
    threshold: float | None = param_field(None, help="minimum score of the labels returned")
    min_precision: float | None = param_field(
        None, above=0, below=1,
        help="minimum share of correct labels among those returned (0 to 1), measured on documents held out from "
        "training; as many labels as possible are returned, up to -k per document",
    )  # fmt: skip
    ensemble_method: str | None = param_field(
        None, choices=ENSEMBLES,
        help="scores to use: only the rankers' (concat-only), only the label head's (transformer-only), or a "
        "combination of both",
    )  # fmt: skip
    max_pred_chunk: int = param_field(1_000_000, low=1, help="number of documents to predict at a time")
    batch_tokens: int = param_field(16384, low=1, help="number of tokens to encode at a time")
    threads: int = param_field(-1, low=1, high=MOST_THREADS, also=(-1,), help="number of threads; -1: one per core")
    quiet: bool = param_field(False, help="hide progress")

    def check_together(self) -> None:
        """Raise an error for options that are mutually exclusive."""
        if self.threshold is not None and self.min_precision is not None:
            raise InputError("--threshold and --min-precision are mutually exclusive", fix="leave one of them out")
        if self.scores == "probability" and self.post_processor is not None:
            raise InputError(
                "--post-processor does not apply to probabilities", received=self.post_processor,
                fix="leave out the post-processor, or use the rankers' scores (--scores ranker)",
            )  # fmt: skip

    @property
    def search(self) -> dict[str, Any]:
        """Options of the search through the tree, by name."""
        return {name: getattr(self, name) for name in SEARCH}

    def refuse(self, problems: Mapping[str, str]) -> None:
        """Raise an error if an option that cannot be used here differs from its default.

        Args:
            problems: names of the options that cannot be used, each with the reason.

        Raises:
            InputError: one of them differs from its default.
        """
        for field in dataclasses.fields(self):
            if field.name in problems and getattr(self, field.name) != field.default:
                raise InputError(
                    f"{field.name} cannot be used: {problems[field.name]}", received=str(getattr(self, field.name)),
                    fix=f"leave out --{field.name.replace('_', '-')} (in Python: {field.name})",
                )  # fmt: skip


def add_prediction_options(to: argparse._ActionsContainer, *names: str) -> None:
    """Add the flags of a prediction; those that training records as defaults of the model say so."""
    recorded = {name: {"default_text": "as trained"} for name in names if name in (*SEARCH, "ensemble_method")}
    add_flags(to, *names, of=PredictionOptions, **recorded)


def options_of_flags(arguments: argparse.Namespace, *names: str) -> PredictionOptions:
    """Return the options from the named flags only. Other flags may share an option's name but not its meaning."""
    return from_arguments(PredictionOptions, argparse.Namespace(**{name: getattr(arguments, name) for name in names}))


Level = TypeVar("Level", LinearLevelPredParams, MatcherPredParams)


def override_levels(chain: Level | tuple[Level, ...], depth: int, options: PredictionOptions) -> tuple[Level, ...]:
    """Return the prediction parameters of each level, overridden by ``options``. The beam size applies to all but the
    last.
    """
    levels = list(per_level(chain, depth, "model_chain"))
    for i, level in enumerate(levels):
        keep = options.only_topk if i == depth - 1 else options.beam_size
        changes = {"only_topk": keep, "post_processor": options.post_processor}
        levels[i] = dataclasses.replace(level, **{name: value for name, value in changes.items() if value is not None})
    return tuple(levels)
