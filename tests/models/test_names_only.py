"""Models of label names alone: labels are found by their names before any document is labelled."""

import dataclasses
import json

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.serving.cases import assert_export_answers
from xmc_tf.common.errors import InputError
from xmc_tf.demo.encoder import make_tiny
from xmc_tf.fusion import HeldOutScores, ProbabilityModel
from xmc_tf.fusion.weighted_numbers import NAMES as NUMBERS
from xmc_tf.fusion.weighted_numbers import first_weights
from xmc_tf.label_names.cold_start import cold_start
from xmc_tf.label_names.kernels import NR_GRADES
from xmc_tf.label_names.match_precision import NR_KINDS
from xmc_tf.models.linear.names_only import train_on_names
from xmc_tf.models.linear.training import LinearOptions
from xmc_tf.models.loading import load
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.params import MatcherParams, XTransformerParams
from xmc_tf.train import main

NAMES = ["cooking\tcookery", "gardens\thorticulture", "bicycle repair", "baking bread", "history of art", "art"]
TEXTS = ["the history of the city", "the history of a family", "a history of the sea", "art in the city", "the sea"]
QUERIES = ["How to repair a bicycle", "A book on horticulture and cookery", "Baking rye bread at home", "art"]


@pytest.fixture(scope="module")
def model():
    return XRLinear.train(TEXTS, names=NAMES)


def best(model, texts):
    return [found[0][0] for found in model.best(texts, k=1)]


def test_labels_are_found_by_their_names(model):
    assert best(model, QUERIES) == ["bicycle repair", "gardens", "baking bread", "art"]
    assert {name for name, _ in model.best(["A book on horticulture and cookery"], k=2)[0]} == {"cooking", "gardens"}


def test_names_are_enough_and_labels_that_are_forgotten_are_missed_aloud(caplog):
    assert best(XRLinear.train([], names=NAMES), QUERIES) == ["bicycle repair", "gardens", "baking bread", "art"]
    assert "no document has labels" in caplog.text


def test_unlabelled_texts_show_which_words_are_rare(model):
    """Each half of a name is in the text. The rarer one says more."""
    names = ["sea battles", "city planning"]
    labelled = ["in the harbour", "the harbour"], [names[:1], names[1:]]
    for frequent, expected in (("city", "sea battles"), ("sea", "city planning")):
        texts = [f"the {frequent} of number {n}" for n in range(40)]
        for model in (XRLinear.train(texts, names=names), XRLinear.train(*labelled, names=names, unlabelled=texts)):
            assert best(model, ["by sea from the city"]) == [expected]


@pytest.mark.parametrize(("frequent", "expected"), [("city", "sea battles"), ("sea", "city planning")])
def test_a_table_takes_unlabelled_texts(tmp_path, frequent, expected):
    rows = "in the harbour,sea battles\nthe harbour,city planning\n"
    (tmp_path / "few.csv").write_text("text,labels\n" + rows * 4, encoding="utf-8")
    (tmp_path / "texts.txt").write_text("".join(f"the {frequent} of number {n}\n" for n in range(40)), "utf-8")
    main([*map(str, (tmp_path / "few.csv", "--texts", tmp_path / "texts.txt", "-m", tmp_path / "m"))])
    assert best(XRLinear.load(tmp_path / "m"), ["by sea from the city"]) == [expected]


@pytest.mark.parametrize(("frequent", "expected"), [("city", "sea battles"), ("sea", "city planning")])
def test_an_encoder_takes_unlabelled_texts(tmp_path, frequent, expected):
    rows, words = "in the harbour,sea battles\nthe harbour,city planning\n", "sea battles city planning harbour number"
    texts = [f"the {frequent} of number {n}" for n in range(40)]
    tiny = make_tiny(tmp_path / "tiny", [words, *texts], length=128)
    (tmp_path / "few.csv").write_text("text,labels\n" + rows * 4, encoding="utf-8")
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    flags = ("--texts", tmp_path / "texts.txt", "--model-shortcut", tiny, "--no-fine-tune", "-m", tmp_path / "m")
    main([*map(str, (tmp_path / "few.csv", *flags))])
    model = load(tmp_path / "m")
    assert best(model, ["by sea from the city"]) == [expected]
    assert {"number", frequent} <= {*model.tfidf.names}
    params = XTransformerParams(do_fine_tune=False, matcher_params_chain=MatcherParams(model_shortcut=str(tiny)))
    labelled = ["in the harbour", "the harbour"], [["sea battles"], ["city planning"]]
    names = ["sea battles", "city planning"]
    again = XTransformer.train(*labelled, names=names, params=params, unlabelled=texts)
    assert best(again, ["by sea from the city"]) == [expected]
    with pytest.raises(InputError, match="texts without labels need label names"):
        XTransformer.train(*labelled, params=dataclasses.replace(params, label_names=False), unlabelled=texts)


def test_few_labelled_documents_leave_names_as_much_worth():
    few = XRLinear.train(["pedals and chains", "paintings"], [["bicycle repair"], ["art"]], names=NAMES)
    assert best(few, [QUERIES[0], *QUERIES[2:]]) == ["bicycle repair", "baking bread", "art"]
    assert {name for name, _ in few.best(QUERIES[1:2], k=2)[0]} == {"cooking", "gardens"}
    words = np.random.default_rng(0).permutation([f"word{number}" for number in range(200)]).reshape(-1, 2)
    names = [f"{first} {second}" for first, second in words]
    six = XRLinear.train([f"a book about {name} and more" for name in names[:6]], names[:6], names=names)
    assert best(six, [f"some noise about {name}" for name in names]) == names


@pytest.mark.parametrize("text", ["", "of the and", "qwzx", "?!"])
def test_a_text_that_says_nothing_gets_no_label_above_chance(model, text):
    assert all(score < 0.01 for _, score in model.best([text], k=6)[0])


def test_scores_are_no_probabilities_and_promise_nothing(model):
    assert "no document is labelled" in model.metadata.content["no_probabilities"]
    with pytest.raises(InputError, match="cannot promise a precision"):
        model.predict(QUERIES, min_precision=0.5)


def test_saved_and_exported_models_answer_the_same(model, tmp_path):
    expected = model.predict(QUERIES, only_topk=3)
    model.save(tmp_path / "model")
    loaded = XRLinear.load(tmp_path / "model")
    assert (loaded.predict(QUERIES, only_topk=3) != expected).nnz == 0
    assert_export_answers(loaded, tmp_path / "export", QUERIES, only_topk=3)


def test_labelled_documents_are_appended(model):
    grown = model.with_documents(["pedals and chains"], [["bicycle repair"]])
    assert model.metadata.content["nr_documents"] == 0
    assert best(grown, ["a chain and pedals"]) == ["bicycle repair"]
    assert grown.metadata.content["nr_documents"] == 1


def test_what_names_are_worth_fits_the_numbers_of_today():
    cold = cold_start()
    assert cold.priors.shape == (NR_KINDS, NR_GRADES)
    assert ((cold.priors > 0) & (cold.priors < 1)).all()
    assert {*json.loads(cold.text())["weights"]} | {*json.loads(cold.text())["encoded"]} <= {*NUMBERS}
    assert len(cold.weights) > 10
    assert {*cold.encoded} - {*cold.weights} == {"similarity", "similarity above 1", "similarity above 2"}


def test_an_encoder_also_compares_texts_and_names(tmp_path, capsys):
    tiny = make_tiny(tmp_path / "tiny", [*TEXTS, *NAMES, *QUERIES], length=128)
    for name, lines in (("names", NAMES), ("texts", TEXTS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = ("--labels", tmp_path / "names", "--texts", tmp_path / "texts", "-m", tmp_path / "m")
    main([*map(str, (*files, "--model-shortcut", tiny))])
    assert "finds 6 labels by their names" in capsys.readouterr().out
    model = load(tmp_path / "m")
    assert best(model, QUERIES) == ["bicycle repair", "gardens", "baking bread", "art"]
    expected = model.predict(QUERIES, only_topk=3)
    params = XTransformerParams(matcher_params_chain=MatcherParams(model_shortcut=str(tiny)))
    again = XTransformer.train(TEXTS, names=NAMES, params=params)
    assert (again.predict(QUERIES, only_topk=3) != expected).nnz == 0
    assert_export_answers(model, tmp_path / "export", QUERIES, only_topk=3)
    # A text that mentions no name still has similar labels.
    similarity, vectors = model.evidence.fusion.similarity, model.encode(["pedals"])
    assert model.predict(["pedals"], only_topk=6).indices.size >= similarity.candidates(vectors, 6).nnz > 0
    assert np.allclose(model.evidence.fusion.new_weights, first_weights(encoded=True))
    (label, *_) = model.explain("art").labels
    assert (label.name, label.combined) == ("art", "score from rankers, label names and the encoder")
    assert "no document is labelled" in model.metadata.content["no_probabilities"]
    with pytest.raises(InputError, match="cannot promise a precision"):
        model.predict(QUERIES, min_precision=0.5)
    for refused, said in (({"X": np.eye(5)}, "need labelled documents"), ({"tfidf": None}, "need TF-IDF")):
        with pytest.raises(InputError, match=said):
            XTransformer.train(TEXTS, names=NAMES, params=params, **refused)


def letters_of(texts):
    """Embed texts by their letters: what an encoder that knows the language does in a better way."""
    found = np.array([[sum(ord(letter) == code for letter in text) for code in range(97, 123)] for text in texts])
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def chance(texts):
    found = np.random.default_rng(0).normal(size=(len(texts), 26))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def test_an_encoder_that_does_not_know_the_language_is_refused():
    texts = [f"{name.split(chr(9))[0]} {number}" for number in range(10) for name in NAMES]
    assert train_on_names(NAMES, texts, LinearOptions(), embed=letters_of).evidence.fusion.similarity is not None
    with pytest.raises(InputError, match="does not know the language"):
        train_on_names(NAMES, texts, LinearOptions(), embed=chance)
    train_on_names(NAMES, texts[:20], LinearOptions(), embed=chance)  # too few mentions to tell


def test_training_on_documents_warns_of_another_language(caplog):
    texts = [f"{name.split(chr(9))[0]} {number}" for number in range(100) for name in NAMES]
    Y, rows = csr_matrix(np.tile(np.eye(len(NAMES), dtype=np.float32), (100, 1))), np.arange(0, 600, 7)

    def scored(trained_on, held_out, hidden, short):
        return HeldOutScores(csr_matrix((len(held_out), len(NAMES)), dtype=np.float32))

    for embed, warned in ((letters_of, False), (chance, True)):
        caplog.clear()
        ProbabilityModel.learn(
            NAMES, texts, Y, scored, folds=[rows], embed=embed,
            held_out_vectors=lambda embed=embed: embed([texts[row] for row in rows]),
        )  # fmt: skip
        assert ("does not seem to know the language" in caplog.text) == warned


VOCABULARY = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
<urn:c1> skos:prefLabel "cooking"@en ; skos:altLabel "cookery"@en .
<urn:c2> skos:prefLabel "bicycles"@en ; skos:broader <urn:c3> .
<urn:c3> skos:prefLabel "vehicles"@en .
"""


def test_the_command_trains_on_a_vocabulary(tmp_path, capsys):
    (tmp_path / "terms.ttl").write_text(VOCABULARY, encoding="utf-8")
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    main([*map(str, ("--vocabulary", tmp_path / "terms.ttl", "--texts", tmp_path / "texts.txt", "-m", tmp_path / "m"))])
    assert "finds 3 labels by their names; 5 texts show which words are rare" in capsys.readouterr().out
    model = XRLinear.load(tmp_path / "m")
    assert best(model, ["an old book of cookery", "repairing bicycles"]) == ["cooking", "bicycles"]
    assert model.hierarchy is not None


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--labels {names} --vocabulary {names} -m {m}", "--labels and --vocabulary are mutually exclusive"),
        ("--labels {names}", "-m is missing"),
        ("--labels {names} -m {m} --model-shortcut tiny", "an encoder needs texts without labels"),
        ("--labels {names} -m {m} --model-shortcut tiny --max-steps 2", "--max-steps cannot be used without labelled"),
        ("--labels {names} -m {m} --minutes 3", "--minutes can only be used with a table"),
        ("--labels {names} -m {m} -yt {names}", "-yt"),
        ("--labels {missing} -m {m}", "does not exist"),
        ("--labels {names} -m {m} --texts {missing}", "does not exist"),
        ("--labels {numbers} -m {m}", "no name of a label has letters"),
        ("{table} -m {m} --texts {missing}", "does not exist"),
        ("{table} -m {m} --texts {names} --label-names false", "--texts needs names of labels"),
        ("--labels {names} --texts {names} -t {names} -y {names} -m {m}", "--texts cannot be used with labelled"),
    ],
)
def test_refusals(tmp_path, flags, said):
    paths = {name: tmp_path / name for name in ("names", "numbers", "missing", "m", "table")}
    paths["names"].write_text("cooking\ngardens\n", encoding="utf-8")
    paths["table"].write_text("text,labels\n" + "soup,cooking\nherbs,gardens\n" * 4, encoding="utf-8")
    paths["numbers"].write_text("1\n2\n", encoding="utf-8")
    with pytest.raises(InputError) as refused:
        main(flags.format(**paths).split())
    assert said in str(refused.value)
    assert not paths["m"].exists()


def test_unlabelled_texts_need_names():
    with pytest.raises(InputError, match="texts without labels need label names"):
        XRLinear.train(TEXTS, [["art"]] * 5, label_names=False, unlabelled=TEXTS)


def test_features_have_no_words():
    with pytest.raises(InputError, match="features"):
        XRLinear.train(np.eye(3), names=NAMES)
