"""Check that code, pages and settings use the words of the field.

    python tools/check_words.py [FILE ...]

Print each banned phrase with its place and the better word, and exit with status 1 if there is one. Without files,
check all text files that git tracks. `make lint` runs it.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OWN_FILES = ("tools/check_words.py", "tests/test_check_words.py")
ENDINGS = (
    ".py",
    ".md",
    ".sh",
    ".sbatch",
    ".json",
    ".yaml",
    ".yml",
    ".toml",
    ".cfg",
    ".config",
    ".Dockerfile",
    "Makefile",
)

# (text that every match contains, pattern, better word). Only phrases with few false positives.
BANNED = [
    ("peer", r"\bthe peer\b(?!\.)|\bpeer's\b", "PECOS"),
    ("mend", r"\bmend(s|ed|ing)?\b", "fix"),
    ("wishes", r"\bwishes\b", "options, settings"),
    (" on w", r"\bgo(es|ing)? on (where|with what)\b|\bgone on with\b", "resume"),
    ("going on from", r"\bgoing on from\b", "resuming from"),
    ("world of one", r"\bworld of one\b", "a single process"),
    ("one another", r"\bone another\b", "each other"),
    ("what came", r"\bwhat came\b", "received; the result"),
    ("what it comes to", r"\bwhat it comes to\b", "estimate, metric"),
    ("worth", r"\bwhat (it|they|predictions) (is|are) worth\b", "estimate, metric"),
    ("kin", r"\b(his|her|its|their|scored) kin\b", "variants"),
    ("at odds", r"\bat odds\b", "inconsistent"),
    ("anew", r"\banew\b", "again"),
    ("who is where", r"\bwho is where\b", "which ranks there are"),
    ("nothing is said", r"\bwhere nothing is said\b", "by default"),
    ("where not given", r"\bwhere not given\b", "by default"),
    ("is asked for", r"\bas is asked for\b", "the name of the option"),
    ("is no ", r"(?<![Tt]here )\bis no (folder|model|matrix|list|file|journal|name)\b", "is not a"),
    ("greatest length", r"\bgreatest length\b", "maximum length"),
    ("longest gradient", r"\blongest gradient\b", "maximum gradient norm"),
    ("one a ", r"\bone a (core|line|label|column|level|rank|row)\b", "one per"),
    ("told apart", r"\btold apart\b", "distinguished"),
    ("behind the last", r"\bbehind the last\b", "exclusive; after the last"),
    ("behind their last", r"\bbehind (its|their) last\b", "exclusive; after the last"),
    ("for the eyes", r"\bfor the eyes\b", "display"),
    ("let", r"\blets? go of\b", "release, free"),
    ("to bear", r"\bcomes? to bear\b", "is used"),
    ("give or take", r"\bgive or take\b", "about"),
    ("there are none", r"\bwhere there are none\b", "if there are none"),
    ("nobody", r"\bnobody (says|asks|shares)\b", "by default; not used"),
    ("worth no", r"\bis worth no\b", "does not need"),
    ("cannot be mapped", r"\bnothing cannot be\b", "empty ... cannot be"),
]
# Words with which the first line of a docstring in xmc_tf must not begin, and folders that keep to it.
VAGUE_BEGINNINGS = ("Whether", "What", "How", "Who", "Which", "Gives", "Says", "Tells")


def problems(text: str) -> list[tuple[int, str, str]]:
    """Return line number, banned phrase and better word of each problem in a text."""
    found = []
    for contained, pattern, better in BANNED:
        if contained in text:
            for match in re.finditer(pattern, text):
                found.append((text.count("\n", 0, match.start()) + 1, match[0], better))
    return sorted(found)


def vague_docstrings(source: str) -> list[tuple[int, str, str]]:
    """Return line number, first word and better form of each docstring that does not say what its object is or does."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            first = docstring.split(maxsplit=1)[0] if docstring else ""
            decorators = {ast.unparse(one) for one in getattr(node, "decorator_list", ())}
            if first == "Whether" and decorators & {"property", "cached_property"}:
                continue  # usual for a property that is true or false
            if first in VAGUE_BEGINNINGS:
                found.append(
                    (node.body[0].lineno, first, "an imperative verb (functions) or a noun (classes, modules)")
                )
    return sorted(found)


def main(names: list[str]) -> int:
    """Print the problems of files and return the exit status."""
    if not names:
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
        names = [name for name in listed.stdout.splitlines() if name.endswith(ENDINGS) and name not in OWN_FILES]
    status = 0
    for name in names:
        path = ROOT / name
        if path.is_file():  # a file may have been deleted since the last commit
            text = path.read_text(encoding="utf-8", errors="replace")
            found = problems(text)
            if name.startswith("xmc_tf/") and name.endswith(".py"):
                found += vague_docstrings(text)
            for line, phrase, better in found:
                print(f"{name}:{line}: {phrase!r}; better: {better}", file=sys.stderr)
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
