"""The lemmas of words by plain Python: a dictionary and a rule of endings."""

from collections import Counter, defaultdict

from tests.words.small import ENTRIES

LEAST_STEM, SHORTEST_ENDING, LONGEST_ENDING = 2, 2, 14  # bytes


def listed_lemmas(language):
    """Return the lemma of each form, in lower case."""
    found = {}
    for form, lemma in ENTRIES[language]:
        if form.lower() not in found or form.islower():
            found[form.lower()] = lemma.lower()
    for lemma in set(found.values()):
        found.setdefault(lemma, lemma)
    return found


def rules_of(lemma_of_form):
    """Return what becomes of endings: all of them, without leaving out those that say what a shorter one says."""
    changes = defaultdict(Counter)
    for form, lemma in lemma_of_form.items():
        same = max(n for n in range(min(len(form), len(lemma)) + 1) if form[:n] == lemma[:n])
        for length in range(2, 7):
            if len(form) - length >= 2:
                told = len(form) - same <= length
                changes[form[-length:]][(form[same:], lemma[same:]) if told else None] += 1
    rules = {}
    for ending, counter in changes.items():
        change, count = counter.most_common(1)[0]
        if change is not None and sum(counter.values()) >= 20 and count >= 0.9 * sum(counter.values()):
            rules[ending] = change
    return rules


def lemma_by_rules(word, rules):
    """Return the lemma that the longest ending of a word tells."""
    encoded = word.encode()
    for length in range(min(LONGEST_ENDING, len(encoded) - LEAST_STEM), SHORTEST_ENDING - 1, -1):
        ending = encoded[-length:].decode("utf-8", "replace")
        if ending in rules:
            cut, added = rules[ending]
            return word[: len(word) - len(cut)] + added
    return word


def lemma(word, *languages):
    """Return the lemma of a word; of several languages, the first that lists it, and no rule."""
    for language in languages:
        if word in (listed := listed_lemmas(language)):
            return listed[word]
    return lemma_by_rules(word, rules_of(listed_lemmas(languages[0]))) if len(languages) == 1 else word
