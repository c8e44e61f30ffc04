"""The precision of matches, learned from documents, without a document's own labels."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.label_names.cases import many
from tests.refusals import refused
from xmc_tf.label_names import LabelNames, label_vocabulary
from xmc_tf.label_names.cold_start import cold_start
from xmc_tf.label_names.find_mentions import count_documents, find_matches
from xmc_tf.label_names.index import build_index, words_of_names
from xmc_tf.label_names.kernels import NR_GRADES
from xmc_tf.label_names.label_names import _FILE
from xmc_tf.label_names.match_precision import count_matches, is_right, kinds_of_names


def precisions(names, texts):
    """Return the precision of the names in texts: texts × labels."""
    return names.mentions(texts).precisions(len(texts), names.nr_labels)


def held_out_worths(mentions, folds, shape):
    """Return the same for the documents of folds, at their places."""
    rows = np.concatenate(folds)[mentions.rows]
    order = np.argsort(rows, kind="stable")
    return mentions._replace(rows=rows).only(order).precisions(*shape)


def test_names_qualifiers_and_alternatives():
    found = label_vocabulary(["Mercury (planet)", "cat\tfeline [animal]\t\tcat", "(1970)"])
    assert found.preferred == ["Mercury (planet)", "cat", "(1970)"]
    assert found.names == ["Mercury", "cat", "feline", "(1970)"]
    assert found.labels.tolist() == [0, 1, 1, 2]


def test_kinds_of_names_are_by_rarity_and_number_of_words():
    names = {(47,): 0, (48,): 3, (575,): 33, (576,): 36, (9999,): 36, (40, 8): 4, (50, 50, 44): 11, (1, 1, 1, 1): 2}
    splits = np.cumsum([0, *map(len, names)])
    index = SimpleNamespace(weights=np.concatenate([*names]), splits=splits)
    assert kinds_of_names(index).tolist() == list(names.values())


def test_a_name_that_is_always_right_is_worth_more():
    texts = ["alpha"] * 40 + ["gamma"] * 40
    Y = csr_matrix(np.array([[1, 0]] * 40 + [[0, 1]] * 10 + [[0, 0]] * 30, np.float32))
    names, _ = LabelNames.learn(["alpha", "gamma"], texts, Y)
    alpha, gamma = precisions(names, ["alpha", "gamma"]).diagonal()
    assert alpha > 0.85
    assert 0.2 < gamma < 0.4


def test_few_matches_count_beside_those_in_documents_of_other_vocabularies():
    learned, _ = LabelNames.learn(["alpha", "gamma"], ["alpha", "alpha"], csr_matrix([[1.0, 0.0], [1.0, 0.0]]))
    counted = ~np.isclose(learned.priors, cold_start().priors)
    assert counted.sum() == 1
    assert np.allclose(learned.priors[counted], (50 * cold_start().priors[counted] + 2) / 52)


def test_a_label_of_a_single_document_does_not_show_that_names_are_right():
    learned, _ = LabelNames.learn(["alpha", "gamma"], ["alpha"], csr_matrix([[1.0, 0.0]]))
    assert np.allclose(learned.priors, cold_start().priors)


def test_a_document_does_not_count_in_its_own_evidence():
    names, texts, Y = many()
    folds = np.array_split(np.arange(len(texts)), 5)
    row = 17
    changed = Y.tolil()
    changed[row] = 1 - changed[row].toarray()
    first, again = (
        held_out_worths(LabelNames.learn(names, texts, labels, folds=folds)[1], folds, Y.shape)
        for labels in (Y, changed.tocsr())
    )
    others = np.concatenate(folds[1:])
    assert (first[folds[0]] != again[folds[0]]).nnz == 0
    assert abs(first[others] - again[others]).max() > 0.005


def test_labels_without_documents_are_found_by_their_names():
    names, texts, Y = many()
    Y = Y.tolil()
    Y[:, 3] = 0
    found, _ = LabelNames.learn(names, texts, Y.tocsr())
    assert precisions(found, [names[3]])[0, 3] > 0.02


def test_saved_names_are_the_same(tmp_path):
    names, texts, Y = many()
    learned, _ = LabelNames.learn(names, texts, Y)
    learned.save(tmp_path / "names")
    loaded = LabelNames.load(tmp_path / "names")
    assert (precisions(learned, texts) != precisions(loaded, texts)).nnz == 0
    learned.save(tmp_path / "again")
    assert (tmp_path / "names" / _FILE).read_bytes() == (tmp_path / "again" / _FILE).read_bytes()


def test_damaged_files_are_named(tmp_path):
    names, texts, Y = many()
    LabelNames.learn(names, texts, Y)[0].save(tmp_path / "names")
    path = tmp_path / "names" / _FILE
    path.write_bytes(path.read_bytes()[:-100])
    refused(r"names\.npz cannot be read", LabelNames.load, tmp_path / "names")


@pytest.mark.parametrize("language", ["none", "en"])
def test_files_with_arrays_that_do_not_match_are_refused(language, tmp_path):
    """Compiled code relies on them."""
    names, texts, Y = many()
    LabelNames.learn(names, texts, Y, language=language)[0].save(tmp_path / "names")
    file = tmp_path / "names" / _FILE
    with np.load(file) as held:
        arrays = dict(held)
    for name, array in arrays.items():
        others = [np.stack([array, array])]
        if array.ndim:
            others += [array[0], array.astype("U9"), *([] if name == "priors" else [array[:-1]])]
        if name in ("name_words", "name_exact", "listed", "places", "labels", "lists", "splits", "lemma_of"):
            others += [array + 1_000_000, array - 1_000_000, array[::-1] + 1, array.astype(np.float32)]
        for other in others:
            np.savez(file, **{**arrays, name: other})
            refused(r"names\.npz (cannot be read|is inconsistent)", LabelNames.load, file.parent)
    np.savez(file, **arrays)
    LabelNames.load(file.parent)


def test_matches_of_labels_without_documents_say_nothing():
    names, texts, Y = many()
    hidden = Y.tolil()
    hidden[:, 3] = 0
    folds = [np.arange(len(texts))[::2]]
    learned, mentions = LabelNames.learn(names, texts, hidden.tocsr(), folds=folds)
    elsewhere = held_out_worths(mentions, folds, Y.shape)
    rows = np.flatnonzero(elsewhere[:, [3]].toarray().ravel())
    assert len(rows) > 10
    # The precision is that of similar names, in the training documents as in others, and not less with each match.
    held_out = elsewhere.toarray()[rows, 3]
    assert np.allclose(precisions(learned, texts).toarray()[rows, 3], held_out, atol=0.03)
    assert len(np.unique(held_out)) <= NR_GRADES
    assert elsewhere[rows, 3].max() > 0.1


def test_a_hidden_label_is_read_as_if_no_document_had_it():
    names, texts, Y = many()
    folds = [np.arange(0, 60), np.arange(60, 120)]
    hidden = [np.arange(40) == 3, np.arange(40) == 9]
    found = LabelNames.learn(names, texts, Y, folds=folds, hidden=hidden)[1]
    for fold, label in ((0, 3), (1, 9)):
        without = Y.tolil()
        without[:, label] = 0
        expected = LabelNames.learn(names, texts, without.tocsr(), folds=folds)[1]
        own = [one.only((one.rows // 60 == fold) & (one.labels == label)) for one in (found, expected)]
        assert len(own[0].rows) > 1
        assert np.array_equal(own[0].precision, own[1].precision)


def test_added_names_are_found_as_if_they_had_been_there():
    names, texts, Y = many()
    first, added = names[:30], names[30:]
    learned, _ = LabelNames.learn(first, texts, Y[:, :30])
    longer = learned.with_added([*added, "entirely other\tunknown"])
    empty = Y.tolil()
    empty[:, 30:] = 0
    whole, _ = LabelNames.learn(names, texts, empty.tocsr())
    found, expected = precisions(longer, texts), precisions(whole, texts)
    assert np.array_equal(found.toarray()[:, :30], precisions(learned, texts).toarray())
    # Words that are in no name of the training have a weight of their own, which changes which matches are partial.
    both = (found[:, 30:40] > 0).multiply(expected[:, 30:] > 0)
    assert both.nnz > 0.9 * expected[:, 30:].nnz
    assert precisions(longer, ["unknown things"])[0, 40] > 0
    assert longer.with_added(["more"]).nr_labels == 42
    again = learned.with_added(added).with_added(["entirely other\tunknown"])
    assert np.array_equal(precisions(again, texts).toarray(), found.toarray())


def test_the_evidence_in_held_out_documents_is_that_of_names_learned_without_them():
    names, texts, Y = many()
    folds = [np.arange(0, 40), np.arange(40, 90)]
    mentions = LabelNames.learn(names, texts, Y, folds=folds)[1]
    assert mentions.rows.max() < 90
    found_there = held_out_worths(mentions, folds, Y.shape)
    whole, _ = LabelNames.learn(names, texts, Y)
    words = words_of_names(label_vocabulary(names).names, whole.index.labels, whole.reading)
    counts = count_documents(words.words, texts, whole.reading)
    index = build_index(words, np.maximum(counts - 1, 0), len(texts) - 1)  # without the document itself
    for fold in folds:
        others = np.setdiff1d(np.arange(len(texts)), fold)
        found = find_matches(index, [texts[row] for row in others], whole.reading)
        documents = np.bincount(Y[others].indices, minlength=Y.shape[1])
        counted = count_matches(index, found, is_right(index, found, Y[others]), documents)
        elsewhere = dataclasses.replace(whole, index=index, precision=counted.precision())
        assert (found_there[fold] != precisions(elsewhere, [texts[row] for row in fold])).nnz == 0


def test_a_held_out_document_sees_names_as_rare_as_in_the_others():
    names, texts, Y = many()
    mentions = LabelNames.learn(names, texts, Y, folds=[np.arange(20)])[1]
    seen = 0
    for row in range(20):
        others = np.setdiff1d(np.arange(len(texts)), [row])
        as_new = LabelNames.learn(names, [texts[one] for one in others], Y[others])[0].mentions([texts[row]])
        held_out, as_new = mentions.only((mentions.rows == row) & mentions.full), as_new.only(as_new.full)
        assert held_out.labels.tolist() == as_new.labels.tolist()
        assert held_out.rarity.tolist() == as_new.rarity.tolist()
        seen += len(as_new.rows)
    assert seen > 20
