"""Learning curves: means of neighbouring losses, and files that never stop a training."""

import pytest
import tensorflow as tf

from xmc_tf.matcher.progress import LevelCurves, StepMeter
from xmc_tf.ranks.solo import Solo


def test_losses_of_a_long_training_are_thinned():
    curves = LevelCurves()
    for last in range(50, 10_001, 50):
        curves.add_losses(last, [float(step) for step in range(last - 49, last + 1)], 10_000)
    points = curves.by_name["loss"]
    assert len(points) == 200
    assert points[0] == (50, 25.5)
    assert points[-1] == (10_000, 9975.5)
    few = LevelCurves()
    few.add_losses(5, [5.0, 4.0, 3.0, 2.0, 1.0], 5)
    assert few.by_name["loss"] == [(1, 5.0), (2, 4.0), (3, 3.0), (4, 2.0), (5, 1.0)]


def test_points_after_the_checkpoint_are_not_resumed(tmp_path):
    curves = LevelCurves()
    curves.add_losses(2, [3.0, 2.0], 4)
    curves.add_measures(4, {"P@1": 50.0})
    curves.save(tmp_path)
    assert LevelCurves.load(tmp_path, 4).by_name == {"loss": [(1, 3.0), (2, 2.0)], "P@1": [(4, 50.0)]}
    assert LevelCurves.load(tmp_path, 1).by_name == {"loss": [(1, 3.0)], "P@1": []}


def test_a_damaged_file_is_no_reason_to_stop(tmp_path):
    for content in ("", "[1]", '{"loss": 3}', '{"loss": [[1]]}', "{"):
        (tmp_path / "curves.json").write_text(content)
        assert LevelCurves.load(tmp_path, 9).by_name == {}
    assert LevelCurves.load(tmp_path / "missing", 9).by_name == {}


def test_windows_are_not_counted_as_documents():
    meter = StepMeter(Solo(), documents_per_window=0.25)
    meter.add(tf.constant([1.0, 8, 8, 8]))
    course = meter.take(1)
    assert course.documents_per_second == pytest.approx(course.tokens_per_second / 4)
