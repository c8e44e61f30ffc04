"""Fixtures for the tests of words."""

import pytest

from tests.words.small import small_dictionaries_in


@pytest.fixture(scope="module")
def small_dictionaries(tmp_path_factory):
    """Give some languages small dictionaries; returns where they are kept."""
    with small_dictionaries_in(tmp_path_factory.mktemp("cache")) as folder:
        yield folder
