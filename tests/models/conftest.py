"""A corpus that several files use."""

import pytest

from tests.linear.command_data import write_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Return a folder of texts, features, labels and names."""
    return write_corpus(tmp_path_factory.mktemp("corpus"))
