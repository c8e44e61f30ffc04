"""What the pipeline's tests share."""

import pytest

from tests.pipeline.corpus import write_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A folder with texts, labels, features, a tree, and a tiny encoder."""
    return write_corpus(tmp_path_factory.mktemp("corpus"))
