"""The main results of a report, in plain sentences."""

import math
from collections.abc import Iterator

from xmc_tf.fusion.thresholds import CONFIDENCE
from xmc_tf.metrics.table import percent
from xmc_tf.report.report import Report

_CALIBRATED = 0.05  # expected calibration error up to which scores can be read as probabilities
_STANDARD_ERRORS = 1.96  # half of a 95 % confidence interval
_TARGET = 0.9
_ENOUGH = 10  # documents; frequency groups with fewer get no sentence


def sentences(report: Report) -> list[str]:
    """Return sentences that summarize the report, the most important first."""
    first = _single if report.single_label else _ranking
    return [one for part in (first, _threshold, _rare, _coverage, _calibration, _comparison) for one in part(report)]


def _ranking(report: Report) -> Iterator[str]:
    overall, k = report.system.overall, report.comparison.ks[-1]
    first = overall.at("P", 1)
    yield f"The first label is true for {percent(first)} % of the documents (P@1; {_interval(first, report)})."
    if k > 1:
        yield (
            f"Of the first {k} labels, {percent(overall.at('P', k))} % are true (P@{k}); they include "
            f"{percent(overall.at('R', k))} % of a document's true labels (R@{k})."
        )
    if "P-near" in overall.values:
        yield (
            f"Of the first {k} labels, {percent(overall.at('P-near', k))} % are true, or broader or narrower terms of "
            "a true label; with siblings, which share a broader term with one, "
            f"{percent(overall.at('P-sibling', k))} %."
        )


def _single(report: Report) -> Iterator[str]:
    overall = report.system.overall
    accuracy = overall.at("P", 1)
    yield f"{percent(accuracy)} % of the documents get the right label (accuracy; {_interval(accuracy, report)})."
    yield f"The mean F1 of the labels is {percent(overall.at('macro-F1', 1))} % (macro F1)."


def _threshold(report: Report) -> Iterator[str]:
    best = report.thresholds.best
    if best is None:
        yield "Nothing is predicted."
        return
    if not report.single_label:
        yield (
            f"With the threshold {best.threshold:g}, which gives the best F1 ({percent(best.f1)} %), "
            f"{percent(best.precision)} % of the assigned labels are true and {percent(best.recall)} % of the true "
            f"labels are assigned, {best.labels_per_document:.2f} per document."
        )
    target = dict(report.thresholds.for_precision).get(_TARGET)
    if target is not None:
        yield (
            f"On these documents, labels with a score of {target.threshold:g} or more have a precision of "
            f"{_TARGET:.0%}: that finds {percent(target.recall)} % of the true labels, and "
            f"{percent(target.documents_with_label)} % of the documents get a label. {_promise(report)}"
        )
    elif not report.single_label:
        yield f"No threshold gives a precision of {_TARGET:.0%}."


def _promise(report: Report) -> str:
    """Return what the model promises for new documents, by the same rule as ``--min-precision``."""
    evidence = None if report.inputs.model is None else report.inputs.model.evidence
    if evidence is None:
        return "New documents need a higher threshold for the same precision."
    curve, sure = evidence.fusion.curve, f"with a confidence of {CONFIDENCE:.0%}"
    if curve.best_promise >= _TARGET:
        threshold = curve.for_precision(_TARGET).threshold
        return f"New documents keep it {sure} from {threshold:.3f} on (--min-precision {_TARGET:g})."
    most = f"at most {curve.best_promise:g}" if curve.best_promise else "none"
    return f"The model does not promise it for new documents: {sure}, its held-out documents show {most}."


def _rare(report: Report) -> Iterator[str]:
    k, where = report.comparison.ks[-1], report.comparison.occurs_in
    seen = [one for one in report.system.buckets if one.bucket != "0" and one.documents >= _ENOUGH]
    if len(seen) > 1:
        rare, often = seen[0], seen[-1]
        yield (
            f"Rare labels ({rare.bucket} {where} documents): {percent(rare.at('R', k))} % are among the first {k}; "
            f"frequent ones ({often.bucket}): {percent(often.at('R', k))} %."
        )


def _coverage(report: Report) -> Iterator[str]:
    coverage = report.coverage
    if coverage is not None and coverage.unseen_labels:
        k = report.comparison.ks[-1]
        found = [one.at("R", k) for one in report.system.buckets if one.bucket == "0"]
        yield (
            f"{coverage.unseen_labels:,} of the {coverage.labels:,} labels of the test documents have no training "
            f"document: {percent(coverage.share_of_pairs)} % of the true labels, which only their names can find"
            + "".join(f"; {percent(recall)} % of them are among the first {k}" for recall in found) + "."
        )  # fmt: skip
    elif coverage is not None:
        yield "Every label of the test documents has a training document."


def _calibration(report: Report) -> Iterator[str]:
    error, bias = report.calibration.error, report.calibration.bias
    if error is None or bias is None:
        return
    distance = f"they differ from the share of true labels by {percent(error)} points on average"
    if error <= _CALIBRATED:
        yield f"Scores can be read as probabilities: {distance}."
    else:
        yield f"Scores are not probabilities: {distance}, and are mostly too {'high' if bias > 0 else 'low'}."


def _comparison(report: Report) -> Iterator[str]:
    systems = report.comparison.systems
    if len(systems) > 1:
        best = max(systems, key=lambda system: system.overall.at("P", 1))
        values = ", ".join(f"“{system.name}” {percent(system.overall.at('P', 1))} %" for system in systems)
        yield f"Of {len(systems)} predictions, “{best.name}” has the best P@1: {values}."


def _interval(value: float, report: Report) -> str:
    """Return the confidence interval of a share of the documents as text."""
    half = _STANDARD_ERRORS * math.sqrt(value * (1 - value) / report.comparison.documents)
    return f"± {percent(half)} points at this number of documents"
