"""Check that the tutorial, the guides and the help of ``xmc-tf train`` are short enough to be read.

    python tools/check_pages.py

Print each text that is too long, and exit with status 1 if there is one. `make lint` runs it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
MOST_LINES = {"tutorial.md": 275, "reference/benchmarks.md": 250, "how-to/*.md": 180}
MOST_LINES_OF_HELP, MOST_FLAGS = 45, 25  # of the usual flags; --help-all shows the others


def main() -> None:
    pages = [(page, most) for pattern, most in MOST_LINES.items() for page in sorted(DOCS.glob(pattern))]
    lines = {page: len(page.read_text(encoding="utf-8").splitlines()) for page, _ in pages}
    long = [f"{page}: {lines[page]} lines, at most {most}" for page, most in pages if lines[page] > most]
    train = [sys.executable, "-m", "xmc_tf", "train", "--help"]
    wide = {**os.environ, "COLUMNS": "80"}
    text = subprocess.run(train, cwd=ROOT, env=wide, stdout=subprocess.PIPE, text=True, check=True).stdout
    lines_of_help, flags = len(text.splitlines()), len(re.findall("^  [-T]", text, re.MULTILINE))
    if lines_of_help > MOST_LINES_OF_HELP or flags > MOST_FLAGS:
        limits = f"at most {MOST_LINES_OF_HELP} and {MOST_FLAGS}"
        long.append(f"xmc-tf train --help: {lines_of_help} lines with {flags} flags, {limits}")
    print(*long, sep="\n", end="\n" if long else "")
    sys.exit(bool(long))


if __name__ == "__main__":
    main()
