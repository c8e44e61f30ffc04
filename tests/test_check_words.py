"""The check of the wording finds banned phrases, with their lines, and nothing in ordinary text."""

import pytest

from tools.check_words import problems, vague_docstrings


def test_a_phrase_is_found_with_its_line_and_the_better_word():
    assert problems("fine\nthe same as the peer\n") == [(2, "the peer", "PECOS")]
    assert problems("to mend: nothing") == [(1, "mend", "fix")]


@pytest.mark.parametrize("text", ["recommended", "Connection closed by peer", "there is no folder x", "one another's"])
def test_only_whole_phrases_count(text):
    assert bool(problems(text)) == text.startswith("one another")


def test_docstrings_must_say_what_their_object_is_or_does():
    source = '"""What it is."""\n\ndef f():\n    """Return 1."""\n\ndef g():\n    """Whether it is."""\n'
    assert [(line, word) for line, word, _ in vague_docstrings(source)] == [(1, "What"), (7, "Whether")]
