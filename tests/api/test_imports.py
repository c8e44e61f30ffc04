"""What imports and commands load: each runs in a process of its own, and must not load what it does not need."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What is run, and how the names of modules begin that it must not load.
LIGHT = {
    "the package": (
        "import xmc_tf", ["numpy", "scipy", "numba", "tensorflow", "logging", "argparse", "xmc_tf."]
    ),
    "public names of linear models": (
        "from xmc_tf import InputError, TextFile, XRLinear, evaluate, load, load_matrix\n"
        "import xmc_tf.evaluate\nfrom xmc_tf import evaluate as again\n"
        "assert again is evaluate is xmc_tf.evaluate and callable(evaluate)\n"
        "assert callable(sys.modules['xmc_tf.evaluate'].main)", ["tensorflow"],
    ),
    "the list of commands": ("from xmc_tf.__main__ import main\nmain([])", ["numpy", "argparse", "logging"]),
    "a linear model that predicts": (
        "import xmc_tf.models.xr_linear",
        [f"xmc_tf.{name}" for name in ("rankers.fit", "rankers.incremental", "models.linear.training",
                                       "models.incremental.documents", "tables")],
    ),
    "a communicator": (
        "from xmc_tf.ranks.choosing import choose_communicator\n"
        "assert str(choose_communicator()) == 'a single process'\n"
        "assert choose_communicator() is choose_communicator()", ["horovod", "mpi4py", "tensorflow"],
    ),
    "a client of a server": (
        "from xmc_tf.serving.client import Client, ServerError\n"
        "try:\n    Client('http://127.0.0.1:1').best(['a'])\nexcept ServerError:\n    pass", ["tensorflow", "grpc"],
    ),
    "a classifier of scikit-learn": (
        "from xmc_tf.sklearn import XMCClassifier\n"
        "found = XMCClassifier().fit([[0.0, 1.0], [1.0, 0.0]] * 4, ['a', 'b'] * 4)\n"
        "assert found.predict([[1.0, 0.0]])[0] == 'b'", ["tensorflow", "tf_keras", "transformers"],
    ),
    "a missing extra": (
        "sys.modules['sklearn'] = None\nfrom xmc_tf import InputError\n"
        "from xmc_tf.common.process.extras import pip_install\n"
        "try:\n    import xmc_tf.sklearn\n"
        "except InputError as error:\n    assert error.fix == pip_install('sklearn')\n"
        "else:\n    raise SystemExit('imported')", ["tensorflow"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LIGHT)
def test_nothing_heavy_is_loaded(what):
    code, heavy = LIGHT[what]
    check = f"loaded = [name for name in sys.modules if name.startswith({tuple(heavy)})]\nassert not loaded, loaded"
    # Without site-packages, whose editable installations import more than an ordinary one.
    flags = ["-S"] if what == "the list of commands" else []
    command = [sys.executable, *flags, "-c", f"import sys\n{code}\n{check}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
