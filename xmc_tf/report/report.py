"""The report as data, from which the page, the JSON file and the CSV files are written."""

from dataclasses import dataclass

import numpy as np

from xmc_tf.metrics.compare import Comparison, MeasuredSystem
from xmc_tf.report.inputs import ReportInputs
from xmc_tf.report.sections.examples import Example, choose_examples
from xmc_tf.report.sections.labels import (
    Confusion,
    Coverage,
    LabelTable,
    count_per_label,
    find_confusion,
    measure_coverage,
)
from xmc_tf.report.sections.scores import (
    Calibration,
    Decisions,
    Pairs,
    Thresholds,
    decide,
    find_thresholds,
    measure_calibration,
)


@dataclass(frozen=True, eq=False)
class Report:
    """The contents of a report, before they are formatted."""

    inputs: ReportInputs
    comparison: Comparison
    thresholds: Thresholds
    decisions: Decisions
    calibration: Calibration
    labels: LabelTable
    confusion: Confusion
    coverage: Coverage | None  # None without training labels
    examples: tuple[Example, ...]

    @property
    def single_label(self) -> bool:
        return self.decisions.threshold is None

    @property
    def system(self) -> MeasuredSystem:
        """The metrics of the main prediction."""
        return self.comparison.systems[0]


def make_report(inputs: ReportInputs) -> Report:
    frequency = inputs.training_frequency
    pairs = Pairs.of(inputs.truth, inputs.predicted)
    thresholds = find_thresholds(pairs)
    decisions = decide(inputs.truth, pairs, thresholds)
    occurs = np.bincount(inputs.truth.indices, minlength=inputs.nr_labels)
    return Report(
        inputs, inputs.compared(details=True), thresholds, decisions,
        calibration=measure_calibration(pairs, pairs.best_of_documents if decisions.threshold is None else None),
        labels=count_per_label(decisions, occurs, frequency),
        confusion=find_confusion(inputs, decisions),
        coverage=None if frequency is None else measure_coverage(inputs.truth, frequency),
        examples=choose_examples(inputs, pairs, decisions),
    )  # fmt: skip
