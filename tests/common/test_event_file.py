"""Tests that TensorBoard reads scalars that are written without TensorFlow."""

import json
import subprocess
import sys

import pytest

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.event_file import EventFile

WRITE = """
import json, sys
from xmc_tf.common.files.event_file import EventFile
file = EventFile(sys.argv[1])
for step in range(3):
    file.write({"busy seconds": step / 2, "done/a level": 100 * step}, step=step)
file.close()
print(json.dumps([name for name in sys.modules if name.split(".")[0] in ("tensorflow", "tf_keras", "horovod")]))
"""


def scalars(folder):
    """Return the scalars of a run, as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder)).Reload()
    return {tag: [(one.step, one.value) for one in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def test_tensorboard_reads_what_was_written_without_tensorflow(tmp_path):
    pytest.importorskip("tensorboard")
    run = [sys.executable, "-c", WRITE, str(tmp_path / "run")]
    assert json.loads(subprocess.run(run, capture_output=True, check=True, text=True).stdout) == []
    assert scalars(tmp_path / "run") == {
        "busy seconds": [(0, 0.0), (1, 0.5), (2, 1.0)],
        "done/a level": [(0, 0.0), (1, 100.0), (2, 200.0)],
    }


def test_the_error_without_tensorboard_has_a_fix(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)
    with pytest.raises(InputError, match="pip install tensorboard"):
        EventFile(tmp_path)
