"""The languages of texts: found in a sample, or given as codes."""

import logging
from functools import partial
from unittest import mock

import numpy as np
import pytest
from py3langid import classify, langid

from xmc_tf.common.errors import InputError
from xmc_tf.common.progress import Progress
from xmc_tf.data import JoinedTexts, TextFile
from xmc_tf.features import Tfidf
from xmc_tf.features.tfidf import resolved
from xmc_tf.params import TfidfParams
from xmc_tf.words.abbreviations import abbreviations
from xmc_tf.words.dictionaries import dictionary_languages
from xmc_tf.words.languages import (
    WITHOUT_DICTIONARY,
    chosen_languages,
    dictionary_code,
    known_code,
    languages_of,
)

ENGLISH = "The history of public libraries and the education of their readers in the nineteenth century"
FINNISH = "Yleisten kirjastojen historia ja niiden lukijoiden kasvatus yhdeksännellätoista vuosisadalla"
CROATIAN = "Povijest javnih knjižnica i obrazovanje njihovih čitatelja u devetnaestom stoljeću u Hrvatskoj"
JAPANESE = "十九世紀における公共図書館の歴史と読者の教育について書かれた本を紹介します。"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([ENGLISH] * 20, ("en",)),
        ([FINNISH.encode()] * 20, ("fi",)),
        ([FINNISH] * 15 + [ENGLISH] * 30, ("en", "fi")),
        ([FINNISH] * 30 + [ENGLISH] * 15, ("fi", "en")),
        ([ENGLISH] * 95 + [FINNISH] * 5, ("en",)),  # one in twenty is as often a wrong guess
        ([CROATIAN] * 20, ("hbs",)),  # the dictionary of several languages
        ([JAPANESE] * 30, ("ja",)),
        ([ENGLISH], ()),  # too little
        ([""] * 1000, ()),
        (["12345 9999 $$$ 12.11.2001"] * 100, ()),  # of no language
        ([" " * 50] * 100, ()),
        ([], ()),
    ],
)
def test_the_languages_of_texts_are_found(texts, expected):
    assert languages_of(texts) == expected


def test_all_kinds_of_collections_are_looked_at_alike(tmp_path):
    lines = [FINNISH, ENGLISH, ENGLISH] * 300
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for texts in (TextFile(path), np.array(lines, dtype=object), [line.encode() for line in lines]):
        assert languages_of(texts) == ("en", "fi")


def test_the_sample_is_of_the_whole_collection():
    assert languages_of([ENGLISH] * 3000 + [FINNISH] * 1000) == ("en", "fi")
    assert set(languages_of([ENGLISH, FINNISH] * 2000)) == {"en", "fi"}


def test_bytes_that_are_no_utf8_and_long_texts_are_read():
    assert languages_of([FINNISH.encode() + b" \xff\xfe\xc3"] * 20) == ("fi",)
    assert languages_of([(ENGLISH + " ") * 10_000]) == ("en",)


def test_texts_decide_and_names_only_where_there_are_no_texts(capsys):
    names = ["oak", "ash", "elm", "fir", "yew", "pea", "rye", "hop", "tea", "fig"] * 60 + [FINNISH] * 60
    assert resolved(TfidfParams(), JoinedTexts([[ENGLISH] * 100, names], len(names)))[0].language == "en"
    assert resolved(TfidfParams(), JoinedTexts([[], [FINNISH] * 20], 20))[0].language == "fi"
    with mock.patch("xmc_tf.features.tfidf.Progress", partial(Progress, quiet_s=0)):
        Tfidf.fit(JoinedTexts([[ENGLISH] * 100, names], len(names)), TfidfParams(language="en"))
    assert f"{100 + len(names)} documents and names" in capsys.readouterr().err


def test_what_is_found_is_said(caplog):
    caplog.set_level(logging.INFO, logger="xmc_tf")
    assert chosen_languages("auto", [ENGLISH, FINNISH] * 20) == ("en", "fi")
    assert "language: en and fi, found in the texts" in caplog.text
    assert chosen_languages("auto", [ENGLISH]) == ()
    assert "language: not clear from the texts" in caplog.text


def test_codes_are_taken_as_they_are_given():
    assert chosen_languages("none", [ENGLISH] * 20) == ()
    assert chosen_languages("fi", [ENGLISH] * 20) == ("fi",)
    assert chosen_languages("fi,sv", []) == ("fi", "sv")
    assert chosen_languages("hr,sr,no,zh", []) == ("hbs", "nb", "zh")
    assert chosen_languages("fin,swe,ger,fi", []) == ("fi", "sv", "de")


def test_codes_as_tables_have_them():
    codes = ["fi", " FIN ", "en-GB", "pt_BR", "nor", "scr", "", "und", "mul"]
    assert [known_code(code) for code in codes] == ["fi", "fi", "en", "pt", "nb", None, None, None, None]


@pytest.mark.parametrize("code", ["xx", "xqq", "fi,xx"])
def test_a_code_of_no_language_is_refused(code):
    with pytest.raises(InputError) as caught:
        chosen_languages(code, [])
    refused = code.rpartition(",")[2]
    assert repr(refused) in caught.value.problem
    assert caught.value.received == refused
    assert "fi" in caught.value.expected
    assert "did you mean" in caught.value.fix or "use auto, or none" in caught.value.fix


def test_every_language_that_can_be_found_can_be_given():
    # The parameters of a fitted TF-IDF hold the codes that were found, and are read again by each rank.
    classify("loads the model")
    found = {dictionary_code(str(code)) for code in langid.IDENTIFIER.labels} - {"zxx"}
    assert len(found) > 90
    for code in sorted(found):
        assert chosen_languages(TfidfParams(language=code).language, []) == (code,)


def test_languages_without_a_dictionary_have_none():
    assert not WITHOUT_DICTIONARY & dictionary_languages()
    assert {"fi", "sv", "de", "en", "hbs", "nb"} <= dictionary_languages()


@pytest.mark.parametrize(
    ("texts", "names", "expected"),
    [
        (
            ["A talk on AI is here.", "AI, and an \u00c5LAND of its own", "ai", b"on \xc3\x85LAND"],
            [],
            ["ai", "\u00e5land"],
        ),
        (["It is IT.", "it", "The IT of today"], [], []),  # mostly not in capitals
        (["NEW: a book"], [], []),  # once
        (["THE AIDS OF A TEACHER"] * 3, [], []),  # all in capitals
        ([], ["AI", "cooking", "PR (in towns)", "Covid"], ["ai", "pr"]),
        (["aids", "ai"] * 9, ["AIDS", "hearing aids"], ["aids"]),  # once in a name is enough
        ([], ["AI", "COOKING", "public relations"], []),  # names are in capitals
    ],
)
def test_words_in_capitals_are_abbreviations(texts, names, expected):
    assert abbreviations(texts, names) == expected
