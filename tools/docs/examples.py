"""The examples of the documentation: code blocks of pages, and examples in the docstrings of public names.

Blocks of Python and bash are run by tests/docs: those of the tutorial and the guides by test_pages.py, all others by
test_examples.py, and docstrings by test_docstrings.py. Blocks in other languages show output or files; commands in a
block of text are not run, but tests check that they are understood. A block without a language is neither.
"""

import doctest
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import xmc_tf
from tools.docs.public_names import docstring, documented

ROOT = Path(__file__).resolve().parents[2]
RUN = ("python", "bash")
SHOWN = ("text", "csv", "ini", "json", "toml", "yaml")
_FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^Examples?:\n((?:[ ]+.*\n?|\n)+)", re.MULTILINE)


class Example(NamedTuple):
    """One example.

    Args:
        place: file and line, or the public name.
        language: of the block; ``doctest`` in docstrings.
        code: the text.
        runs: whether the tests run it, or need not.
    """

    place: str
    language: str
    code: str
    runs: bool


def pages() -> list[Path]:
    """Return the files whose code blocks are examples."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def of_page(path: Path) -> Iterator[Example]:
    """Yield the code blocks of a page.

    A block of Python or bash inside a list does not run: the tests only see blocks at the start of a line.
    """
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    for block in _FENCE.finditer(text):
        indent, language, code = block[1], block[2].strip(), block[3]
        runs = language in SHOWN or (language in RUN and not indent)
        yield Example(f"{name}:{text.count(chr(10), 0, block.start()) + 1}", language, code, runs)


def of_docstring(name: str, text: str) -> Iterator[Example]:
    """Yield the example section of a docstring, if it has one.

    It runs if it consists of prompts, and none of them is skipped.
    """
    for section in _SECTION.finditer(text):
        parsed = doctest.DocTestParser().get_examples(section[1])
        runs = bool(parsed) and not any(example.options.get(doctest.SKIP) for example in parsed)
        yield Example(name, "doctest", section[1], runs)


def of_docstrings() -> Iterator[Example]:
    """Yield the examples in the docstrings of the public names and their members."""
    yield from of_docstring("xmc_tf", xmc_tf.__doc__ or "")
    for name, value in documented().items():
        yield from of_docstring(name, docstring(value))


def all_examples() -> list[Example]:
    """Return all examples, of pages and docstrings."""
    return [*(example for page in pages() for example in of_page(page)), *of_docstrings()]
