"""Texts that say little: no certain labels, no labels at all without a known word, and calibrated probabilities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serving.cases import assert_export_answers
from xmc_tf.models.xr_linear import XRLinear

STOP_WORDS = ["the", "of", "and", "a", "in", "to", "is", "it", "for", "with"]
TOPICS = 12


def some_documents(count, seed):
    """Return texts of stop words, words of one or two topics, and other words; and the topics."""
    draw = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(count):
        topics = draw.choice(TOPICS, 1 + draw.integers(2), replace=False, p=np.arange(1, TOPICS + 1) / 78)
        words = [f"topic{topic}word{word}" for topic in topics for word in draw.integers(0, 30, 6)]
        words += [*draw.choice(STOP_WORDS, 12), *(f"other{word}" for word in draw.integers(0, 300, 8))]
        texts.append(" ".join(draw.permutation(words)))
        labels.append([f"label {topic}" for topic in topics])
    return texts, labels


@pytest.fixture(scope="module", params=[True, False], ids=["names", "no names"])
def model(request):
    return XRLinear.train(*some_documents(900, 0), threads=1, label_names=request.param)


@pytest.fixture(scope="module")
def most_frequent():
    labels = some_documents(900, 0)[1]
    return np.bincount([int(name.split()[1]) for one in labels for name in one]).max() / len(labels)


def cut(texts, most, seed=1):
    draw = np.random.default_rng(seed)
    for text in texts:
        words = text.split()
        count = draw.integers(1, most + 1)
        first = draw.integers(0, len(words) - count)
        yield " ".join(words[first : first + count])


@settings(max_examples=30, deadline=None)
@given(text=st.lists(st.sampled_from(STOP_WORDS), min_size=1, max_size=8).map(" ".join))
def test_stop_words_have_no_certain_labels(model, most_frequent, text):
    (found,) = model.best([text], k=3)
    assert all(score < most_frequent + 0.1 for _, score in found), found


UNKNOWN = ["", " ", "j", "quokka", "quokka wombat", "?!", "zq1 zq2", "\x00", "日本"]


def test_labels_of_a_text_without_a_known_word_are_as_probable_as_frequent(model, tmp_path):
    labels = some_documents(900, 0)[1]
    share = {f"label {topic}": np.mean([f"label {topic}" in one for one in labels]) for topic in range(TOPICS)}
    for found in model.best(UNKNOWN, k=40):
        assert len(found) == TOPICS
        assert all(score <= share[name] + 1e-3 for name, score in found)
    for threshold in ({"min_precision": 0.2}, {"threshold": 0.05}):
        assert model.best(UNKNOWN, **threshold) == [[]] * len(UNKNOWN)
    assert model.best([f"{text} label 3" for text in UNKNOWN[:2]], k=1) == model.best(["label 3"] * 2, k=1)
    short = [*cut(some_documents(30, 2)[0], 4), "the of", *UNKNOWN]
    options = {} if model.evidence.names is None else {"min_precision": 0.5}  # one export of each model is enough
    assert_export_answers(model, tmp_path / "served" / "1", short, **options)


def test_the_rankers_scores_stay_those_of_pecos(model):
    plain = model.predict(UNKNOWN, scores="ranker", k=3)
    assert (np.diff(plain.indptr) == 3).all()


@pytest.mark.parametrize("most", [1, 4])
def test_probabilities_of_cut_documents_are_right(model, most):
    texts, labels = some_documents(1500, 3)
    found = model.best(list(cut(texts, most)), k=3)
    pairs = [(score, name in true) for row, true in zip(found, labels, strict=True) for name, score in row]
    probability, right = np.array(pairs).T
    for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 1.0)):
        some = (probability >= low) & (probability <= high)
        if some.sum() > 150:
            assert abs(probability[some].mean() - right[some].mean()) < 0.12, (low, some.sum())


def test_a_model_keeps_how_much_of_a_text_is_enough(model, tmp_path):
    model.save(tmp_path / "model")
    texts = [*cut(some_documents(50, 4)[0], 4), *some_documents(20, 5)[0], *UNKNOWN]
    loaded = XRLinear.load(tmp_path / "model").predict(texts)
    assert np.array_equal(loaded.toarray(), model.predict(texts).toarray())
