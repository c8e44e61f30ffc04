"""Fixtures of the command lines' tests."""

import pytest

from tests.linear.command_data import run_train, write_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A folder of texts, features, labels and names."""
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def model(corpus, tmp_path_factory):
    """A model of features, with names."""
    folder = tmp_path_factory.mktemp("models") / "features"
    flags = ["-x", corpus / "X.npz", "-y", corpus / "Y.npz", "-m", folder, "--labels", corpus / "labels.txt"]
    run_train(*flags, "--max-leaf-size", 3, "--nr-splits", 2)
    return folder


@pytest.fixture(scope="session")
def text_model(corpus, tmp_path_factory):
    """A model of texts, with names."""
    folder = tmp_path_factory.mktemp("models") / "texts"
    run_train("-t", corpus / "X.txt", "-y", corpus / "Y.npz", "-m", folder, "--labels", corpus / "labels.txt")
    return folder
