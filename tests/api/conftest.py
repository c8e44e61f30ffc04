"""A classifier of texts that several files use."""

import pytest

from tests.api.sklearn_data import LISTS, TEXTS, small


@pytest.fixture(scope="session")
def of_texts():
    """Fitted to texts and lists of names."""
    return small().fit(TEXTS, LISTS)
