"""Stems or lemmas instead of words, by the analyzer of an Annif project."""

from collections.abc import Callable
from typing import Any


def analysis_of(project: Any) -> Callable[[str], str]:
    """Return the function that normalizes the words of a text; of a project without an analyzer, it changes nothing.

    Short words, numbers and punctuation stay: names of subjects contain them, and qualifiers in brackets.

    Args:
        project: Annif's project.
    """
    if not project.analyzer_spec:
        return lambda text: text
    analyzer = project.analyzer
    return lambda text: " ".join(analyzer.tokenize_words(text, filter=False))
