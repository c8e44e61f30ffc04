"""Check that the tutorial and the guides are short enough to be read.

    python tools/check_pages.py

Print each page that is too long, and exit with status 1 if there is one. `make lint` runs it.
"""

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
MOST_LINES = {"tutorial.md": 275, "reference/benchmarks.md": 250, "how-to/*.md": 180}


def main() -> None:
    pages = [(page, most) for pattern, most in MOST_LINES.items() for page in sorted(DOCS.glob(pattern))]
    lines = {page: len(page.read_text(encoding="utf-8").splitlines()) for page, _ in pages}
    long = [f"{page}: {lines[page]} lines, at most {most}" for page, most in pages if lines[page] > most]
    print(*long, sep="\n", end="\n" if long else "")
    sys.exit(bool(long))


if __name__ == "__main__":
    main()
