"""Compiled kernels are kept on disk, and never for other code than the one that they were compiled from."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random

from xmc_tf.common.compiled import source_digest
from xmc_tf.data import save_matrix

PACKAGE = Path(__file__).parents[2] / "xmc_tf"
ASK = "from pack.outer import outer; print(outer(1))"


@pytest.fixture
def package(tmp_path):
    """Two modules, one of which calls the other's kernel, beside a copy of what compiles them."""
    (tmp_path / "xmc_tf" / "common").mkdir(parents=True)
    for name in ("__init__.py", "common/__init__.py", "common/compiled.py"):
        shutil.copy(PACKAGE / name, tmp_path / "xmc_tf" / name)
    inner, outer = tmp_path / "pack" / "inner.py", tmp_path / "pack" / "outer.py"
    inner.parent.mkdir()
    head = "from xmc_tf.common.compiled import njit\n"
    inner.write_text(f"{head}@njit(cache=True)\ndef inner(x):\n    return x + 1\n")
    outer.write_text(
        f"{head}from pack.inner import inner\n@njit(cache=True)\ndef outer(x):\n    return inner(x) * 10\n"
    )
    # The digest is of xmc_tf's own sources: the modules are to count as such.
    (tmp_path / "xmc_tf" / "pack").symlink_to(tmp_path / "pack")
    for module in (inner, outer):
        copy = tmp_path / "xmc_tf" / f"kernel_{module.name}"
        copy.symlink_to(module)
    return tmp_path


def answer(package, ask=ASK):
    """What the outer kernel gives in a fresh process."""
    environment = {**os.environ, "PYTHONPATH": str(package), "XMC_TF_CACHE": str(package / "cache")}
    run = subprocess.run(
        [sys.executable, "-c", ask], cwd=package, env=environment, capture_output=True, text=True, check=True
    )
    return int(run.stdout)


def test_a_changed_callee_in_another_file_is_compiled_anew(package):
    assert answer(package) == 20
    assert answer(package) == 20
    assert list((package / "cache" / "kernels").rglob("*.nbi")), "nothing was kept on disk"
    inner = package / "pack" / "inner.py"
    inner.write_text(inner.read_text().replace("x + 1", "x + 20"))
    assert answer(package) == 210


def test_a_kept_kernel_is_included_in_one_that_is_compiled_later(package):
    assert answer(package, "from pack.inner import inner; print(inner(1))") == 2
    assert (
        answer(package, "from pack.inner import inner; inner(1); from pack.outer import outer; print(outer(1))") == 20
    )
    assert answer(package) == 20


def test_a_kept_kernel_fails_as_a_fresh_one(package):
    body = "def inner(x):\n    return np.full(x, 1.0).sum() + np.zeros((x, 2)).size\n"
    inner = package / "pack" / "inner.py"
    inner.write_text(f"import numpy as np\nfrom xmc_tf.common.compiled import njit\n@njit(cache=True)\n{body}")
    ask = """
from pack.inner import inner
try:
    inner(-1)
except ValueError as error:
    assert "negative dimensions" in str(error), error
    print(int(inner(2)))
"""
    assert [answer(package, ask) for _ in range(3)] == [6, 6, 6]


def test_the_digest_follows_compiled_code_alone(tmp_path):
    (tmp_path / "kernel.py").write_text("@njit()\ndef f(): ...")
    (tmp_path / "plain.py").write_text("x = 1")
    before = source_digest(tmp_path)
    (tmp_path / "plain.py").write_text("x = 2")
    assert source_digest(tmp_path) == before
    (tmp_path / "kernel.py").write_text("@njit()\ndef g(): ...")
    assert source_digest(tmp_path) != before


COMPILES = """
import logging, sys
import numpy as np
from xmc_tf.common.compiled import announce_compiling
from xmc_tf.tree.kmeans_kernels import next_random

logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
if "announce" in sys.argv:
    announce_compiling()
next_random(np.zeros(1, np.uint64))
"""


def test_compiling_is_announced_by_command_lines_and_shared_by_environments(tmp_path):
    """The same code is installed twice, as in two virtual environments, and a cache serves both."""
    environment = {**os.environ, "XMC_TF_CACHE": str(tmp_path / "cache")}

    def output(installed, *arguments, **more):
        command = [sys.executable, "-c", COMPILES, *arguments]
        folder = {"PYTHONPATH": str(installed), **more}
        run = subprocess.run(
            command, cwd=tmp_path, env=environment | folder, capture_output=True, text=True, check=True
        )
        return run.stderr

    for name in ("first", "second"):
        shutil.copytree(PACKAGE, tmp_path / name / "xmc_tf", ignore=shutil.ignore_patterns("__pycache__"))
    assert f"(cache: {tmp_path}/cache/kernels)" in output(tmp_path / "first", "announce")
    assert output(tmp_path / "first", "announce") == ""
    assert output(tmp_path / "second", "announce") == ""
    # A processor with other instructions: machine code that is cached does not serve it.
    assert "compiling" in output(tmp_path / "second", "announce", NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    (tmp_path / "second" / "xmc_tf" / "changed.py").write_text("# njit\n")
    assert output(tmp_path / "second") == ""  # no command line


LOAD_ALL = """
import importlib, pkgutil, sys
from numba.core.dispatcher import Dispatcher
import xmc_tf

loaded = 0
for module in pkgutil.walk_packages(xmc_tf.__path__, "xmc_tf."):
    if module.name.startswith(("xmc_tf.linear.kernels", "xmc_tf.tree", "xmc_tf.metrics")):
        for kernel in vars(importlib.import_module(module.name)).values():
            if isinstance(kernel, Dispatcher) and hasattr(kernel._cache, "_files"):
                for key in kernel._cache._files._cache_file._load_index():
                    kernel.compile(key[0])
                    loaded += 1
                assert not kernel._cache_misses, kernel
print(loaded, "numba.misc.cffiimpl" in sys.modules)
"""


def test_kept_kernels_load_without_what_compiling_needs(tmp_path):
    """One that needed more would end the process: the linker cannot do without a name."""
    folder = train_small_model(tmp_path)
    assert folder.exists()
    run = subprocess.run([sys.executable, "-c", LOAD_ALL], capture_output=True, text=True, check=True)
    loaded, compiling = run.stdout.split()
    assert int(loaded) >= 10
    assert compiling == "False"


def train_small_model(folder):
    """Use the kernels of trees, rankers and prediction, so that they are compiled where they are not."""
    rng = np.random.default_rng(0)
    X = random(40, 30, 0.3, "csr", np.float32, rng)
    Y = csr_matrix((np.ones(40, np.float32), (np.arange(40), np.arange(40) % 20)))
    save_matrix(folder / "X.npz", X)
    save_matrix(folder / "E.npy", rng.standard_normal((40, 5), np.float32))
    save_matrix(folder / "Y.npz", Y)
    data = ["-x", folder / "X.npz", folder / "E.npy", "-y", folder / "Y.npz", "-m", folder / "model"]
    for command in ("train", "predict"):
        more = ["--max-leaf-size", "4"] if command == "train" else []
        subprocess.run([sys.executable, "-m", f"xmc_tf.linear.{command}", *map(str, data), *more], check=True)
    return folder / "model"
