"""Several trees and label names in a training on a table: one model for prediction, explanation, report and export."""

import csv
import json

import numpy as np
import pytest

from tests.jobs.conftest import write_table
from tests.refusals import refused
from xmc_tf import XRLinear
from xmc_tf.explain import main as explain
from xmc_tf.linear.predict import main as predict
from xmc_tf.report.command import main as report
from xmc_tf.tables.runs import runs_of
from xmc_tf.tables.store import TableStore
from xmc_tf.train import main as train

ADJECTIVES = [
    "red", "green", "blue", "small", "large", "old", "quick", "silent", "bright", "heavy", "warm", "frozen", "hollow",
]  # fmt: skip
NOUNS = ["lake", "forest", "engine", "violin", "garden", "castle", "river", "desert", "kitchen"]
NAMES = [f"{adjective} {noun}" for noun in NOUNS for adjective in ADJECTIVES]  # more than a leaf holds
WORDS = [f"word{number}" for number in range(60)]


def rows(count, seed=0):
    """Return texts that contain the names of some of their labels, and words that labels have in common."""
    random, found = np.random.default_rng(seed), []
    for _ in range(count):
        first, second = random.choice(len(NAMES), 2, replace=False)
        words = [*random.choice(WORDS, 4), NAMES[first], *NAMES[second].split()[1:], f"word{second % 60}"]
        found.append((" ".join(random.permutation(words)), [NAMES[first], NAMES[second]]))
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A table, and a model that the command has trained on it with the effort ``balanced``."""
    folder = tmp_path_factory.mktemp("answers")
    table = write_table(folder / "table.csv", rows(400))
    train([str(table), "-m", str(folder / "model"), "--effort", "balanced", "--min-df", "1", "--verbose-level", "0"])
    return folder


def test_the_effort_makes_several_trees_and_names_are_evidence(trained):
    model = XRLinear.load(trained / "model")
    assert len(model.more_trees) >= 1
    assert model.evidence is not None
    (run,) = runs_of(TableStore.open(trained / "table.sqlite"))
    sentences = " ".join(run.chosen)
    assert "(--effort balanced)" in sentences
    assert "label names in the text are evidence" in sentences
    assert "label names" in run.durations
    texts = [text for text, _ in rows(40, seed=1)]
    found = model.predict(texts)
    assert ((found.data > 0) & (found.data < 1)).all()
    assert (found != model.predict(texts, scores="ranker")).nnz
    assert (found != model.predict(texts, X=model.features(texts))).nnz == 0


def test_one_model_answers_alike_everywhere(trained, tmp_path, capsys):
    folder, texts = trained / "model", [text for text, _ in rows(30, seed=2)]
    expected = XRLinear.load(folder).best(texts, k=3)
    table = write_table(tmp_path / "new.csv", rows(30, seed=2))
    predict([str(table), "--column", "text", "-m", str(folder), "-o", str(tmp_path / "labels.csv"), "-k", "3"])
    with (tmp_path / "labels.csv").open(newline="", encoding="utf-8") as file:
        found = [[row[f"label {at}"] for at in (1, 2, 3)] for row in csv.DictReader(file)]
    assert found == [[name for name, _ in best] for best in expected]

    capsys.readouterr()
    explain([texts[0], "-m", str(folder), "-k", "1", "--json"])
    shown = capsys.readouterr().out
    name, probability = expected[0][0]
    assert name in shown
    assert f"{probability:.4f}"[:5] in shown

    report([str(trained / "table.sqlite"), "-m", str(folder), "-o", str(tmp_path / "report"), "--verbose-level", "0"])
    (system,) = json.loads((tmp_path / "report" / "report.json").read_text())["evaluation"]["systems"]
    (run,) = runs_of(TableStore.open(trained / "table.sqlite"))
    assert system["P@1"] == pytest.approx(run.metrics["P@1"])


def test_the_user_can_decide_otherwise(trained, tmp_path):
    flags = [str(trained / "table.csv"), "-m", str(tmp_path / "model"), "--min-df", "1", "--verbose-level", "0"]
    shaped = [*flags, "--trees", "2", "--max-leaf-size", "20", "--validation", "0"]
    train([*shaped, "--label-names", "false"])
    model = XRLinear.load(tmp_path / "model")
    assert len(model.more_trees) == 1
    assert model.evidence is not None
    assert model.evidence.names is None
    (run,) = runs_of(TableStore.open(trained / "table.sqlite"))[-1:]
    assert "the scores are probabilities, learned from" in " ".join(run.chosen)
    assert "probabilities" in run.durations
    train([*shaped, "--probabilities", "false"])
    assert XRLinear.load(tmp_path / "model").evidence is None
    refused("--trees and --effort are mutually exclusive", train, [*flags, "--trees", "2", "--effort", "fast"])


def test_names_that_are_numbers_are_no_evidence(tmp_path):
    table = write_table(tmp_path / "stars.csv", [(f"{NOUNS[n % 5]} {WORDS[n % 60]}", [str(n % 5)]) for n in range(100)])
    train([str(table), "-m", str(tmp_path / "model"), "--effort", "fast", "--verbose-level", "0"])
    assert XRLinear.load(tmp_path / "model").evidence is None
