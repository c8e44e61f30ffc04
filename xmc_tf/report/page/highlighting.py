"""Highlighting of the words of a text that raised the score of a label."""

from collections.abc import Mapping
from html import escape

from xmc_tf.features.characters import spans_of_words
from xmc_tf.report.page.elements import Html, clean

_LEAST = 0.1  # share of the strongest word below which a word is not highlighted


def highlighted(text: str, amounts: Mapping[str, float], most: int) -> Html:
    """Return a text for the page, with a stronger background for words that contributed more.

    The contribution of an n-gram is divided among its words. Words that lowered the score are not highlighted.

    Args:
        text: the text.
        amounts: contribution of each word and n-gram, in lower case with single spaces.
        most: maximum number of characters.
    """
    shown = clean(text, most)
    spans = spans_of_words(shown)
    strengths = _strengths([shown[start:stop].lower() for start, stop in spans], amounts)
    highest = max(strengths, default=0.0)
    parts, at = [], 0
    for (start, stop), strength in zip(spans, strengths, strict=True):
        if highest <= 0 or strength < _LEAST * highest:
            continue
        parts.append(escape(shown[at:start]))
        parts.append(f'<mark style="--part:{strength / highest:.2f}">{escape(shown[start:stop])}</mark>')
        at = stop
    return "".join([*parts, escape(shown[at:])])


def _strengths(words: list[str], amounts: Mapping[str, float]) -> list[float]:
    """Return the contribution of each word of a text, by itself and in n-grams."""
    longest = max((feature.count(" ") + 1 for feature in amounts), default=0)
    strengths = [0.0] * len(words)
    for length in range(1, longest + 1):
        for first in range(len(words) - length + 1):
            amount = amounts.get(" ".join(words[first : first + length]), 0.0)
            for place in range(first, first + length):
                strengths[place] += amount / length
    return strengths
