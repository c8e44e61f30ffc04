"""SKOS vocabularies: names by language, from Turtle, RDF/XML and N-Triples, and the lines that they complete."""

import logging

import pytest
from rdflib import Graph

from tests.refusals import refused
from xmc_tf.data.vocabularies import Concept, LabelHierarchy, load_label_lines, load_vocabulary

TURTLE = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix : <http://example.org/> .

:c2 a skos:Concept ; skos:prefLabel "cats"@en, "kissat"@fi ; skos:altLabel "felines"@en, "Felis\\tcatus" ;
    skos:hiddenLabel "moggies"@en , "kisut"@fi .
:c1 a skos:Concept ; skos:prefLabel "colours"@en-GB, "värit"@fi ; skos:altLabel "hues"@en .
:c3 a skos:Concept ; skos:prefLabel "talo"@fi ; skos:altLabel "houses"@en .
:c4 skos:prefLabel "Mercury (planet)" .
"""
ENGLISH = [
    Concept("http://example.org/c1", ("colours", "hues")),
    Concept("http://example.org/c2", ("cats", "felines", "moggies")),
    Concept("http://example.org/c4", ("Mercury (planet)",)),
]


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "vocabulary.ttl"
    path.write_text(TURTLE, encoding="utf-8")
    return path


def lines_file(folder, *lines):
    path = folder / "labels.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def test_names_in_one_language_from_each_format(vocabulary, tmp_path):
    assert load_vocabulary(vocabulary, "en") == ENGLISH
    graph = Graph().parse(vocabulary)
    for ending, format_ in ((".rdf", "pretty-xml"), (".xml", "xml"), (".nt", "nt")):
        graph.serialize(tmp_path / f"other{ending}", format=format_, encoding="utf-8")
        assert load_vocabulary(tmp_path / f"other{ending}", "EN") == ENGLISH


def test_a_name_without_a_language_counts_if_there_is_no_other(vocabulary):
    names = {concept.uri[-2:]: concept.names for concept in load_vocabulary(vocabulary, "fi")}
    assert names["c2"] == ("kissat", "Felis catus", "kisut")
    assert names["c4"] == ("Mercury (planet)",)


def test_lines_are_completed_by_identifier_or_by_name(vocabulary, tmp_path, caplog):
    lines = lines_file(tmp_path, "<http://example.org/c1>", "http://example.org/c4", "Cats", "dogs")
    with caplog.at_level(logging.WARNING):
        found, hierarchy = load_label_lines(lines, str(vocabulary), "en")
    assert hierarchy is None
    assert found == ["colours\thues", "Mercury (planet)", "cats\tfelines\tmoggies", "dogs"]
    assert "1 of 4 lines" in caplog.text
    assert "'dogs'" in caplog.text


def test_without_a_vocabulary_lines_stay_as_they_are(tmp_path):
    assert load_label_lines(lines_file(tmp_path, "a\tb", "c")).lines == ["a\tb", "c"]
    assert load_label_lines(None) == (None, None)


@pytest.mark.parametrize(("name", "content", "message"), [
    ("bad.ttl", "@prefix : <x> . :a :b", r"bad\.ttl cannot be read as turtle"),
    ("bad.rdf", "<rdf:RDF", r"bad\.rdf cannot be read as xml"),
    ("bad.nt", "<a> <b", r"bad\.nt cannot be read as nt"),
    ("bad.csv", "a,b", "format of the vocabulary is unknown"),
    ("empty.ttl", "", "no concept has a preferred name"),
])  # fmt: skip
def test_vocabularies_that_cannot_be_read(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    refused(message, load_vocabulary, tmp_path / name, "en")


def test_damaged_bytes_and_another_language_are_named(vocabulary, tmp_path):
    (tmp_path / "bytes.ttl").write_bytes(b"\xff\xfe\x00 not turtle")
    refused("cannot be read", load_vocabulary, tmp_path / "bytes.ttl", "en")
    vocabulary.write_text(TURTLE.replace(' "Mercury (planet)"', ' "Mercury"@en'), encoding="utf-8")
    refused("preferred names in en, en-GB, fi", load_vocabulary, vocabulary, "sv")


def test_contradicting_flags_and_strangers(vocabulary, tmp_path):
    lines = lines_file(tmp_path, "x", "y")
    assert load_label_lines(lines, None, "en").lines == ["x", "y"]  # it is the language of the texts
    refused("needs --language", load_label_lines, lines, str(vocabulary))
    refused("needs --labels", load_label_lines, None, str(vocabulary), "en")
    refused("no line is a concept", load_label_lines, lines, str(vocabulary), "en")


BROADER = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix : <http://example.org/> .

:animals skos:prefLabel "animals"@en ; skos:narrower :cats .
:cats skos:prefLabel "cats"@en ; skos:altLabel "felines"@en ; skos:broader :pets , :cats .
:dogs skos:prefLabel "dogs"@en ; skos:broader :animals , :pets .
:pets skos:prefLabel "lemmikit"@fi .
:tea skos:prefLabel "tea"@en ; skos:related :cats .
"""


def test_broader_terms_of_labels_are_read(tmp_path):
    (tmp_path / "v.ttl").write_text(BROADER, encoding="utf-8")
    lines = lines_file(tmp_path, "http://example.org/dogs", "http://example.org/animals", "tea", "cats", "fish")
    names, hierarchy = load_label_lines(lines, str(tmp_path / "v.ttl"), "en")
    assert names == ["dogs", "animals", "tea", "cats\tfelines", "fish"]
    pets = "http://example.org/pets"  # a term without a name in the language, and no label
    assert hierarchy == LabelHierarchy({"cats": ("animals", pets), "dogs": ("animals", pets)})
    matrix = hierarchy.broader_matrix(["dogs", "animals", "tea", "cats", "fish"])
    assert matrix.shape == (5, 6)
    assert {(row, column) for row, column in zip(*matrix.nonzero(), strict=True)} == {(0, 1), (0, 5), (3, 1), (3, 5)}


@pytest.mark.parametrize("content", [b"", b"cats\n", b"cats\t\n", b"a\tb\n\nc\td\n", b"\xff\tb\n"])
def test_damaged_hierarchies_are_refused(tmp_path, content):
    (tmp_path / "broader.tsv").write_bytes(content)
    refused(r"broader\.tsv", LabelHierarchy.load, tmp_path)
