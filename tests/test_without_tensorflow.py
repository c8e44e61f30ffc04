"""Linear models need no TensorFlow: from a table to a report, where importing it fails."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from xmc_tf.common.process.extras import pip_install

ROOT = Path(__file__).resolve().parents[1]

# Runs each command of the command line in turn, and prints what they printed.
PROGRAM = """
import contextlib, io, json, sys
from importlib import import_module

ABSENT = {"tensorflow", "tensorflow_text", "tf_keras", "keras", "transformers", "tokenizers", "tensorboard", "horovod"}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from xmc_tf.__main__ import MODULES
outputs = []
for command, arguments in json.loads(sys.argv[1]):
    module = MODULES[command]
    module += ".__main__" if hasattr(import_module(module), "__path__") else ""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        import_module(module).main(arguments)
    outputs.append(out.getvalue())
from xmc_tf import XRLinear
from xmc_tf.common.process.extras import missing_package
outputs.append(XRLinear.load("model").best(["word1 library"], k=1)[0][0][0])
try:
    import_module("xmc_tf.models.xr_linear").XRLinear.load("model").export("served")
except ModuleNotFoundError as error:
    outputs.append(str(missing_package(error)))
print(json.dumps(outputs))
"""
COMMANDS = [
    ["train", ["data.csv", "-m", "model", "--effort", "fast", "--report", "report", "--threads", "1"]],
    ["linear predict", ["data.csv", "--column", "text", "-m", "model", "-o", "labels.csv"]],
    ["linear predict", ["-t", "X.txt", "-m", "model", "-o", "P.npz"]],
    ["evaluate", ["-y", "P.npz", "-p", "P.npz"]],
    ["explain", ["-m", "model", "word1 library"]],
    ["runs", ["data.sqlite"]],
    ["report", ["data.sqlite", "-m", "model", "-o", "another"]],
    ["check", ["--model", "model"]],
    ["plan", ["--labels", "3e6", "--docs", "2e6"]],
]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("linear")
    draw = random.Random(0)
    topics = ("library", "kitchen", "harbour", "forest")
    rows = [(" ".join(f"word{draw.randrange(40)}" for _ in range(8)), draw.choice(topics)) for _ in range(200)]
    (folder / "data.csv").write_text("text,labels\n" + "".join(f"{text} {label},{label}\n" for text, label in rows))
    (folder / "X.txt").write_text("".join(f"{text} {label}\n" for text, label in rows))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(COMMANDS)], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(zip([*(name for name, _ in COMMANDS), "best", "export"], json.loads(done.stdout), strict=True))


def test_every_command_of_linear_models_runs(outputs):
    assert "measured on 20 test documents" in outputs["train"]
    assert "P@1" in outputs["evaluate"]
    assert "library" in outputs["explain"]
    assert "XR-Linear" in outputs["runs"]
    assert outputs["best"] == "library"


def test_what_needs_tensorflow_names_the_extra(outputs):
    assert "tensorflow" in outputs["export"]
    assert f"fix:      {pip_install('tf')}" in outputs["export"]
