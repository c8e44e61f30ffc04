"""Outputs that pages show: compared with what a run printed, and rewritten from it.

A shown output is the printed one, number for number. ``…`` alone in a line stands for any lines, and within a line for
any text: for what differs between machines or runs, such as times and the figures of a fine-tuned encoder, and for what
a reader does not need. Spaces may be of any width, because columns are as wide as their widest cell.
"""

import difflib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tools.docs.blocks import Block

ANY = "…"
_NUMBER = re.compile(r"\d[\d,]*(?:\\\.\d+)?")  # in a pattern, where a point is escaped


def is_shown(shown: str, printed: str) -> bool:
    """Return whether an output is as a page shows it."""
    pattern = "".join(r"(?:.*\n)*" if line == ANY else _pattern(line) + r"\n" for line in _lines(shown))
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(printed))) is not None


def compared(page: Path, outputs: Sequence[tuple[Block, str]], renew: bool) -> str:
    """Return a text on all outputs of a page that a run printed otherwise; with ``renew``, write them into the page."""
    if renew:
        rewrite(page, outputs)
        return ""
    return "\n".join(filter(None, (difference(block, printed) for block, printed in outputs)))


def difference(block: Block, printed: str) -> str:
    """Return a text on how an output differs from the block that shows it, or an empty text."""
    if is_shown(block.code, printed):
        return ""
    lines = difflib.unified_diff(
        _lines(block.code), _lines(renewed(block.code, printed)), f"{block} shows", "a run prints", lineterm="", n=1
    )
    return "\n".join([*lines, "fix: python -m tools.docs.renew, and read again what the page says about it"])


def rewrite(page: Path, outputs: Sequence[tuple[Block, str]]) -> list[Block]:
    """Write what a run printed into the blocks of a page that show something else; return these blocks."""
    text = page.read_text(encoding="utf-8")
    changed = [(block, printed) for block, printed in outputs if not is_shown(block.code, printed)]
    for block, printed in reversed(changed):
        text = text[: block.start] + renewed(block.code, printed) + text[block.start + len(block.code) :]
    page.write_text(text, encoding="utf-8")
    return [block for block, _ in changed]


def renewed(shown: str, printed: str) -> str:
    """Return an output as a page shows it: the lines of the run that are most like those shown, with the same ``…``."""
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    parts = _parts([line.rstrip() for line in shown.splitlines() if line.strip()])
    places = _places(parts, lines)
    if places is None or (len(parts) == 1 and _others(parts[0], lines, places[0])):  # all lines are shown
        return "".join(f"{line}\n" for line in lines)
    out: list[str] = []
    end = 0
    for number, (part, place) in enumerate(zip(parts, places, strict=True)):
        out += [ANY] if number or place > end else []
        end = place + len(part)
        out += [_with_gaps(line, lines[place + at]) for at, line in enumerate(part)]
    return "".join(f"{line}\n" for line in (out if end == len(lines) else [*out, ANY]))


def _others(part: Sequence[str], lines: Sequence[str], place: int) -> bool:
    """Return whether there are more or fewer lines than in a part, some of which have changed, too."""
    same = all(is_shown(line, lines[place + at]) for at, line in enumerate(part))
    return len(part) != len(lines) and not same


def _parts(lines: Sequence[str]) -> list[list[str]]:
    """Return the lines between those that stand for any lines."""
    parts: list[list[str]] = [[]]
    for line in lines:
        if line.strip() == ANY:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def _places(parts: Sequence[Sequence[str]], lines: Sequence[str]) -> list[int] | None:
    """Return the lines at which the parts begin, such that they are most alike; the outer ones keep the ends."""

    @cache
    def best(number: int, start: int) -> tuple[float, tuple[int, ...]] | None:
        if number == len(parts):
            return 0.0, ()
        found, part = [], parts[number]
        for place in range(start, len(lines) - len(part) + 1):
            rest = best(number + 1, place + len(part))
            if rest is not None:
                like = sum(_alike(line, lines[place + at]) for at, line in enumerate(part))
                left = (number == 0 and place > 0) + (number == len(parts) - 1 and place + len(part) < len(lines))
                found.append((like + rest[0] - left, (place, *rest[1])))
        return max(found, key=lambda one: one[0], default=None)

    answer = best(0, 0)
    return None if answer is None else list(answer[1])


@cache
def _alike(shown: str, printed: str) -> float:
    pairs = ((shown.split(), printed.split()), (shown, printed))
    return sum(difflib.SequenceMatcher(None, a, b, autojunk=False).ratio() for a, b in pairs)


def _with_gaps(shown: str, printed: str) -> str:
    """Return a printed line with ``…`` where the shown line has it, or all of it if its words are others."""
    if ANY not in shown:
        return printed
    parts = [_NUMBER.sub(_any_number, _pattern(part)) for part in shown.split(ANY)]
    found = re.fullmatch(".*?".join(f"({part})" for part in parts), printed)
    return ANY.join(found.groups()) if found else printed


def _any_number(number: re.Match[str]) -> str:
    decimals = number[0].partition(".")[2]
    return r"\d[\d,]*" + (rf"\.\d{{{len(decimals)}}}" if decimals else "")


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def _pattern(text: str) -> str:
    """Return a pattern of a text: spaces may be of any width, and ``…`` stands for any text."""
    return r"\s+".join(map(re.escape, re.split(r"\s+", text))).replace(ANY, ".*")
