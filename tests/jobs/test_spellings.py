"""A model and a text are named in the same ways by all commands."""

import csv

import pytest

from tests.jobs.conftest import documents
from tests.refusals import refused
from xmc_tf import XRLinear, load
from xmc_tf.common.errors import InputError
from xmc_tf.explain import main as explain
from xmc_tf.export import parser as export_parser
from xmc_tf.params import model_place
from xmc_tf.playground import parser as try_parser
from xmc_tf.predict import main as predict
from xmc_tf.server.__main__ import parser as serve_parser
from xmc_tf.tree.show import main as show

TEXT = "oven flour butter"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spellings") / "model"
    texts, labels = zip(*documents(80, 1), strict=True)
    XRLinear.train(list(texts), list(labels)).save(folder)
    return str(folder)


def _shown(capsys, command, *arguments):
    command(list(arguments))
    return capsys.readouterr().out


def test_a_text_is_an_argument_or_a_flag(model, capsys):
    best = load(model).best([TEXT, "goal team"], k=1)
    first = _shown(capsys, predict, "-m", model, TEXT, "-k", "1")
    assert best[0][0][0] in first
    assert first == _shown(capsys, predict, "-m", model, "-q", TEXT, "-k", "1")
    both = _shown(capsys, predict, "-m", model, "-q", TEXT, "goal team", "-k", "1")
    assert both == _shown(capsys, predict, "-m", model, "-q", TEXT, "-q", "goal team", "-k", "1")
    assert [line.split()[1] for line in both.splitlines() if line] == [one[0][0] for one in best]
    assert _shown(capsys, explain, "-m", model, TEXT) == _shown(capsys, explain, "-m", model, "-q", TEXT)
    refused("the text is missing", explain, ["-m", model])
    with pytest.raises(InputError, match=r"no-such\.csv does not exist"):  # a file, not a text
        predict(["-m", model, "no-such.csv", "-o", "labels.csv"])


def test_a_model_is_an_argument_or_a_flag(model, capsys):
    assert _shown(capsys, show, model) == _shown(capsys, show, "-m", model)
    for parser, more in ((try_parser, []), (serve_parser, []), (export_parser, ["-o", "served/1"])):
        assert model_place(parser().parse_args([model, *more])) == model
        assert model_place(parser().parse_args(["-m", model, *more])) == model
        for wrong, message in (([], "the model is missing"), ([model, "-m", model], "both MODEL and -m are given")):
            refused(message, model_place, parser().parse_args([*wrong, *more]))


def test_lines_of_texts_become_a_table(model, tmp_path):
    (tmp_path / "lines.txt").write_text(f"{TEXT}\n\ngoal, team\n")
    predict(["-m", model, "-t", str(tmp_path / "lines.txt"), "-o", str(tmp_path / "out.csv"), "-k", "1"])
    with (tmp_path / "out.csv").open(newline="") as file:
        _, *rows = csv.reader(file)
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert [row[1] for row in rows] == ["cooking", "", "sports"]
