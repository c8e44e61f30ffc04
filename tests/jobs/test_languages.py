"""The languages of a table, from a column of codes."""

import csv
import logging

import pytest

from tests.jobs.conftest import documents
from tests.refusals import refused
from tests.words.small import small_dictionaries_in
from xmc_tf.common.errors import InputError
from xmc_tf.jobs.language_column import languages_of_column
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.tables.preparation import prepare
from xmc_tf.tables.reading.options import SourceOptions
from xmc_tf.train import main

CODES = ["swe"] * 120 + ["en-GB"] * 60 + ["", "und"] * 9 + ["fin"] + ["sv, en"]


def written(path, codes):
    rows = [(text, "|".join(labels), code) for (text, labels), code in zip(documents(200, 2), codes, strict=True)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label", "lang"), *rows])
    return path


@pytest.fixture
def table(tmp_path):
    return written(tmp_path / "table.csv", CODES)


def test_the_languages_of_many_rows_are_taken_the_most_frequent_first(table, caplog):
    caplog.set_level(logging.INFO, logger="xmc_tf")
    assert languages_of_column(table, "lang", SourceOptions()) == "sv,en"
    assert "sv (121 rows), en (60 rows), from column 'lang'; 19 other rows" in caplog.text


def test_a_model_is_trained_with_them(table, tmp_path, capsys):
    with small_dictionaries_in(tmp_path / "dictionaries"):
        main([str(table), "-m", str(tmp_path / "model"), "--language-column", "lang", "--effort", "fast"])
    assert XRLinear.load(tmp_path / "model").tfidf.params.language == "sv,en"
    assert "lemmas (sv,en)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--language-column", "language"], "table.csv has no column 'language'"),
        (["--language-column", "label"], "column 'label' contains no language codes"),
        (["--language-column", "lang", "--language", "fi"], "--language and --language-column are mutually exclusive"),
    ],
)
def test_what_cannot_be_meant_is_refused(table, tmp_path, flags, message):
    refused(message, main, [str(table), "-m", str(tmp_path / "model"), *flags])
    assert not (tmp_path / "model").exists()


def test_files_and_data_sets_have_no_such_column(table, tmp_path):
    with pytest.raises(InputError, match="--language-column can only be used with a table"):
        main(["-t", "texts.txt", "-y", "Y.npz", "-m", str(tmp_path / "model"), "--language-column", "lang"])
    prepare(table, tmp_path / "data.sqlite").close()
    with pytest.raises(InputError, match="is a data set, which has no language column"):
        languages_of_column(tmp_path / "data.sqlite", "lang", SourceOptions())
