"""Write what the examples print into the pages that show it: ``python -m tools.docs.renew [tutorial] [thresholds] …``.

Runs the tests of the named pages (default: all), which write outputs instead of comparing them. Read the pages again
afterwards: a sentence about a number is not renewed.
"""

import sys
from collections.abc import Sequence

import pytest

from tools.docs.examples import ROOT, pages

FILES = ("tests/docs/test_pages.py", "tests/docs/test_examples.py")
TESTS = "(prints_what_it_shows or a_page_runs)"


def main(names: Sequence[str]) -> int:
    """Renew the pages with these names, without their ending; return the exit status of the tests."""
    before = {page: page.read_text(encoding="utf-8") for page in pages()}
    tests = " or ".join(f"{TESTS} and {name}" for name in names) or TESTS
    status = pytest.main([*FILES, "-q", "--renew", "-k", tests])
    for page, text in before.items():
        if page.read_text(encoding="utf-8") != text:
            print(f"renewed: {page.relative_to(ROOT)}")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
