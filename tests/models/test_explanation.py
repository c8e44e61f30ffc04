"""Explanations of both models: what they say adds up to what ``predict`` says."""

import json

import numpy as np
import pytest

from tests.linear.command_data import run_train
from tests.refusals import refused
from xmc_tf.data import TextFile, load_matrix
from xmc_tf.explain import main
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.rankers.ensemble import TreeEnsemble


@pytest.fixture(scope="module")
def folder(corpus):
    flags = ["--labels", corpus / "labels.txt", "--max-leaf-size", 3, "--nr-splits", 2]
    run_train("-t", corpus / "X.txt", "-y", corpus / "Y.npz", "-m", corpus / "model", *flags)
    return corpus / "model"


def test_labels_scores_and_words_are_those_of_the_prediction(corpus, folder):
    model, text = XRLinear.load(folder), TextFile(corpus / "X.txt")[3]
    found = model.explain(text, k=4)
    predicted = model.best([text], k=4)[0]
    assert [(one.name, one.score) for one in found.labels] == predicted
    raw = model.predict([text], only_topk=30, beam_size=100, post_processor="noop")[0]
    words = text.lower().split()
    for label in found.labels:
        (tree,) = label.evidence
        assert tree.source == "tree"
        assert tree.score == pytest.approx(label.score, rel=1e-4)
        for node in tree.path:
            assert sum(one.amount for one in node.contributions) + node.bias + node.embedding == pytest.approx(node.raw)
            assert all(one.feature.split()[0] in words for one in node.contributions)
        if raw[0, label.label]:
            assert tree.path[-1].raw == pytest.approx(raw[0, label.label], abs=1e-5)
        assert next(iter(label.words.values())) == max(label.words.values(), key=abs)


def test_each_tree_of_several_is_a_source(folder):
    model = XRLinear.load(folder)
    model.ranker = TreeEnsemble([model.ranker, model.ranker])
    (label,) = model.explain("some words of the text", k=1).labels
    assert [one.source for one in label.evidence] == ["tree 1", "tree 2"]
    assert np.mean([one.score for one in label.evidence]) == pytest.approx(label.score, rel=1e-4)
    assert [one.amount for one in label.shares] == pytest.approx([one.score / 2 for one in label.evidence])


def test_the_name_of_a_label_in_the_text_is_a_source():
    draw, topics = np.random.default_rng(0), ["bread", "garden herbs", "forest", "harbour"]
    labels = [[topics[number]] for number in draw.integers(0, 4, 120)]
    texts = [f"{names[0]} words {draw.integers(9)} about it" for names in labels] + ["a garden", "the herbs"] * 20
    model = XRLinear.train(texts, labels + [["garden herbs"]] * 40, label_names=True)
    label = model.explain("all about garden herbs", k=1).labels[0]
    assert (label.name, label.score) == model.best(["all about garden herbs"], k=1)[0][0]
    sources = {one.source: one.score for one in label.evidence}
    assert list(sources) == ["tree", "label name"]
    assert sources["label name"] == model.evidence.mentions(["all about garden herbs"], 1).precision[0] > 0
    assert label.combined == "probability from rankers and label names"
    assert [one.source for one in label.shares] == ["tree", "label name"]
    part = model.explain("all about a garden", k=1).labels[0]  # only a part of the name is there
    assert part.name == "garden herbs"
    assert part.evidence[-1].note.startswith("part of a name of the label occurs in the text")
    nameless = model.predict(model.features(["all about garden herbs"]), only_topk=9)[0, label.label]
    assert label.shares[0].amount == pytest.approx(nameless)
    assert sum(one.amount for one in label.shares) == pytest.approx(label.score)
    assert label.shares[1].amount > 0
    assert label.sum in str(model.explain("all about garden herbs", k=1))
    (other,) = model.explain("nothing known", k=1).labels
    assert [one.source for one in other.evidence] == ["tree"]


def test_a_model_of_features_names_them_by_number(corpus):
    X, Y = load_matrix(corpus / "X.npz"), load_matrix(corpus / "Y.npz")
    model = XRLinear.train(X, Y)
    (label,) = model.explain(X[2], k=1).labels
    assert label.name == str(label.label)
    assert label.evidence[0].path[-1].contributions[0].feature.startswith("feature ")
    refused("one document is explained at a time", model.explain, X[:2])


def test_the_command_prints_words_and_json(corpus, folder, capsys):
    text = TextFile(corpus / "X.txt")[3]
    main([text, "-m", str(folder), "-k", "2", "--words", "1"])
    printed = capsys.readouterr().out
    model = XRLinear.load(folder)
    first, second = model.explain(text, k=2).labels
    assert printed.startswith(f"{first.score:.4f}  {first.name}\n")
    assert f"\n\n{second.score:.4f}  {second.name}\n" in printed
    best = first.evidence[0].path[-1].contributions[0]
    assert f"{best.amount:+8.3f}  {best.feature}  ({best.weight:.3f} × {best.value:.3f})" in printed
    main([text, "-m", str(folder), "-k", "1", "--json"])
    content = json.loads(capsys.readouterr().out)
    node = content["labels"][0]["evidence"][0]["path"][-1]
    total = sum(one["contribution"] for one in node["contributions"]) + node["bias"] + node["embedding"]
    assert total == pytest.approx(node["raw"])


@pytest.mark.parametrize(
    ("arguments", "message"), [(["-k", "0"], "-k is out of range"), (["--words", "0"], "--words is out of range")]
)
def test_numbers_out_of_range_are_named(folder, arguments, message):
    refused(message, main, ["text", "-m", str(folder), *arguments])
