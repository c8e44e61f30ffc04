"""What a command may write into a model's folder. tests/pipeline/test_outputs_over_inputs.py has what it may not."""

import shutil
from importlib import import_module

from tests.linear.command_data import write_corpus
from xmc_tf.linear import predict
from xmc_tf.tree import show

evaluate = import_module("xmc_tf.evaluate")  # xmc_tf.evaluate is the public function


def test_predictions_beside_the_parts_of_a_model_are_written_as_pecos_scripts_do(model, tmp_path, monkeypatch):
    monkeypatch.chdir(write_corpus(tmp_path))
    shutil.copytree(model, "m")
    command = ["-m", "m", "-x", "X.npz", "-o", "m/Pt.npz"]
    predict.main(command)
    predict.main(command)  # again, over the older ones
    evaluate.main(["-y", "Y.npz", "-p", "m/Pt.npz", "--report", "m/report"])
    show.main(["m", "--dot", "m/tree.dot"])
    assert {"Pt.npz", "report", "tree.dot"} <= {path.name for path in (tmp_path / "m").iterdir()}
    predict.main(command)  # and the model is as it was
