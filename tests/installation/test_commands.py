"""Installations by ``pip install .`` alone, and with one extra each: README's first block, and each command."""

import pytest

from tests.installation.core import keep_a_tenth
from tests.installation.environments import ROOT, Environment
from tests.installation.trials import write_inputs, wrong
from tools.docs.blocks import blocks, commands
from xmc_tf.common.process.cache_folder import cache_folder

# Kernels that other tests have compiled: an installation has the same.
CACHE = {"XMC_TF_CACHE": str(cache_folder())}


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    before = left_in_the_clone()
    environment = Environment(tmp_path_factory.mktemp("light") / "venv")
    assert left_in_the_clone() == before
    return environment


def left_in_the_clone():
    """What a build in the clone would leave there."""
    return {path for pattern in ("*.egg-info", "build/lib", "build/bdist*") for path in ROOT.glob(pattern)}


def test_the_first_block_of_readme_runs(light, tmp_path):
    _, demo, train, predict = commands(blocks(ROOT / "README.md")[0])
    light.run("bash", "-c", demo, cwd=tmp_path, env=CACHE)
    keep_a_tenth(tmp_path / "data.csv")
    light.run("bash", "-c", train, cwd=tmp_path, env=CACHE)
    assert "takes: axis" in light.run("bash", "-c", predict, cwd=tmp_path, env=CACHE)


def test_every_command_works_or_names_its_extra(light, tmp_path):
    write_inputs(tmp_path)
    failed = wrong(light, [], tmp_path, CACHE)
    assert failed == [], "\n\n".join(failed)


@pytest.mark.full
@pytest.mark.parametrize("extra", ["tf", "onnx", "mpi", "server", "serving", "sklearn", "skos", "tables", "hub"])
def test_every_command_works_or_names_its_extra_beside_one_extra(extra, tmp_path):
    environment = Environment(tmp_path / "venv", [extra])
    (tmp_path / "work").mkdir()
    write_inputs(tmp_path / "work")
    failed = wrong(environment, [extra], tmp_path / "work", CACHE)
    assert failed == [], "\n\n".join(failed)
