"""Choose which settings to try for a data set, given its size, the available time and the effort.

To add an option, add a :class:`Step`: a change that is tried on top of the best settings so far.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from xmc_tf.common.errors import InputError
from xmc_tf.params import EFFORT_TIMES, EFFORTS, LinearLevelParams, TfidfParams, XRLinearParams, params_of_effort

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf

COMPARED_TREES = 2
"""Settings are compared with at most this many trees: a change that helps two trees helps all."""

_SHAPES = ("max_leaf_size", "nr_splits", "min_codes", "trees")
_SAMPLE = {"balanced": 50_000, "best": 200_000}  # documents that settings are compared on
_RATE = 1e-5  # seconds per document and word, with default settings; measured on two cores of a server
_LABEL = 2e-3  # seconds per label of the final training, for its probabilities and its name; measured on the same


@dataclass(frozen=True)
class DataShape:
    """The size of a data set."""

    documents: int
    held_out: int  # validation documents
    labels: int
    words: float  # mean number per document
    single_label: bool = False


@dataclass(frozen=True)
class Step:
    """A change of settings that is tried on validation documents and kept if it improves the metric."""

    setting: str  # what is changed, with its flag
    value: Callable[[XRLinearParams], str]  # the value of the setting, as a user types it
    change: Callable[[XRLinearParams], XRLinearParams]
    cost: float  # training time, as a multiple of the first training
    fixes: tuple[str, ...]  # parameters that it changes; it is left out if the user has set one of them


@dataclass(frozen=True)
class Settings:
    """The initial settings, the changes to try, and the reasons for them."""

    params: XRLinearParams
    steps: tuple[Step, ...]
    sample: int | None  # number of training documents to compare on; None: all
    reasons: tuple[str, ...]
    effort: str  # the one asked for, or the one that the time allows

    def with_tfidf(self, tfidf: "Tfidf | None") -> "Settings":
        """Return the settings with the parameters of the fitted vectorizer, such as the detected language."""
        if tfidf is None:
            return self
        return replace(self, params=replace(self.params, tfidf=tfidf.params))


def check_minutes(minutes: float | None) -> None:
    """Raise an error for a time that is no time."""
    if minutes is not None and not minutes > 0:
        raise InputError("--minutes is out of range", expected="a number above 0", received=f"{minutes:g}")


def choose_settings(
    shape: DataShape, params: XRLinearParams, *, fixed: frozenset[str] = frozenset(), minutes: float | None = None,
    effort: str = "balanced",
) -> Settings:  # fmt: skip
    """Return the initial settings of linear rankers, the changes to try, and the reasons.

    The result depends only on the arguments and never on the clock, so the same command always gives the same model.
    ``minutes`` is the time for the whole job on two cores. It is compared with estimates and is not enforced. If time
    is short, the effort is lowered and fewer changes are tried.
    """
    if effort not in EFFORTS:
        raise InputError(f"--effort {effort!r} is unknown", expected=", ".join(EFFORTS))
    check_minutes(minutes)
    reasons: list[str] = []
    effort = _affordable_effort(shape, minutes, effort, reasons)
    params = _first(shape, params, fixed, effort, reasons)
    if effort == "fast":
        return Settings(params, (), None, (*reasons, "nothing else was tried (--effort fast)"), effort)
    if not shape.held_out:
        return Settings(params, (), None, (*reasons, "nothing was tried: there are no validation documents"), effort)
    steps = [step for step in _steps(params, shape.labels, effort) if not fixed.intersection(step.fixes)]
    sample = None if shape.documents <= _SAMPLE[effort] else _SAMPLE[effort]
    if minutes is not None:
        steps, sample = _affordable(
            steps, shape, 60 * minutes - seconds_of_training(shape, effort), sample, reasons, minutes
        )
    if steps and sample:
        reasons.append(f"settings were compared on {sample:,} of {shape.documents:,} training documents")
    if steps and len(params.trees) > COMPARED_TREES:
        reasons.append(f"settings were compared with {COMPARED_TREES} of the {len(params.trees)} label trees")
    return Settings(params, tuple(steps), sample, tuple(reasons), effort)


def estimated_seconds(shape: DataShape, documents: int | None = None) -> float:
    """Estimate the duration of a training run with default settings, including features, on two cores."""
    return 2.0 + (documents or shape.documents) * shape.words * _RATE


def announcement(shape: DataShape, settings: Settings) -> str:
    """Return a message that says what the training run will do and how long it will take."""
    effort = settings.effort
    seconds, parts = seconds_of_training(shape, effort), []
    if settings.steps:
        one = COMPARED_TREES * EFFORT_TIMES["fast"] * estimated_seconds(shape, settings.sample)
        seconds += one * (1 + sum(step.cost for step in settings.steps))
        parts.append(f"compare {len(settings.steps) + 1} settings on {shape.held_out:,} validation documents")
    parts.append("train the model, and measure it on the test documents")
    minutes = round(seconds / 60)
    span = "a minute" if minutes <= 1 else f"{minutes:,} minutes" if minutes < 120 else f"{minutes / 60:,.0f} hours"
    return (
        f"{shape.documents:,} training documents, {shape.labels:,} labels; next: {', '.join(parts)}; about {span} or "
        f"less on two cores (--effort {effort}{'' if effort == 'fast' else '; --effort fast takes less'})"
    )


def seconds_of_training(shape: DataShape, effort: str) -> float:
    """Estimate the duration of the final training run, including label trees and label names as evidence."""
    return 1.5 * EFFORT_TIMES[effort] * estimated_seconds(shape) + shape.labels * _LABEL


def _affordable_effort(shape: DataShape, minutes: float | None, effort: str, reasons: list[str]) -> str:
    """Return the highest effort, up to the requested one, whose training run fits into the time."""
    order = list(EFFORTS)
    found = effort
    while minutes is not None and found != order[0] and seconds_of_training(shape, found) > 60 * minutes:
        found = order[order.index(found) - 1]
    if found != effort and minutes is not None:
        reasons.append(f"--effort {found} instead of {effort}, for --minutes {minutes:g}")
    return found


def _first(
    shape: DataShape, params: XRLinearParams, fixed: frozenset[str], effort: str, reasons: list[str]
) -> XRLinearParams:
    """Return the initial settings. The effort chooses the label trees, unless the user has set their shape."""
    if shaped := [name for name in _SHAPES if name in fixed]:
        count = len(params.trees)
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in shaped)
        reasons.append(f"{count} label tree{'s' if count > 1 else ''}, as set by {flags}")
        return params
    chosen = params_of_effort(params, effort, shape.documents, shape.labels)
    if fixed.intersection(("Cp", "Cn")):
        chosen = replace(chosen, ranker=params.ranker)
    reasons.append(f"{_description(chosen, shape.labels)} (--effort {effort})")
    return chosen


def _description(params: XRLinearParams, labels: int) -> str:
    """Describe the number and kinds of the label trees."""
    flat = sum(tree.max_leaf_size >= labels for tree in params.trees)
    trees = [tree for tree in params.trees if tree.max_leaf_size < labels]
    if not trees:
        return f"no label tree: comparing each of {labels:,} labels with all documents is affordable"
    leaves = " or ".join(f"{leaf:,}" for leaf in sorted({tree.max_leaf_size for tree in trees}))
    what = f"{len(trees)} label tree{'s' if len(trees) > 1 else ''} with up to {leaves} labels in a cluster"
    what += ", and one model without a tree" if flat else ""
    return what + (": the mean of several is better than one" if len(params.trees) > 1 else "")


def _steps(params: XRLinearParams, labels: int, effort: str) -> list[Step]:
    """Return the changes that may help, in the order of their usual benefit."""
    Cp = _level(params).Cp

    def cost(factor: float) -> Step:
        def change(one: XRLinearParams) -> XRLinearParams:
            return _with_chain(one, model_chain=replace(_level(one), Cp=factor * Cp))

        return Step("weight of a label's own documents (--Cp)", lambda one: f"{_level(one).Cp:g}", change, 1.0, ("Cp",))

    def pieces(change: Callable[[TfidfParams], TfidfParams], cost: float) -> Step:
        def value(one: XRLinearParams) -> str:
            return "0" if one.tfidf.pieces == 0 else f"{one.tfidf.piece_weight:.3g}"

        def changed(one: XRLinearParams) -> XRLinearParams:
            return replace(one, tfidf=change(one.tfidf))

        return Step("weight of pieces of words (--piece-weight)", value, changed, cost, ("pieces", "piece_weight"))

    def weighted(factor: float) -> Step:
        def change(one: TfidfParams) -> TfidfParams:
            assert one.piece_weight is not None  # set when the first features were computed
            return replace(one, piece_weight=factor * one.piece_weight)

        return pieces(change, 1.0)

    def words(most: int, cost: float) -> Step:
        def change(one: XRLinearParams) -> XRLinearParams:
            return replace(one, tfidf=replace(one.tfidf, ngram_max=most))

        return Step(
            "longest word sequences (--ngram-max)", lambda one: str(one.tfidf.ngram_max), change, cost, ("ngram_max",)
        )

    mined = Step(
        "counterexamples (--negative-sampling)", lambda one: str(one.ranker.hlm_args.neg_mining_chain),
        lambda one: _with_chain(one, neg_mining_chain="tfn+man"), 4.0, ("negative_sampling",),
    )  # fmt: skip
    in_tree = [mined] if labels > params.trees[0].max_leaf_size else []
    if effort == "balanced":
        return [*in_tree, weighted(0.5), weighted(1.5), cost(2.0), words(1, 0.5)]
    no_pieces = pieces(lambda one: replace(one, pieces=0, piece_weight=None), 0.5)
    tried = [weighted(0.5), weighted(1.5), no_pieces, cost(2.0), cost(0.5), words(1, 0.5), cost(4.0), words(3, 2.0)]
    return [*in_tree, *tried]


def _with_chain(params: XRLinearParams, **changes: Any) -> XRLinearParams:
    return replace(params, ranker=replace(params.ranker, hlm_args=replace(params.ranker.hlm_args, **changes)))


def _level(params: XRLinearParams) -> LinearLevelParams:
    level = params.ranker.hlm_args.model_chain
    assert not isinstance(level, tuple)  # flags set all levels at once
    return level


def _affordable(
    steps: list[Step], shape: DataShape, left: float, sample: int | None, reasons: list[str], minutes: float
) -> tuple[list[Step], int | None]:
    """Return the changes that can be tried in the time not needed for final training, and the sample size to use."""
    most = sample or shape.documents
    for documents in (most, most // 4, most // 16):
        one = COMPARED_TREES * EFFORT_TIMES["fast"] * estimated_seconds(shape, documents)
        kept, used = [], one
        for step in steps:
            if used + one * step.cost <= left:
                used += one * step.cost
                kept.append(step)
        if kept and documents >= 1000:
            if documents < most:
                reasons.append(f"{documents:,} documents instead of {most:,} to compare on, for --minutes {minutes:g}")
            if len(kept) < len(steps):
                reasons.append(f"{len(kept)} of {len(steps)} changes were tried, for --minutes {minutes:g}")
            return kept, documents if documents < shape.documents else None
    if steps:
        reasons.append(f"nothing was tried: --minutes {minutes:g} leaves no time besides the final training")
    return [], None
