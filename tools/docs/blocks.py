"""The code blocks of a page, as the tests run them and ``python -m tools.docs.renew`` rewrites them."""

import re
from dataclasses import dataclass
from pathlib import Path

from tools.docs.examples import ROOT

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    page: Path
    line: int  # of its first line of code
    language: str
    code: str
    follows: bool  # whether only blank lines are between it and the block before
    start: int  # where the code begins in the page's text

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the code blocks of a page, in order."""
    text, found, end = page.read_text(encoding="utf-8"), [], -1
    for match in _FENCE.finditer(text):
        follows = end >= 0 and not text[end : match.start()].strip()
        found.append(Block(page, text.count("\n", 0, match.start(2)) + 1, match[1], match[2], follows, match.start(2)))
        end = match.end()
    return found


def commands(block: Block) -> list[str]:
    """Return the command lines of a block, with continued lines joined, without comments."""
    joined = re.sub(r"\s*\\\n\s*", " ", block.code)
    lines = (re.sub(r"(^|\s+)#.*$", "", line).strip() for line in joined.splitlines())
    return [line for line in lines if line]
