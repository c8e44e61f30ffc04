import os
import re
import sys
import textwrap
from collections.abc import Sequence

_WIDTH = 88
_STYLES = {"title": "1;36", "bold": "1", "soft": "2", "good": "32"}


def styled(text: str, style: str) -> str:
    """Return the text in a colour or weight if standard output is a terminal that supports it."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def heading(number: int, text: str) -> None:
    print(f"\n{styled(f'{number}  {text}', 'title')}\n", flush=True)


def paragraph(text: str, indent: str = "   ", max_lines: int | None = None) -> None:
    """Print a wrapped text, truncated to ``max_lines`` lines."""
    lines = textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)
    if max_lines is not None and len(lines) > max_lines:
        lines = [*lines[: max_lines - 1], lines[max_lines - 1][: _WIDTH - 2] + " …"]
    print("\n".join(lines), flush=True)


def folded(command: str) -> str:
    """Return a command line broken before options into lines that fit the screen and can be copied."""
    lines = [""]
    for part in re.split(r" (?=-)", command):
        if lines[-1] and len(lines[-1]) + len(part) > _WIDTH - 8:
            lines.append("   ")
        lines[-1] += f" {part}" if lines[-1] else part
    return " \\\n".join(lines)


def block(text: str, indent: str = "   ") -> None:
    print(textwrap.indent(text, indent), flush=True)


def ranking(found: Sequence[tuple[str, float]], true: Sequence[str] | None = None) -> None:
    """Print label names with their scores, best first; true labels are marked."""
    if not found:
        paragraph("No label: none of the words occurs in the training texts.", "     ")
    wide = max((len(name) for name, _ in found), default=0)
    for name, score in found:
        right = true is not None and name in true
        mark = "✓" if right else " "
        bar = "█" * round(20 * min(max(score, 0.0), 1.0))
        line = f"   {mark} {name:<{wide}}  {score:5.2f}  {styled(bar, 'soft')}".rstrip()
        print(styled(line, "good") if right else line, flush=True)
