"""Words that are written in capitals, such as AI: they are no forms of the words that a dictionary has for them."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from xmc_tf.words.languages import sample_of

if TYPE_CHECKING:
    from xmc_tf.data import Texts

_TEXTS = 2000
_FEWEST = 2  # times that texts write a word in capitals
_WORD = re.compile(r"\w{2,}")


def abbreviations(texts: "Texts", names: Iterable[str]) -> list[str]:
    """Return the words, in lower case, that any name of a label or most of a sample of texts writes in capitals.

    Names or texts that are all in capitals say nothing.
    """
    capitals, others, named = Counter[str](), Counter[str](), Counter[str]()
    for text in sample_of(texts, _TEXTS):
        if not text.isupper():
            for word in _WORD.findall(text):
                (capitals if word.isupper() else others)[word.lower()] += 1
    found = {word for word, count in capitals.items() if count >= max(_FEWEST, others[word] + 1)}
    for name in names:
        named.update(_WORD.findall(name))
    in_capitals = [word for word in named if word.isupper()]
    if 2 * len(in_capitals) < len(named) or len(named) < _FEWEST:
        found.update(map(str.lower, in_capitals))
    return sorted(found)
