"""Label names and fusion in the graph: the same as the compiled code, for any text."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from tests.label_names.cases import NAMES, TEXTS, labels_of, many
from tests.refusals import refused
from tests.serving.cases import assert_export_answers
from tests.words.small import small_dictionaries_in
from xmc_tf.fusion import Fusion, hidden_labels
from xmc_tf.label_names import LabelNames
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.serving.fused_search import EvidenceParts, FusedSearch
from xmc_tf.serving.name_matches import GraphMentions, NameMatches
from xmc_tf.serving.search import Beam


@pytest.fixture(scope="module", params=["none", "sv,en"])  # the second with lemmas, and with pieces of long words
def learned(request, tmp_path_factory):
    with small_dictionaries_in(tmp_path_factory.mktemp("dictionaries")):
        return LabelNames.learn(NAMES, TEXTS, labels_of(TEXTS, NAMES), language=request.param)[0]


@pytest.fixture(scope="module")
def graph(learned):
    return tf.function(NameMatches(learned).__call__, input_signature=[tf.TensorSpec([None], tf.string)])


parts = st.lists(st.sampled_from([*TEXTS, *NAMES, "\u0301", "-", " "]), max_size=4)
some_bytes = st.one_of(
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace")),
    st.binary(max_size=40),
    parts.map(lambda some: "".join(some).encode()),
)


@settings(max_examples=60)
@given(st.lists(some_bytes, max_size=4))
@example([b"a" * 1000 + b"\x00cats"])
@example([b"cats\xe2\x82", b"\xe2\x82cats", b"\xf0\x9f\x98cats\xff", b"\xed\xa0\x80cats"])
@example([])
def test_any_text_mentions_the_same_labels(learned, graph, texts):
    expected = learned.mentions(texts, threads=1)
    found = graph(tf.constant(texts, tf.string))
    assert np.array_equal(found.keys, expected.rows * len(NAMES) + expected.labels)
    for name in GraphMentions._fields[1:]:
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name


def test_probabilities_and_their_order_are_the_same():
    names, texts, Y = many()
    folds = np.array_split(np.arange(len(texts)), 4)
    hidden = [hidden_labels(np.ones(len(names), bool), fold) for fold in range(len(folds))]
    learned, mentions = LabelNames.learn(names, texts, Y, folds=folds, hidden=hidden)
    rng = np.random.default_rng(0)
    scores = Y.copy()
    scores.data = rng.random(len(scores.data)).astype(np.float32)
    fusion = Fusion.learn(scores, mentions, Y, Y, hidden, fold_sizes=[len(fold) for fold in folds])
    fusion.log_documents[::7] = 0  # labels without documents
    search = FusedSearch(EvidenceParts(fusion, 3, "l3-hinge", learned))
    nodes = np.full((len(texts), 3), -1, np.int32)
    values = np.zeros((len(texts), 3), np.float32)
    for row in range(len(texts)):
        own = slice(scores.indptr[row], scores.indptr[row + 1])
        nodes[row, : len(scores.indices[own])] = scores.indices[own]
        values[row, : len(scores.indices[own])] = scores.data[own]
    for given_texts, used in ((texts, learned.mentions(texts)), (None, None)):
        text = None if given_texts is None else tf.constant(given_texts)
        beam = search(text, Beam(tf.constant(nodes), tf.constant(values)), 5)
        expected = fusion.combine(scores, used, 5)
        for row in range(len(texts)):
            own = slice(expected.indptr[row], expected.indptr[row + 1])
            count = own.stop - own.start
            assert np.array_equal(beam.nodes[row, :count], expected.indices[own])
            assert np.allclose(beam.scores[row, :count], expected.data[own], atol=1e-6)
            assert (beam.nodes[row, count:] == -1).numpy().all()


def test_the_export_answers_as_the_model_in_every_way_of_asking(tmp_path):
    names, texts, Y = many()
    model = XRLinear.train(texts, Y, names=names, threads=1)
    assert model.evidence is not None
    asked = [*texts[:40], names[0], "", "nothing"]
    for number, options in enumerate(({}, {"min_precision": 0.5}, {"scores": "ranker"}), start=1):
        assert_export_answers(model, tmp_path / "served" / str(number), asked, **options)
    refused("needs probabilities", model.export, tmp_path / "served" / "9", min_precision=0.5, post_processor="sigmoid")


def test_names_in_capitals_are_no_forms_of_other_words(tmp_path):
    """By the dictionary, "ai" is a form of "be", "pr" of "prairie", and "aids" of "aid"."""
    names, draw = ["AI", "PR", "AIDS", "gardening"], np.random.default_rng(0)
    common = ["the", "quick", "brown", "fox", "over", "while", "people", "of", "this", "talk", "about", "what"]
    texts = []
    for row in range(200):
        words = [*draw.choice(common, 12), *["is"] * (row % 3 > 0), *[names[row % 4]] * (row % 10 > 1)]
        texts.append(" ".join(draw.permutation(words)))
    Y = csr_matrix((np.ones(200, np.float32), (np.arange(200), np.arange(200) % 4)))
    model = XRLinear.train(texts, Y, names=names, probabilities=True)
    assert model.audit(texts, Y).of_kind("silent name") == []
    asked = ["It is what it is.", "a hearing aid", "a large prairie", "A talk on AI", "the ai of today", "PR", "AIDS"]
    found = assert_export_answers(model, tmp_path / "1", asked, only_topk=4).toarray()
    assert found[:3].max() < 0.4
    assert found[3:].argmax(axis=1).tolist() == [0, 0, 1, 2]
    assert found[3:].max(axis=1).min() > 0.8
