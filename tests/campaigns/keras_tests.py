"""Run Keras's own tests plainly and under ``CollectiveStrategy`` in one process, and print those that differ.

    python -m tests.campaigns.keras_tests
    python -m tests.campaigns.keras_tests optimizers/optimizer_test.py /path/of/embed_reduce_test.py

The package of Keras contains its tests. Under the strategy, each test runs inside ``scope()`` and
``embedding_scope()``, which shards all embeddings. Of those that pass plainly, a test

- passes;
- is refused: it ends in an ``InputError``, whose first line is printed;
- is different: any other failure, which is a fault.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import types
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import pytest

SOURCES = Path(keras.__file__).parent / "src"
PARTS = ["callbacks", "layers/core/embedding_test.py", "layers/core/reversible_embedding_test.py", "losses", "metrics"]
PARTS += ["models", "optimizers", "saving", "trainers"]
FILE, UNDER = "XMC_TF_KERAS_TESTS", "XMC_TF_KERAS_TESTS_UNDER_STRATEGY"


def pytest_configure() -> None:
    """Let test files that import jax for one of their tests be collected without it."""
    if importlib.util.find_spec("jax") is None:
        sys.modules["jax"] = types.ModuleType("jax")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run a test inside the scopes of a strategy."""
    if UNDER not in os.environ:
        return (yield)
    from xmc_tf import CollectiveStrategy

    strategy = CollectiveStrategy(shard_above=0)
    with strategy.scope(), strategy.embedding_scope():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Write a line with the outcome of each test to ``FILE``."""
    report = yield
    if report.when == "call" or report.outcome != "passed":
        text = "" if call.excinfo is None else _text_of(call.excinfo.value)
        with Path(os.environ[FILE]).open("a") as file:
            file.write(json.dumps([f"{item.path}::{item.nodeid.partition('::')[2]}", report.outcome, text]) + "\n")
    return report


def _text_of(error: BaseException) -> str:
    """Return the first line of an error, or of the InputError that led to it."""
    found: BaseException | None = error
    while found is not None and type(found).__name__ != "InputError":
        found = found.__cause__ or found.__context__
    lines = [line for line in str(found or error).splitlines() if line.strip()]
    return f"{type(found or error).__name__}: {lines[0] if lines else ''}"


def outcomes(files: Sequence[str], *, under: bool) -> dict[str, tuple[str, str]]:
    """Return each test's outcome and the first line of its error."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "outcomes")
        environment = os.environ | {FILE: str(file), "KERAS_BACKEND": "tensorflow"} | ({UNDER: "1"} if under else {})
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.campaigns.keras_tests", "-p", "no:cacheprovider"]
        command += ["-c", os.devnull, "--rootdir", folder, "--import-mode=importlib", "--tb=no", "-W", "ignore"]
        subprocess.run([*command, "--continue-on-collection-errors", *files], env=environment, check=False)
        lines = map(json.loads, file.read_text().splitlines())
        return {name: (outcome, text) for name, outcome, text in lines}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=PARTS, help="folders and files of keras/src, or other files")
    paths = [SOURCES / part for part in parser.parse_args().parts]
    files = sorted(str(file) for path in paths for file in ([path] if path.is_file() else path.rglob("*_test.py")))
    plain, found = outcomes(files, under=False), outcomes(files, under=True)
    kinds: Counter[str] = Counter()
    for name in (name for name, (outcome, _) in plain.items() if outcome == "passed"):
        outcome, text = found.get(name, ("missing", ""))
        kind = outcome if outcome == "passed" else "refused" if text.startswith("InputError") else "different"
        kinds[kind] += 1
        if kind != "passed":
            print(f"{kind}: {name.removeprefix(f'{SOURCES}/')}\n    {text}")
    print(f"\n{kinds.total()} pass plainly, of which {', '.join(f'{n} {kind}' for kind, n in kinds.most_common())}")
    return 1 if kinds["different"] or not kinds else 0


if __name__ == "__main__":
    sys.exit(main())
