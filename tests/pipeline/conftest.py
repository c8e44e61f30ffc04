"""What the pipeline's tests share: a corpus, and a model of each kind."""

import json

import pytest

from tests.pipeline.corpus import published_for, run_train


@pytest.fixture(scope="session")
def corpus(encoder_corpus):
    """A folder with texts, labels, features, a tree, and a tiny encoder."""
    return encoder_corpus


@pytest.fixture(scope="session")
def frozen(corpus):
    """A model whose encoder is used as it comes."""
    flags = ["--no-fine-tune", "--labels", corpus / "labels.txt", "--label-names", "false"]
    return run_train(corpus, corpus / "frozen", *flags)


@pytest.fixture(scope="session")
def tuned(corpus):
    """A model by a parameter file in the published form: three levels, the encoder fine-tuned, with heads."""
    path = corpus / "params.json"
    path.write_text(json.dumps(published_for(corpus)))
    return run_train(corpus, corpus / "tuned", "--params-path", path)
