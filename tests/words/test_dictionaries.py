"""Dictionaries: made of forms and lemmas, written once, and mapped."""

import logging
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.words.small import ENTRIES, LISTED, STEMS, small_dictionaries_in
from xmc_tf.words import dictionaries
from xmc_tf.words.dictionaries import dictionary_entries, load_dictionary, made_dictionary


def lemmas_of(dictionary):
    """Return the lemma of each form."""
    forms = [dictionary.forms.string(place).decode() for place in range(len(dictionary.forms.ends))]
    return {
        form: dictionary.lemmas.string(lemma).decode()
        for form, lemma in zip(forms, dictionary.lemma_of.tolist(), strict=True)
    }


def same(one, other):
    arrays = dictionaries._arrays(one), dictionaries._arrays(other)
    assert arrays[0].keys() == arrays[1].keys()
    return all(np.array_equal(arrays[0][name], arrays[1][name]) for name in arrays[0])


def test_forms_and_lemmas_are_in_lower_case():
    dictionary = made_dictionary(ENTRIES["en"])
    found = lemmas_of(dictionary)
    assert found["mice"] == "mouse"
    assert found["taloissa"] == "talo"
    assert found["häuser"] == found["haus"] == "haus"
    assert found["mäuse"] == "maus"
    assert all(found[lemma] == lemma for lemma in set(found.values()))
    assert len(found) == len({*(form.lower() for form in [*LISTED, *LISTED.values()])}) + 5 * len(STEMS)
    assert np.array_equal(dictionary.keys, dictionary.forms.keys())
    assert (np.diff(dictionary.keys) > 0).all()


def test_a_form_in_lower_case_is_preferred():
    for entries in ([("Lost", "Los"), ("lost", "lose")], [("lost", "lose"), ("Lost", "Los")]):
        assert lemmas_of(made_dictionary(entries))["lost"] == "lose"

    # A form that is a lemma of others keeps its own lemma.
    found = lemmas_of(made_dictionary([("saw", "see"), ("saws", "saw")]))
    assert (found["saws"], found["saw"], found["see"]) == ("saw", "see", "see")


def test_it_is_written_once_and_mapped(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="xmc_tf")
    with small_dictionaries_in(tmp_path) as folder:
        first = load_dictionary("en")
        assert load_dictionary("en") is first
        (place,) = folder.iterdir()
        written = {path.name: path.stat().st_mtime_ns for path in place.iterdir()}
        load_dictionary.cache_clear()
        again = load_dictionary("en")
        assert {path.name: path.stat().st_mtime_ns for path in place.iterdir()} == written
    assert isinstance(again.keys, np.memmap)
    assert same(first, again)
    assert same(again, made_dictionary(ENTRIES["en"]))
    assert caplog.text.count("preparing the dictionary of 'en'") == 1


def test_processes_may_write_it_at_the_same_time(tmp_path):
    with small_dictionaries_in(tmp_path) as folder, ThreadPoolExecutor(4) as pool:
        # Not from the cache of this process: as different processes would.
        load = load_dictionary.__wrapped__
        found = list(pool.map(load, ["en"] * 8))
        assert all(same(one, found[0]) for one in found)
        assert len(list(folder.iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path, caplog):
    (tmp_path / "cache").write_text("a file, where a folder is to be made")
    with small_dictionaries_in(tmp_path / "cache"):
        found = load_dictionary("en")
    assert same(found, made_dictionary(ENTRIES["en"]))
    assert "the dictionary of 'en' cannot be cached" in caplog.text


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(dictionaries.np, "save", full)
    with small_dictionaries_in(tmp_path) as folder:
        assert same(load_dictionary("en"), made_dictionary(ENTRIES["en"]))
        assert not list(folder.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_other_users_of_the_machine_can_read_a_shared_cache(tmp_path):
    before = os.umask(0o022)
    try:
        with small_dictionaries_in(tmp_path) as folder:
            load_dictionary("en")
            (place,) = folder.iterdir()
            assert stat.S_IMODE(place.stat().st_mode) == 0o755
    finally:
        os.umask(before)


def test_simplemmas_words_are_single_words():
    entries = dict(dictionary_entries("gv"))
    assert len(entries) > 1000
    assert all(form.isalnum() and lemma.isalnum() for form, lemma in entries.items())
