"""Lemmas as features: the graph gives what the compiled code gives, and folders keep them."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collective.threads import results_of
from tests.features.test_kernels import any_bytes, any_text, assert_same_features
from tests.features.test_over_ranks import over
from tests.features.test_store import npy, rewrite
from tests.features.texts import HARD, random_corpus
from tests.files import contents
from tests.refusals import refused
from tests.words import reference
from tests.words.keys import key_of
from tests.words.small import LISTED, STEMS, small_dictionaries_in
from xmc_tf.features import Tfidf
from xmc_tf.features.graph.words import Lemmas
from xmc_tf.params import TfidfParams
from xmc_tf.store.arrays import save_sparse
from xmc_tf.words.lexicon import FIELDS, Lexicon

ENDINGS = ["ings", "öissä", "arna", "ies", "ing", ""]
word = (
    st.sampled_from([*LISTED, *LISTED.values(), *STEMS])
    | st.tuples(st.sampled_from([*STEMS, "unknown", "ünknöwn", "語語", "x", "ß"]), st.sampled_from(ENDINGS)).map(
        "".join
    )
    | st.sampled_from(["図書館", "ห้องสมุด", "図書館ings", "batnek図ings", "a1图书b", "MICE", "İstanbulings"])
)
some_text = st.lists((word.map(str.encode) | any_text | any_bytes), max_size=6).map(b" ".join)
TRAINING = [
    f"{form} {stem}ings {stem}öissä {stem} unknownings unknown 図書館の本".encode()
    for form, stem in zip([*LISTED, *LISTED.values()], STEMS, strict=True)
]


@pytest.fixture(scope="module", autouse=True)
def small_dictionaries(tmp_path_factory):
    with small_dictionaries_in(tmp_path_factory.mktemp("cache")) as folder:
        yield folder


@pytest.fixture(scope="module", params=[("en", 2, 5), ("en,sv", 3, 3), ("zh", 2, 1)])
def tfidf(request):
    language, ngram_max, min_word_length = request.param
    pieces = {"en": 5, "en,sv": 16, "zh": 0}[language]
    params = TfidfParams(
        language=language, ngram_max=ngram_max, min_word_length=min_word_length, pieces=pieces, min_df=1
    )
    return Tfidf.fit([*TRAINING, *HARD], params)


@settings(max_examples=20, deadline=None)
@given(st.lists(some_text, max_size=4))
def test_the_graph_gives_what_transform_gives(tfidf, texts):
    assert_same_features(tfidf, texts)


def test_the_graph_gives_it_for_long_and_hard_texts(tfidf):
    long = b" ".join(TRAINING * 300)
    assert_same_features(tfidf, [*HARD, long, *TRAINING, "図書館".encode() * 10_000, b"", b"x" * 9000 + b"ings"])
    assert_same_features(tfidf, [])
    assert tfidf.transform(TRAINING).nnz > len(TRAINING) * 5


@settings(max_examples=15, deadline=None)
@given(st.lists(word.map(str.lower) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=8))
def test_the_lemmas_of_the_graph_are_those_of_plain_python(words):
    words = [one.replace("\x00", "") for one in words]
    for languages in (["en"], ["en", "sv"]):
        found = Lemmas(Lexicon.of(languages))(tf.constant(words, tf.string, [len(words)]))
        assert found.numpy().tolist() == [key_of(reference.lemma(one, *languages).encode()) for one in words]


def test_the_features_are_named_by_lemmas():
    tfidf = Tfidf.fit(TRAINING * 2, TfidfParams(language="en", pieces=0))
    names = set(tfidf.names)
    assert {"mouse", "talo", "haus", "batnek", "unknown", "batnek batnek", "図", "図 書"} <= names
    assert not {"mice", "taloissa", "batnekings", "unknownings", "図書館の本"} & names
    same = tfidf.transform(["mice BATNEKings unknownings", "Mouse batneköissä unknown"])
    assert (same[0] != same[1]).nnz == 0
    assert sorted(tfidf.names[place] for place in same[0].indices) == [
        "batnek", "batnek unknown", "mouse", "mouse batnek", "unknown",
    ]  # fmt: skip


def test_forms_that_were_not_in_the_training_are_known():
    tfidf = Tfidf.fit(["batnek dolriko"] * 2, TfidfParams(language="en"))
    assert tfidf.transform(["batnekings"])[0, tfidf.names.index("batnek")] > 0


def test_words_as_written_remain_so():
    names = Tfidf.fit(TRAINING * 2, TfidfParams(language="none", pieces=0)).names
    assert {"mice", "batnekings", "図書館の本"} <= set(names)
    assert "図" not in names


def test_what_is_loaded_is_what_was_saved(tfidf, tmp_path):
    tfidf.save(tmp_path / "tfidf")
    loaded = Tfidf.load(tmp_path / "tfidf")
    texts = [*TRAINING, *HARD, b"unseenings mice"]
    assert (loaded.params, loaded.names) == (tfidf.params, tfidf.names)
    assert (loaded.nr_documents, loaded.nr_features) == (tfidf.nr_documents, tfidf.nr_features)
    assert (loaded.transform(texts) != tfidf.transform(texts)).nnz == 0
    assert_same_features(loaded, texts)
    loaded.save(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(tmp_path / "tfidf")
    assert json.loads((tmp_path / "tfidf" / "params.json").read_text())["version"] == 2


def test_a_model_needs_no_dictionary(tmp_path, monkeypatch):
    tfidf = Tfidf.fit(TRAINING, TfidfParams(language="en"))
    tfidf.save(tmp_path / "tfidf")
    for name in ("load_dictionary", "dictionary_languages"):
        monkeypatch.setattr(f"xmc_tf.words.lexicon.{name}", lambda *_: pytest.fail("a dictionary is read"))
    assert (Tfidf.load(tmp_path / "tfidf").transform(TRAINING) != tfidf.transform(TRAINING)).nnz == 0


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "tfidf"
    Tfidf.fit(TRAINING * 2, TfidfParams(language="en")).save(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "tfidf")


@pytest.mark.parametrize("name", FIELDS)
def test_a_lexicon_that_is_incomplete(folder, name):
    content = (folder / f"{name}.npy").read_bytes()
    (folder / f"{name}.npy").write_bytes(content[:-1])
    refused(rf"{name}\.npy is damaged: its size", Tfidf.load, folder)
    (folder / f"{name}.npy").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    refused(rf"{name}\.npy is damaged: its content", Tfidf.load, folder)
    (folder / f"{name}.npy").unlink()
    refused(rf"{name}\.npy is missing", Tfidf.load, folder)


def damaged(name, array):
    """Return an array with a fault that no checksum shows, and the file that is named."""
    changed = array.copy()
    if name == "endings":
        return changed[::-1].copy()
    if name == "forms":
        changed[1] = changed[0]  # a word twice
    elif name in ("lemma_of", "cuts"):
        changed[0] = -1
    elif name == "added_ends":
        changed[-1] += 1
    elif name == "added":
        return np.concatenate([changed, changed, np.zeros(1, changed.dtype)])
    else:
        return changed[:1].copy()
    return changed


@pytest.mark.parametrize("name", FIELDS)
def test_a_lexicon_at_odds(folder, name):
    array = np.load(folder / f"{name}.npy")
    assert len(array), "the rule and the forms are there"
    rewrite(folder, f"{name}.npy", npy(damaged(name, array)))
    refused(r"(forms|lemma_of|endings|cuts|added_ends)\.npy has unexpected content", Tfidf.load, folder)
    rewrite(folder, f"{name}.npy", npy(array.astype(np.float64)))
    caught = refused(rf"{name}\.npy has unexpected content", Tfidf.load, folder)
    assert str(np.dtype(FIELDS[name])) in str(caught)


def test_a_cut_that_is_longer_than_its_word(folder):
    rewrite(folder, "cuts.npy", npy(np.full_like(np.load(folder / "cuts.npy"), 1000)))
    refused(r"cuts\.npy has unexpected content", Tfidf.load, folder)


def test_a_lexicon_without_a_stamp(folder):
    header = json.loads((folder / "params.json").read_text())
    del header["files"]["cuts.npy"]
    (folder / "params.json").write_text(json.dumps(header))
    refused(r"params\.json has unexpected content\n.*cuts\.npy", Tfidf.load, folder)


def test_saving_plain_features_leaves_no_older_lexicon(folder):
    Tfidf.fit(TRAINING * 2, TfidfParams.plain()).save(folder)
    assert not (folder / "forms.npy").exists()
    assert "mice" in Tfidf.load(folder).names


@pytest.mark.parametrize("language", ["en,sv", "auto", "zh"])
def test_over_ranks_it_is_the_same(language, tmp_path, monkeypatch):
    if language == "auto":
        monkeypatch.setattr("xmc_tf.words.languages.languages_of", lambda _: ("en", "sv"))
    texts = [*TRAINING * 2, *HARD, *(text.encode() for text in random_corpus(200, seed=2))]
    params, alone = TfidfParams(language=language, max_features=150), tmp_path / "alone"
    tfidf = Tfidf.fit(texts, params, threads=1)
    alone.mkdir()
    tfidf.save(alone / "tfidf")
    save_sparse(alone / "X", tfidf.transform(texts, threads=1))
    assert tfidf.params.language == ("en,sv" if language == "auto" else language)
    results_of(over(3, texts, params, tmp_path / "ranks"))
    assert contents(tmp_path / "ranks") == contents(alone)
