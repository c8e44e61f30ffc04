"""The learning curves of a recorded training."""

from pathlib import Path

from xmc_tf.report.inputs import Curve
from xmc_tf.tables.runs import Run, runs_of
from xmc_tf.tables.store import TableStore


def curves_of(run: Run) -> list[Curve]:
    """Return the learning curves of a run. A name such as ``"chart: line"`` is a line of a chart that others share."""
    found = []
    for name, points in run.curve.items():
        chart, _, line = name.rpartition(": ")
        found.append(Curve(line, [step for step, _ in points], [value for _, value in points], chart))
    return found


def curves_of_model(store: TableStore, folder: Path) -> list[Curve]:
    """Return the learning curves of the last recorded training of a model, if any."""
    runs = [run for run in runs_of(store) if Path(run.model).resolve() == folder.resolve()]
    return curves_of(runs[-1]) if runs else []
