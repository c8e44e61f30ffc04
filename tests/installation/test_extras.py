"""The light installation is light, and a missing extra is named."""

import re
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from xmc_tf.common.process import cli
from xmc_tf.common.process.extras import EXTRAS, missing_package

CONFIG = ConfigParser()
CONFIG.read(Path(__file__).parents[2] / "setup.cfg")


def packages(text):
    return {re.split(r"[ <>=]", line)[0] for line in text.split("\n") if line and not line.startswith("#")}


def test_the_core_needs_three_packages():
    assert packages(CONFIG["options"]["install_requires"]) == {"numba", "numpy", "py3langid", "scipy", "simplemma"}


def test_every_extra_that_is_named_exists():
    assert set(EXTRAS.values()) <= set(CONFIG["options.extras_require"])


@pytest.mark.parametrize(
    ("module", "fix"),
    [
        ("tensorflow.python.framework", "pip install 'xmc_tf[tf]'"),
        ("mpi4py", "pip install 'xmc_tf[mpi]'"),
        ("pyarrow", "pip install 'xmc_tf[tables]'"),
    ],
)
def test_a_command_names_the_missing_extra(module, fix, capsys):
    def main(_):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    with pytest.raises(SystemExit) as ended:
        cli.run(main, [])
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert f"{module.split('.')[0]} is not installed" in message
    assert fix in message
    assert "Traceback" not in message


def test_tensorflow_needs_python_3_11(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    assert "Python 3.11 (this is 3.13)" in str(missing_package(ModuleNotFoundError(name="tensorflow")))


def test_a_module_of_no_extra_stays_an_error():
    assert missing_package(ModuleNotFoundError("No module named 'nothing'", name="nothing")) is None
