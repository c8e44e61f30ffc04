"""The choice of settings for a data set: which to try, from its size, the time and the effort, with reasons.

To add an option, add a :class:`Step`: a change of the settings that is tried on top of the best so far.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from xmc_tf.common.errors import InputError
from xmc_tf.params import XRLinearParams

EFFORTS = ("fast", "balanced", "best")
# Without a tree, each label learns from all documents: more exact, and slower with more labels.
_MOST_FLAT_LABELS = 20_000
_FLAT_SECONDS = {"fast": 15, "balanced": 60, "best": 600}
_FLAT_RATE = 6e-9  # seconds per document, word and label; measured on two cores of a server
_SAMPLE = {"balanced": 50_000, "best": 200_000}  # documents that settings are compared on
_RATE = 3e-8  # seconds per document, word and label level; measured on two cores of a server


@dataclass(frozen=True)
class DataShape:
    """The size of a data set.

    Args:
        documents: number of training documents.
        held_out: number of validation documents.
        labels: number of labels.
        words: mean number of words per document.
        single_label: whether each document has exactly one label.
    """

    documents: int
    held_out: int
    labels: int
    words: float
    single_label: bool = False


@dataclass(frozen=True)
class Step:
    """A change of settings that is tried on validation documents, and kept if it is better.

    Args:
        name: what changes, for people: "word pairs".
        change: returns the changed settings.
        cost: training time, as a multiple of the training with the first settings.
        fixes: the parameters that it changes; a step is left out if the user has set one of them.
    """

    name: str
    change: Callable[[XRLinearParams], XRLinearParams]
    cost: float
    fixes: tuple[str, ...]


@dataclass(frozen=True)
class Settings:
    """The settings to begin with, what is tried, and why.

    Args:
        params: the settings to begin with.
        steps: changes to try, in this order; empty if there is no choice to make.
        sample: number of training documents to compare on; None for all.
        reasons: sentences that explain the choice.
    """

    params: XRLinearParams
    steps: tuple[Step, ...]
    sample: int | None
    reasons: tuple[str, ...]


def choose_settings(
    shape: DataShape,
    params: XRLinearParams,
    *,
    fixed: frozenset[str] = frozenset(),
    minutes: float | None = None,
    effort: str = "balanced",
) -> Settings:
    """Return the settings of linear rankers to begin with, and those to try, with reasons.

    The choice depends on its arguments only, never on the clock, so that the same command gives the same model.

    Args:
        shape: the data set.
        params: the user's settings; those that he did not set have their defaults.
        fixed: names of the parameters that the user has set; they stay.
        minutes: time for the whole job on two cores; estimated, not enforced. None: as much as the effort takes.
        effort: ``fast`` tries nothing, ``balanced`` what usually pays, ``best`` more, on more documents.

    Raises:
        InputError: the effort is unknown, or the time is not above 0.
    """
    if effort not in EFFORTS:
        raise InputError(f"--effort {effort!r} is unknown", expected=", ".join(EFFORTS))
    if minutes is not None and not minutes > 0:
        raise InputError("--minutes is out of range", expected="above 0", received=f"{minutes:g}")
    reasons: list[str] = []
    params = _first(shape, params, fixed, effort, reasons)
    if effort == "fast":
        return Settings(params, (), None, (*reasons, "nothing else was tried (--effort fast)"))
    if not shape.held_out:
        return Settings(params, (), None, (*reasons, "nothing was tried: there are no validation documents"))
    steps = [step for step in _steps(params, shape.labels, effort) if not fixed.intersection(step.fixes)]
    sample = None if shape.documents <= _SAMPLE[effort] else _SAMPLE[effort]
    if sample:
        reasons.append(f"settings were compared on {sample:,} of {shape.documents:,} training documents")
    if minutes is not None:
        steps, sample = _affordable(steps, shape, minutes, sample, reasons)
    return Settings(params, tuple(steps), sample, tuple(reasons))


def estimated_seconds(shape: DataShape, documents: int | None = None) -> float:
    """Estimate the time of one training with default settings, features included, on two cores.

    Args:
        shape: the data set.
        documents: number of training documents; None: all.
    """
    documents = documents or shape.documents
    return 2.0 + documents * shape.words * (1e-5 + _RATE * min(shape.labels, 10_000))


def _first(
    shape: DataShape, params: XRLinearParams, fixed: frozenset[str], effort: str, reasons: list[str]
) -> XRLinearParams:
    """Return the settings to begin with: a label tree where comparing each label with all documents takes too long."""
    leaf = params.trees[0].max_leaf_size
    if fixed.intersection(("max_leaf_size", "nr_splits", "min_codes")) or shape.labels <= leaf:
        return params
    flat_s = _FLAT_RATE * shape.documents * shape.words * shape.labels
    if shape.labels <= _MOST_FLAT_LABELS and flat_s <= _FLAT_SECONDS[effort]:
        reasons.append(f"no label tree: comparing each of {shape.labels:,} labels with all documents is affordable")
        return dataclasses.replace(params, tree=dataclasses.replace(params.trees[0], max_leaf_size=shape.labels))
    reasons.append(
        f"label tree with up to {leaf} labels in a cluster: {shape.labels:,} labels are too many without one"
    )
    return params


def _steps(params: XRLinearParams, labels: int, effort: str) -> list[Step]:
    """Return the changes that may pay, those that usually pay most first."""
    mined = Step("negatives from the beam (tfn+man)", _negatives("tfn+man"), 4.0, ("negative_sampling",))
    in_tree = [mined] if labels > params.trees[0].max_leaf_size else []
    single = Step("single words only", _ngrams(1), 0.5, ("ngram_max",))
    double, half = (Step(f"Cp {cost:g}", _cost(cost), 1.0, ("Cp",)) for cost in (2.0, 0.5))
    if effort == "balanced":
        return [*in_tree, double, single]
    more = [Step("Cp 4", _cost(4.0), 1.0, ("Cp",)), Step("word triples", _ngrams(3), 2.0, ("ngram_max",))]
    return [*in_tree, double, half, single, *more]


def _affordable(
    steps: list[Step], shape: DataShape, minutes: float, sample: int | None, reasons: list[str]
) -> tuple[list[Step], int | None]:
    """Return the steps that fit into the time that the final training leaves, on fewer documents if necessary."""
    left = 60 * minutes - 2 * estimated_seconds(shape)
    for documents in (sample or shape.documents, shape.documents // 4, shape.documents // 16):
        one = estimated_seconds(shape, documents)
        kept, used = [], one
        for step in steps:
            if used + one * step.cost <= left:
                used += one * step.cost
                kept.append(step)
        if kept and documents >= 1000:
            if documents < (sample or shape.documents):
                reasons.append(f"settings were compared on {documents:,} documents, for --minutes {minutes:g}")
            if len(kept) < len(steps):
                reasons.append(f"{len(kept)} of {len(steps)} changes were tried, for --minutes {minutes:g}")
            return kept, documents if documents < shape.documents else None
    if steps:
        reasons.append(f"nothing was tried: --minutes {minutes:g} leaves no time beside the training itself")
    return [], None


def _negatives(scheme: str) -> Callable[[XRLinearParams], XRLinearParams]:
    def change(params: XRLinearParams) -> XRLinearParams:
        chain = dataclasses.replace(params.ranker.hlm_args, neg_mining_chain=scheme)
        return dataclasses.replace(params, ranker=dataclasses.replace(params.ranker, hlm_args=chain))

    return change


def _cost(Cp: float) -> Callable[[XRLinearParams], XRLinearParams]:
    def change(params: XRLinearParams) -> XRLinearParams:
        chain = params.ranker.hlm_args
        level = chain.model_chain
        assert not isinstance(level, tuple)  # flags set all levels at once
        chain = dataclasses.replace(chain, model_chain=dataclasses.replace(level, Cp=Cp))
        return dataclasses.replace(params, ranker=dataclasses.replace(params.ranker, hlm_args=chain))

    return change


def _ngrams(longest: int) -> Callable[[XRLinearParams], XRLinearParams]:
    return lambda params: dataclasses.replace(params, tfidf=dataclasses.replace(params.tfidf, ngram_max=longest))
