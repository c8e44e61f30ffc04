"""Change one operator, number or condition of the package at a time, and count the changes that its tests catch.

``python -m tests.campaigns.mutations [--mutants 200] [--seed 0] [--only fusion tables] [--kernels]``

Each mutant is a copy of the repository in a temporary folder, with one change in one file. The tests of the file's
package run there until one fails: first those that import the changed module. Files that kernels are compiled from are
left out unless ``--kernels`` is given: after any change in one of them, all kernels are compiled again, which takes
minutes.
"""

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from xmc_tf.common.compiled import _PART_OF_KERNELS

ROOT = Path(__file__).parents[2]
TESTS = {
    "fusion": ["tests/fusion"],
    "label_names": ["tests/label_names"],
    "features": ["tests/features"],
    "rankers": ["tests/linear", "tests/models/test_growing.py"],
    "tree": ["tests/tree"],
    "metrics": ["tests/metrics"],
    "tables": ["tests/tables"],
    "collective/optimizers": ["tests/collective/test_strategy.py", "tests/collective/test_single_rank.py"],
    "encoder/network": ["tests/encoder"],
}
PRELOADED = (
    "tests.conftest",
    "numpy",
    "scipy.sparse",
    "scipy.optimize",
    "sklearn",
    "numba",
    "pandas",
    "hypothesis",
    "pytest",
    "keras",
)
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.MatMult: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Pow: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NAMES = {"maximum": "minimum", "max": "min", "argmax": "argmin", "any": "all", "floor": "ceil", "zeros": "ones"}
NAMES |= {new: old for old, new in NAMES.items()}


class Mutant(NamedTuple):
    package: str
    path: Path  # below the copy
    line: int
    change: str
    source: str
    changed: str


class _Places(ast.NodeVisitor):
    """The nodes that may be changed: none of annotations, errors, log lines, texts, and zip's ``strict``."""

    def __init__(self) -> None:
        self.found: list[ast.AST] = []

    def generic_visit(self, node: ast.AST) -> None:
        is_log = isinstance(node, ast.Call) and ast.unparse(node.func).lower().startswith(("_log.", "log."))
        is_guard = isinstance(node, ast.keyword) and node.arg == "strict"
        if is_log or is_guard or isinstance(node, (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)):
            return
        if _changed(node) is not None:
            self.found.append(node)
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list", "bases", "type_params"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        self.visit(child)


def _changed(node: ast.AST) -> ast.AST | None:
    """Return the changed node; None if it stays."""
    match node:
        case ast.BinOp(left=left, op=op, right=right) if not any(map(_is_text, (left, right))):
            return ast.BinOp(left, OPERATORS[type(op)](), right) if type(op) in OPERATORS else None
        case ast.BoolOp(op=op, values=values):
            return ast.BoolOp(OPERATORS[type(op)](), values)
        case ast.Compare(left=left, ops=[op, *others], comparators=right):
            return ast.Compare(left, [OPERATORS[type(op)](), *others], right)
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            return operand
        case ast.Constant(value=bool() as value):
            return ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            return ast.Constant(value + 1)
        case ast.Attribute(value=value, attr=attr, ctx=context) if attr in NAMES:
            return ast.Attribute(value, NAMES[attr], context)
        case ast.IfExp(test=test, body=body, orelse=otherwise):
            return ast.IfExp(test, otherwise, body)
        case ast.If(test=test, body=body, orelse=otherwise):
            return ast.If(ast.UnaryOp(ast.Not(), test), body, otherwise)
    return None


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | None))


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else super().visit(node)


def mutants(copy: Path, packages: list[str], count: int, seed: int, kernels: bool) -> Iterator[Mutant]:
    """Yield as many mutants of each package. Of two files, the longer one is drawn more often."""
    chosen = random.Random(seed)
    for number in range(count):
        package = packages[number % len(packages)]
        paths = [path for path in sorted((copy / "xmc_tf" / package).rglob("*.py")) if path.stat().st_size]
        paths = [path for path in paths if kernels or not any(mark in path.read_bytes() for mark in _PART_OF_KERNELS)]
        places = _Places()
        while not places.found:
            (path,) = chosen.choices(paths, [path.stat().st_size for path in paths])
            source = path.read_text()
            tree = ast.parse(source)
            places.visit(tree)
        old = chosen.choice(places.found)
        new = ast.copy_location(_changed(old), old)
        change = " -> ".join(ast.unparse(one).splitlines()[0][:80] for one in (old, new))
        line = source.splitlines()[old.lineno - 1].strip()[:100]
        changed = ast.unparse(ast.fix_missing_locations(_Replace(old, new).visit(tree)))
        yield Mutant(package, path.relative_to(copy), old.lineno, f"{line}  ({change})", source, changed)


def tests_of(copy: Path, package: str, path: Path) -> list[list[str]]:
    """Return the test files of a package, the shorter ones first: those that name the module, and the others."""
    files = [file for place in TESTS[package] for file in sorted((copy / place).rglob("test_*.py")) or [copy / place]]
    texts = {str(file.relative_to(copy)): file.read_text() for file in files}
    module = ".".join(path.with_suffix("").parts)
    names = sorted(texts, key=lambda name: len(texts[name]))
    groups = [[name for name in names if (module in texts[name]) is named] for named in (True, False)]
    return [group for group in groups if group]


def run_tests(copy: Path, tests: list[str], limit: float) -> int | None:
    """Run tests in a process that has imported all but the package already; return its status, or None: too long."""
    if not (child := os.fork()):
        os.setsid()
        os.chdir(copy)
        silent = os.open(copy / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        sys.path[:] = [str(copy), *(place for place in sys.path if Path(place).resolve() != ROOT)]
        os.environ["PYTHONPATH"] = str(copy)
        for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "xmc_tf")]:
            del sys.modules[name]
        import pytest

        status = pytest.main(["-x", "-q", "-m", "not full", "-p", "no:cacheprovider", *tests])
        os._exit(0 if status == pytest.ExitCode.NO_TESTS_COLLECTED else int(status))
    end = time.monotonic() + limit
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=TESTS, default=[*TESTS], help="packages to change")
    parser.add_argument("--limit", type=float, default=600, help="seconds for the tests of a mutant")
    parser.add_argument("--kernels", action="store_true", help="also change files that kernels are compiled from")
    args = parser.parse_args()
    for name in PRELOADED:
        __import__(name)
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, files.split("\0")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy / name)
        for one in mutants(copy, args.only, args.mutants, args.seed, args.kernels):
            (copy / one.path).write_text(one.changed)
            status: int | None = 0
            for tests in tests_of(copy, one.package, one.path):
                if status == 0:
                    status = run_tests(copy, tests, args.limit)
            (copy / one.path).write_text(one.source)
            result = {None: "too long", 0: "survived"}.get(status, "caught")
            counts[one.package, result] += 1
            failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", (copy / "output").read_text(), re.MULTILINE)
            print(f"{result:9} {one.path}:{one.line}: {one.change}", *failed[:1], sep="  by ", flush=True)
    print(f"\n{'package':24}{'mutants':>9}{'caught':>9}{'survived':>9}{'too long':>9}")
    for package in [*args.only, "all"]:
        own = [sum(n for (p, r), n in counts.items() if package in (p, "all") and r == result)
               for result in ("caught", "survived", "too long")]  # fmt: skip
        print(f"{package:24}{sum(own):9}" + "".join(f"{n:9}" for n in own))


if __name__ == "__main__":
    main()
