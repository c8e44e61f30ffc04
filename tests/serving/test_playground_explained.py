"""The page for a model folder: its answers have the words and sources of an explanation."""

import pytest

from tests.linear.command_data import run_train, write_corpus
from tests.refusals import refused
from tests.serving import browser
from xmc_tf.data import TextFile
from xmc_tf.models.explaining.explanation import Contribution, Evidence, LabelExplanation, NodeExplanation
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.playground import answers_of
from xmc_tf.server.connections import bound_socket, in_background
from xmc_tf.server.page.answering import Answering, ExplainedAnswers, _label
from xmc_tf.server.page.routes import page_application

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = write_corpus(tmp_path_factory.mktemp("corpus"))
    flags = ["-y", folder / "Y.npz", "--labels", folder / "labels.txt", "--max-leaf-size", 3, "--nr-splits", 2]
    run_train("-t", folder / "X.txt", "-m", folder / "model", *flags)
    run_train("-x", folder / "X.npz", "-m", folder / "features", *flags)
    return folder


def test_a_model_folder_is_told_from_an_export(corpus, tmp_path):
    assert isinstance(answers_of(str(corpus / "model")), ExplainedAnswers)
    assert isinstance(answers_of(str(tmp_path)), Answering)


def test_answers_are_those_of_the_explanation(corpus):
    text = TextFile(corpus / "X.txt")[2]
    answers = ExplainedAnswers(corpus / "model")
    model = XRLinear.load(corpus / "model")
    about, found = answers.about(), answers.ask(text, 3)["labels"]
    assert about["labels"] == model.ranker.nr_labels
    assert about["levels"][-1] == about["labels"]
    assert [(one["name"], one["score"]) for one in found] == model.best([text], k=3)[0]
    for one, label in zip(found, model.explain(text, 3).labels, strict=True):
        node = label.evidence[0].path[-1]
        best = node.contributions[0]
        assert (one["words"][0]["word"], one["words"][0]["contribution"]) == (best.feature, pytest.approx(best.amount))
        assert len(one["path"]) == len(label.evidence[0].path) - 1
        assert one["sources"] == []
    refused("k is out of range", answers.ask, text, 10_000)


def test_trees_are_one_source_and_words_that_decide_nothing_are_left_out():
    """A label of four trees once had four raw lines, and chips for "the" and "in"."""

    def tree(number, score):
        words = [Contribution(word, weight, 0.5) for word, weight in (("guitar", 2.0), ("the", 0.3), ("oven", -0.6))]
        node = NodeExplanation("music", 1, 0, 4, 1, 1.0, score, tuple(words), 0.0, 0.0)
        return Evidence(f"tree {number}", score, (node,))

    trees = tuple(tree(number, score) for number, score in ((1, 0.5), (2, 0.75), (3, 0.25)))
    name = Evidence("label name", 0.9, note="part of it")
    found = _label(LabelExplanation(0, "music", 0.8, (*trees, name), "probability from rankers and label names"))
    assert [one["word"] for one in found["words"]] == ["guitar", "oven"]
    assert found["sources"] == [
        {"source": "label trees", "score": 0.5, "note": "the mean of 3, which are from 0.2500 to 0.7500"},
        {"source": "label name", "score": 0.9, "note": "part of it"},
    ]
    assert _label(LabelExplanation(0, "music", 0.8, trees[:1]))["sources"] == []


def test_a_model_of_features_is_refused(corpus):
    refused("cannot read texts", ExplainedAnswers(corpus / "features").about)


@pytest.mark.usefixtures("chromium")
def test_the_page_shows_the_words(corpus, tmp_path):
    text = TextFile(corpus / "X.txt")[2]
    application = page_application(ExplainedAnswers(corpus / "model"))
    with in_background(application, bound_socket("127.0.0.1", 0)) as url, browser.page(tmp_path / "profile") as page:
        page.open(f"{url}/")
        page.until("!document.getElementById('ask').disabled")
        page.js(f"document.getElementById('text').value = {text!r}; document.getElementById('ask').click()")
        page.until("document.querySelectorAll('#labels > li').length > 0")
        page.js("document.querySelector('#labels details').open = true")
        shown = page.js("[...document.querySelector('#labels .evidence ul').children].map(one => one.innerText)")
        expected = ExplainedAnswers(corpus / "model").ask(text)["labels"][0]["words"]
        assert len(shown) == len(expected)
        assert shown[0].split("\n")[0] == expected[0]["word"]
        page.screenshot(tmp_path / "page.png", 400, 900)
        assert page.js("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
