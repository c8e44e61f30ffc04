"""Dictionaries that map word forms to lemmas, and rules for the endings of other words, cached as arrays."""

import logging
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xmc_tf.common.array_views import kernel_view
from xmc_tf.common.process.cache_folder import cache_folder
from xmc_tf.words.kernels import keys_of_words

_LOG = logging.getLogger(__name__)
_FORMAT = 1  # of the files; they are written again if it changes
SAMPLE = 200_000  # forms that are counted
_SHORTEST, _LONGEST = 2, 6  # letters of an ending
LONGEST_CUT = 4 * _LONGEST  # bytes that are cut off
_LEAST_FORMS, _LEAST_SHARE = 20, 0.9


class Endings(NamedTuple):
    """Rules that turn words with certain endings into their lemmas."""

    endings: np.ndarray  # int64: their keys, ascending
    cuts: np.ndarray  # int32: number of bytes to cut off
    added: np.ndarray  # uint8: the bytes to add, of all endings
    added_ends: np.ndarray  # int64: where those of each ending end


NO_ENDINGS = Endings(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint8), np.zeros(0, np.int64))


def learn_endings(lemma_of_form: Mapping[str, str]) -> Endings:
    """Learn a rule for each ending of 2 to 6 letters if at least 90 % of the forms with it change in the same way."""
    step = max(1, len(lemma_of_form) // SAMPLE)
    entries = []
    for form, lemma in islice(lemma_of_form.items(), 0, None, step):
        same = min(len(form), len(lemma))
        while form[:same] != lemma[:same]:  # mostly the last letters differ
            same -= 1
        entries.append((form, (form[same:], lemma[same:])))
    rules: dict[str, tuple[str, str]] = {}
    for length in range(_SHORTEST, _LONGEST + 1):
        entries = [entry for entry in entries if len(entry[0]) >= length + 2]
        totals = Counter([form[-length:] for form, _ in entries])
        # An ending is never more frequent than its own ending, so longer ones of a rare one are rare.
        entries = [entry for entry in entries if totals[entry[0][-length:]] >= _LEAST_FORMS]
        # A change that begins before the ending does not depend on the ending alone.
        counts = Counter([(form[-length:], change) for form, change in entries if len(change[0]) <= length])
        for (ending, change), count in counts.items():
            if count < _LEAST_SHARE * totals[ending]:
                continue
            shorter = next((rules[ending[at:]] for at in range(1, length - 1) if ending[at:] in rules), ("", ""))
            if change != shorter:
                rules[ending] = change
    encoded = [ending.encode() for ending in rules]
    ends = np.cumsum([len(ending) for ending in encoded], dtype=np.int64)
    keys = keys_of_words(np.frombuffer(b"".join(encoded), np.uint8).copy(), ends)
    order = np.argsort(keys)
    changed = list(rules.values())
    ordered = [changed[place] for place in order]
    added = [more.encode() for _, more in ordered]
    return Endings(
        keys[order],
        np.array([len(cut.encode()) for cut, _ in ordered], np.int32),
        np.frombuffer(b"".join(added), np.uint8),
        np.cumsum([len(one) for one in added], dtype=np.int64),
    )


class Strings(NamedTuple):
    """Concatenated UTF-8 strings."""

    letters: np.ndarray  # uint8: their bytes
    ends: np.ndarray  # int64: where each ends

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> "Strings":
        ends = np.cumsum([len(one) for one in strings], dtype=np.int64)
        return cls(np.frombuffer(b"".join(strings), np.uint8), ends)

    def string(self, number: int) -> bytes:
        begin = int(self.ends[number - 1]) if number else 0
        return self.letters[begin : int(self.ends[number])].tobytes()

    def keys(self) -> np.ndarray:
        """Return the int64 key of each word."""
        return keys_of_words(kernel_view(self.letters, np.uint8), kernel_view(self.ends, np.int64))


class Dictionary(NamedTuple):
    """The word forms and lemmas of a language, in lower case."""

    forms: Strings  # in the order of their keys; lemmas are among them
    keys: np.ndarray  # int64: of each form, ascending
    lemma_of: np.ndarray  # int32: the lemma of each form
    lemmas: Strings
    endings: Endings  # for words that are not among the forms


@cache
def dictionary_languages() -> frozenset[str]:
    """Return the codes of the languages that have a dictionary."""
    from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES

    return frozenset(SUPPORTED_LANGUAGES)


@cache
def load_dictionary(language: str) -> Dictionary:
    """Memory-map the dictionary of a language from the cache; on first use, create it and write it to the cache."""
    folder = cache_folder() / "dictionaries" / f"{language}-{version('simplemma')}-{_FORMAT}"
    if not (folder / "keys.npy").exists():
        _LOG.info("preparing the dictionary of %r: up to half a minute, once (cache: %s)", language, folder.parent)
        made = made_dictionary(dictionary_entries(language))
        try:
            _write(folder, made)
        except OSError as error:
            _LOG.warning("the dictionary of %r cannot be cached: %s", language, error)
            return made

    def mapped(name: str) -> np.ndarray:
        return np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)

    return Dictionary(
        Strings(mapped("forms"), mapped("form_ends")),
        mapped("keys"),
        mapped("lemma_of"),
        Strings(mapped("lemmas"), mapped("lemma_ends")),
        Endings(*map(mapped, Endings._fields)),
    )


def made_dictionary(entries: Iterable[tuple[str, str]]) -> Dictionary:
    """Create a dictionary from pairs (form, lemma) in any case."""
    lemma_of_form: dict[str, str] = {}
    for form, lemma in entries:
        low = form.lower()
        # A form in lower case is preferred over a capitalized one, which begins a sentence or is a German noun.
        if low not in lemma_of_form or low == form:
            lemma_of_form[low] = lemma.lower()
    for lemma in set(lemma_of_form.values()):
        lemma_of_form.setdefault(lemma, lemma)
    lemmas = sorted(set(lemma_of_form.values()))
    number = {lemma: place for place, lemma in enumerate(lemmas)}
    forms = [form.encode() for form in lemma_of_form]
    numbers = np.array([number[lemma] for lemma in lemma_of_form.values()], np.int32)
    keys = Strings.of(forms).keys()
    order = np.argsort(keys)
    ordered = Strings.of([forms[place] for place in order.tolist()])
    encoded = Strings.of([lemma.encode() for lemma in lemmas])
    return Dictionary(ordered, keys[order], numbers[order], encoded, learn_endings(lemma_of_form))


def dictionary_entries(language: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs (form, lemma) of simplemma's dictionary in which both are single words."""
    from simplemma.strategies.dictionaries.dictionary_factory import DefaultDictionaryFactory

    for form, lemma in DefaultDictionaryFactory().get_dictionary(language).items():
        if form.isalnum() and lemma.isalnum():
            yield form, lemma


def _arrays(dictionary: Dictionary) -> dict[str, np.ndarray]:
    return {
        "forms": dictionary.forms.letters,
        "form_ends": dictionary.forms.ends,
        "lemma_of": dictionary.lemma_of,
        "lemmas": dictionary.lemmas.letters,
        "lemma_ends": dictionary.lemmas.ends,
        **dictionary.endings._asdict(),
        "keys": dictionary.keys,
    }


def _write(folder: Path, dictionary: Dictionary) -> None:
    """Write the files of a dictionary. Several processes may do this at the same time."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Not by tempfile, whose folders only their owner can read: users may share the cache.
    place = folder.parent / f".{folder.name}-{uuid.uuid4().hex}"
    place.mkdir()
    try:
        for name, array in _arrays(dictionary).items():
            np.save(place / f"{name}.npy", array, allow_pickle=False)
        try:
            os.rename(place, folder)
        except OSError:
            if not (folder / "keys.npy").exists():
                raise
    finally:
        shutil.rmtree(place, ignore_errors=True)
