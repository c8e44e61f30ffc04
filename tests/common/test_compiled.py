"""Compiled kernels are kept on disk, and never for other code than the one that they were compiled from."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from xmc_tf.common.compiled import _PART_OF_KERNELS, source_digest

PACKAGE = Path(__file__).parents[2] / "xmc_tf"
ASK = "from pack.outer import outer; print(outer(1))"


@pytest.fixture
def package(tmp_path):
    """Two modules, one of which calls the other's kernel, beside a copy of what compiles them."""
    (tmp_path / "xmc_tf" / "common" / "process").mkdir(parents=True)
    needed = ("common/activity.py", "common/process/__init__.py", "common/process/cache_folder.py")
    for name in ("__init__.py", "__init__.pyi", "common/__init__.py", "common/compiled.py", *needed):
        shutil.copy(PACKAGE / name, tmp_path / "xmc_tf" / name)
    inner, outer = tmp_path / "pack" / "inner.py", tmp_path / "pack" / "outer.py"
    inner.parent.mkdir()
    head = "from xmc_tf.common.compiled import inner as part, kernel\n"
    inner.write_text(f"{head}@part\ndef inner(x):\n    return x + 1\n")
    outer.write_text(f"{head}from pack.inner import inner\n@kernel\ndef outer(x):\n    return inner(x) * 10\n")
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


def test_a_part_of_kernels_is_also_a_kernel_of_its_own(package):
    own = "from pack.inner import inner, kernel; own = kernel(inner); assert own(1) == 2 and own.stats.cache_path; "
    assert answer(package, own + "print(inner(1))") == 2
    assert answer(package, own + ASK) == 20
    assert answer(package, own + "assert own.stats.cache_hits; " + ASK) == 20


def test_a_kept_kernel_fails_as_a_fresh_one(package):
    body = "def inner(x):\n    return np.full(x, 1.0).sum() + np.zeros((x, 2)).size\n"
    inner = package / "pack" / "inner.py"
    inner.write_text(f"import numpy as np\nfrom xmc_tf.common.compiled import kernel\n@kernel\n{body}")
    ask = """
from pack.inner import inner
try:
    inner(-1)
except ValueError as error:
    assert "negative dimensions" in str(error), error
    print(int(inner(2)))
"""
    assert [answer(package, ask) for _ in range(2)] == [6, 6]


def test_the_digest_follows_compiled_code_alone(tmp_path):
    head = "from xmc_tf.common.compiled import kernel\n"
    (tmp_path / "kernel.py").write_text(f"{head}@kernel\ndef f(): ...")
    announcing = "from xmc_tf.common.compiled import announce_compiling\n"
    (tmp_path / "plain.py").write_text("x = 1")
    (tmp_path / "command.py").write_text(f"{announcing}x = 1")
    before = source_digest(tmp_path)
    (tmp_path / "plain.py").write_text("x = 2")
    (tmp_path / "command.py").write_text(f"{announcing}x = 2")
    assert source_digest(tmp_path) == before
    (tmp_path / "kernel.py").write_text(f"{head}@kernel\ndef g(): ...")
    assert source_digest(tmp_path) != before


def test_the_digest_covers_all_constants_of_kernels():
    sources = {path: path.read_text() for path in PACKAGE.rglob("*.py")}
    covered = {path for path, source in sources.items() if any(mark.decode() in source for mark in _PART_OF_KERNELS)}
    imported = {
        PACKAGE.parent.joinpath(*node.module.split(".")).with_suffix(".py")
        for source in sources.values()
        if re.search(r"^@(kernel|inner|intrinsic)\b", source, re.MULTILINE)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("xmc_tf.")
        if any(one.name.isupper() for one in node.names)
    }
    assert PACKAGE / "features/characters.py" in imported
    assert imported <= covered


COMPILES = """
import logging, sys
import numpy as np
from xmc_tf.common.compiled import announce_compiling
from xmc_tf.tree.embedding_kernels import scale_rows

logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
if "announce" in sys.argv:
    announce_compiling()
scale_rows(0, 1, np.array([0, 1]), np.zeros(1, np.float32), np.zeros(1, np.float32))
"""


@pytest.mark.full
def test_command_lines_announce_compiling(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "xmc_tf", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "XMC_TF_CACHE": str(tmp_path / "cache")}

    def output(*arguments, at=tmp_path, **more):
        command = [sys.executable, "-c", COMPILES, *arguments]
        run = subprocess.run(command, cwd=at, env=environment | more, capture_output=True, text=True, check=True)
        return run.stderr

    assert f"(cache: {tmp_path}/cache/kernels)" in output("announce")
    assert output("announce") == ""
    shutil.copytree(tmp_path / "xmc_tf", tmp_path / "installed" / "xmc_tf")
    assert output("announce", at=tmp_path / "installed") == ""
    # A processor with other instructions: cached machine code does not serve it.
    assert "compiling" in output("announce", NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    (tmp_path / "xmc_tf" / "changed.py").write_text("# from xmc_tf.common.compiled import\n")
    assert output() == ""  # a program that uses the package


def test_kernels_of_other_packages_keep_their_folder(tmp_path):
    code = (
        "import numba, xmc_tf.tree.embedding_kernels as ours\n"
        "from xmc_tf.common.compiled import kernel_folder\n"
        "assert ours.scale_rows.stats.cache_path.startswith(str(kernel_folder()))\n"
        "assert not numba.config.CACHE_LOCATOR_CLASSES\n"
    )
    environment = {**os.environ, "XMC_TF_CACHE": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
