"""Check that no package grows beyond its ceiling in tools/lines.toml.

    python tools/check_lines.py

Print the lines and the ceiling of each package of xmc_tf, of the tests and of the benchmarks, and exit with status 1
if one of them is above its ceiling or has none. `make lint` runs it.
"""

import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CEILINGS = ROOT / "tools" / "lines.toml"
COUNTED = ("xmc_tf", "tests", "benchmarks")


def count_lines(files: dict[str, str]) -> Counter[str]:
    """Return the number of lines of each package. ``files`` are texts by path; files beside packages are ``xmc_tf``."""
    lines: Counter[str] = Counter()
    for path, text in files.items():
        top, *folders, _ = path.split("/")
        package = f"{top}/{folders[0]}" if top == "xmc_tf" and folders else top
        lines[package] += len(text.splitlines())
    return lines


def problems(lines: Counter[str], ceilings: dict[str, int]) -> list[str]:
    """Return a sentence for each package above its ceiling, without a ceiling, or without lines."""
    return [
        *(
            f"{package}: {lines[package]} lines, expected at most {ceiling}; shorten it, or raise its ceiling in "
            "tools/lines.toml and say why"
            for package, ceiling in ceilings.items()
            if lines[package] > ceiling
        ),
        *(f"{package}: no ceiling; add one to tools/lines.toml" for package in sorted(lines.keys() - ceilings.keys())),
        *(f"{package}: no such package; remove it from tools/lines.toml" for package in ceilings.keys() - lines.keys()),
    ]


def main() -> None:
    listed = [
        "git",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        *(f"{top}/*.py" for top in COUNTED),
    ]
    names = subprocess.run(listed, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    # A file may have been deleted since the last commit.
    files = {name: (ROOT / name).read_text(encoding="utf-8") for name in names if (ROOT / name).is_file()}
    lines = count_lines(files)
    ceilings = tomllib.loads(CEILINGS.read_text(encoding="utf-8"))["ceilings"]
    for package in sorted(lines, key=lambda name: (COUNTED.index(name.partition("/")[0]), -lines[name])):
        print(f"{package:<20} {lines[package]:>6,}  ceiling {ceilings.get(package, 0):>6,}")
    own = sum(count for package, count in lines.items() if package.startswith("xmc_tf"))
    print(f"xmc_tf in all        {own:>6,}")
    found = problems(lines, ceilings)
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
