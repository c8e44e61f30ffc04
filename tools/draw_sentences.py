"""Draw docstrings, errors and help texts of xmc_tf at random, to be read by somebody who did not write them.

python tools/draw_sentences.py [--count 200] [--seed 2026]
"""

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_OF_ERRORS = {"InputError", "RefusedError", "TypeError", "ValueError", "RuntimeError"}


def main() -> None:
    """Print the drawn texts with their places."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=2026)
    arguments = parser.parse_args()
    found = [one for path in sorted((ROOT / "xmc_tf").rglob("*.py")) for one in texts(path)]
    for place, kind, text in random.Random(arguments.seed).sample(found, min(arguments.count, len(found))):
        print(f"{place} [{kind}] {' '.join(text.split())}")


def texts(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield place, kind and text of all docstrings, errors and help texts of a file."""
    name = path.relative_to(ROOT)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node):
                yield f"{name}:{node.body[0].lineno}", "docstring", text
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in _OF_ERRORS:
                yield f"{name}:{node.lineno}", "error", ast.unparse(node)
            for keyword in node.keywords:
                if keyword.arg == "help" and called not in _OF_ERRORS:
                    yield f"{name}:{keyword.value.lineno}", "help", ast.unparse(keyword.value)


if __name__ == "__main__":
    main()
