"""Compiled kernels are kept on disk, and never for other code than the one that they were compiled from."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from xmc_tf.common.compiled import source_digest

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


def answer(package):
    """What the outer kernel gives in a fresh process."""
    environment = {**os.environ, "PYTHONPATH": str(package), "XMC_TF_CACHE": str(package / "cache")}
    run = subprocess.run(
        [sys.executable, "-c", ASK], cwd=package, env=environment, capture_output=True, text=True, check=True
    )
    return int(run.stdout)


def test_a_changed_callee_in_another_file_is_compiled_anew(package):
    assert answer(package) == 20
    assert answer(package) == 20
    assert list((package / "cache" / "kernels").rglob("*.nbi")), "nothing was kept on disk"
    inner = package / "pack" / "inner.py"
    inner.write_text(inner.read_text().replace("x + 1", "x + 20"))
    assert answer(package) == 210


def test_the_digest_follows_compiled_code_alone(tmp_path):
    (tmp_path / "kernel.py").write_text("@njit()\ndef f(): ...")
    (tmp_path / "plain.py").write_text("x = 1")
    before = source_digest(tmp_path)
    (tmp_path / "plain.py").write_text("x = 2")
    assert source_digest(tmp_path) == before
    (tmp_path / "kernel.py").write_text("@njit()\ndef g(): ...")
    assert source_digest(tmp_path) != before


def test_kernels_lie_outside_the_code_and_the_first_run_says_so(tmp_path):
    command = [sys.executable, "-m", "xmc_tf.linear.predict", "-m", str(tmp_path), "-q", "x"]
    environment = {**os.environ, "XMC_TF_CACHE": str(tmp_path / "cache")}
    first, second = (subprocess.run(command, env=environment, capture_output=True, text=True).stderr for _ in range(2))
    assert f"kept in {tmp_path}/cache/kernels" in first
    assert "compiling" not in second
