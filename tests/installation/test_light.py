"""An installation by ``pip install .`` alone: README's first block, and each command of linear models."""

import json
import random

import pytest

from tests.installation.environments import ROOT, Environment
from tools.docs.blocks import blocks, commands
from xmc_tf.common.process.cache_folder import cache_folder

# Runs each command of the command line in turn, and prints what they printed.
PROGRAM = """
import contextlib, io, json, sys
from importlib import import_module
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
# Kernels that other tests have compiled: an installation has the same.
CACHE = {"XMC_TF_CACHE": str(cache_folder())}


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("light") / "venv")


@pytest.fixture(scope="module")
def outputs(light, tmp_path_factory):
    folder = tmp_path_factory.mktemp("linear")
    draw = random.Random(0)
    topics = ("library", "kitchen", "harbour", "forest")
    rows = [(" ".join(f"word{draw.randrange(40)}" for _ in range(8)), draw.choice(topics)) for _ in range(200)]
    (folder / "data.csv").write_text("text,labels\n" + "".join(f"{text} {label},{label}\n" for text, label in rows))
    (folder / "X.txt").write_text("".join(f"{text} {label}\n" for text, label in rows))
    printed = light.run("python", "-c", PROGRAM, json.dumps(COMMANDS), cwd=folder, env=CACHE).splitlines()[-1]
    return dict(zip([*(name for name, _ in COMMANDS), "best", "export"], json.loads(printed), strict=True))


def test_the_first_block_of_readme_runs(light, tmp_path):
    _, demo, train, predict = commands(blocks(ROOT / "README.md")[0])
    light.run("bash", "-c", demo, cwd=tmp_path, env=CACHE)
    table = tmp_path / "data.csv"
    rows = table.read_text(encoding="utf-8").splitlines(keepends=True)
    table.write_text("".join([rows[0], *rows[1::10]]), encoding="utf-8")  # it takes minutes to train on all
    light.run("bash", "-c", train, cwd=tmp_path, env=CACHE)
    assert "takes: axis" in light.run("bash", "-c", predict, cwd=tmp_path, env=CACHE)


def test_every_command_of_linear_models_runs(outputs):
    assert "measured on 20 test documents" in outputs["train"]
    assert "P@1" in outputs["evaluate"]
    assert "library" in outputs["explain"]
    assert "XR-Linear" in outputs["runs"]
    assert outputs["best"] == "library"


def test_what_needs_tensorflow_names_the_extra(outputs):
    assert "tensorflow is not installed" in outputs["export"]
    assert f"fix:      pip install '{ROOT}[tf]'" in outputs["export"]
