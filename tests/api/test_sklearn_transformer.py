"""``XMCClassifier`` with a transformer."""

import gc
import pickle

import pytest
from sklearn.base import clone

from tests.api.sklearn_data import HELD_OUT, LISTS, TEST_TEXTS, TEXTS, X_TEST, small
from tests.pipeline.corpus import write_encoder
from tests.refusals import refused
from xmc_tf.params import LinearLevelParams, MatcherParams


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    """Fine-tuned on the texts from a tiny encoder."""
    encoder = tmp_path_factory.mktemp("sklearn") / "encoder"
    write_encoder(encoder)
    matcher = MatcherParams(max_steps=4, batch_size=16, learning_rate=0.01)
    return small(
        model="transformer", encoder=str(encoder), matcher=matcher, max_tokens=16, ranker=LinearLevelParams(threshold=0)
    ).fit(TEXTS, LISTS)


def test_a_transformer_is_fitted_and_answers(transformer):
    assert transformer.score(TEST_TEXTS, HELD_OUT) > 0.8
    assert transformer.predict_proba(TEST_TEXTS).shape == (40, 6)
    assert transformer.model_.metadata.pred_params["matcher_params_chain"]["truncate_length"] == 16
    assert "head" in transformer.model_.parts
    refused("X contains features", transformer.predict, X_TEST)


def test_a_transformer_without_fine_tuning(transformer):
    found = clone(transformer).set_params(fine_tune=False).fit(TEXTS, LISTS)
    assert "head" not in found.model_.parts
    assert found.score(TEST_TEXTS, HELD_OUT) > 0.8


def test_a_pickled_transformer_needs_no_folder(transformer):
    copy = pickle.loads(pickle.dumps(transformer))
    content, folder = pickle.dumps(copy), copy.model_.folder
    assert folder.is_dir()
    del copy
    gc.collect()
    assert not folder.exists()
    again = pickle.loads(content)
    assert again.top_k(TEST_TEXTS) == transformer.top_k(TEST_TEXTS)
    assert again.get_params() == transformer.get_params()
