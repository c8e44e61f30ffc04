from collections.abc import Callable
from typing import Any


def analysis_of(project: Any) -> Callable[[str], str]:
    """Return the function that normalizes the words of a text by the project's analyzer, if it has one.

    Short words, numbers and punctuation are kept, because names of subjects contain them.
    """
    if not project.analyzer_spec:
        return lambda text: text
    analyzer = project.analyzer
    return lambda text: " ".join(analyzer.tokenize_words(text, filter=False))
