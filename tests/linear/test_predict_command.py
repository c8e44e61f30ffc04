"""``xmc_tf.linear.predict``: predictions as matrices and lines, from features and texts."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

from tests.linear.command_data import run_predict, run_train
from tests.linear.searching import rows_of
from xmc_tf.common.errors import InputError
from xmc_tf.data import load_features, load_matrix, save_matrix
from xmc_tf.jobs import predict as command
from xmc_tf.models.xr_linear import XRLinear


def predictions(model, corpus, tmp_path, *flags, source=None):
    run_predict("-m", model, *(source or ["-x", corpus / "X.npz"]), "-o", tmp_path / "p.npz", *flags)
    return sp.load_npz(tmp_path / "p.npz")


def test_a_matrix_in_order_of_score(model, corpus, tmp_path):
    ours = predictions(model, corpus, tmp_path, "-k", 5, "-b", 2, "-pp", "sigmoid")
    expected = XRLinear.load(model).predict(
        load_features([corpus / "X.npz"]), only_topk=5, beam_size=2, post_processor="sigmoid"
    )
    assert rows_of(ours) == rows_of(expected)
    assert ours.shape == (90, 12)
    assert all(row == sorted(row, key=lambda pair: -pair[1]) for row in rows_of(ours))


def test_chunks_change_nothing(model, text_model, corpus, tmp_path):
    for name, flag, chunk in ((model, ["-x", corpus / "X.npz"], 7), (text_model, ["-t", corpus / "X.txt"], 40)):
        whole = rows_of(predictions(name, corpus, tmp_path, source=flag))
        assert rows_of(predictions(name, corpus, tmp_path, "-B", chunk, "-n", 1, source=flag)) == whole
    Y = load_matrix(corpus / "Y.npz").toarray()
    assert np.mean([Y[i, row[0][0]] for i, row in enumerate(whole)]) > 0.95


def test_a_line_a_document_with_names(model, corpus, tmp_path):
    run_predict("-m", model, "-x", corpus / "X.npz", "-o", tmp_path / "p.jsonl", "-k", 2)
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text(encoding="utf-8").splitlines()]
    names = (corpus / "labels.txt").read_text().splitlines()
    rows = rows_of(predictions(model, corpus, tmp_path, "-k", 2))
    assert [line["labels"] for line in lines] == [[names[label] for label, _ in row] for row in rows]
    np.testing.assert_allclose([line["scores"] for line in lines], [[s for _, s in row] for row in rows], atol=1e-6)


def test_names_on_the_screen(text_model, capsys):
    run_predict("-m", text_model, "-q", "forests of the forest", "-q", "station stations", "-k", 2)
    first, second, rest = capsys.readouterr().out.split("\n\n")
    assert first.splitlines()[0].endswith("  forest 1")
    assert second.splitlines()[0].endswith("  station 1")
    assert len(first.splitlines()) == 2
    assert rest == ""


def test_texts_without_a_known_word_have_an_answer(text_model, capsys):
    run_predict("-m", text_model, "-q", "", "-q", "\ufffd ??", "-k", 3)
    assert len(capsys.readouterr().out.strip().splitlines()) == 7


def test_precision_and_recall(model, corpus, tmp_path, capsys):
    run_predict("-m", model, "-x", corpus / "X.npz", "-y", corpus / "Y.npz")
    out = capsys.readouterr().out
    Y, rows = load_matrix(corpus / "Y.npz").toarray(), rows_of(predictions(model, corpus, tmp_path))
    hits = 100 * np.mean([Y[i, row[0][0]] for i, row in enumerate(rows)])
    (precision,) = [line.split() for line in out.splitlines() if line.startswith("precision")]
    assert precision[1] == f"{hits:.2f}"
    assert len(precision) == 1 + 4  # at 1, 3, 5 and 10 of the 12 labels
    assert "library" not in out


def test_selected_outputs(model, corpus, tmp_path):
    selected = sp.random(90, 12, 0.3, "csc", np.float32, random_state=1)
    save_matrix(tmp_path / "S.npz", selected)
    ours = predictions(model, corpus, tmp_path, "-so", tmp_path / "S.npz", "-B", 50)
    assert np.array_equal(ours.toarray() > 0, selected.toarray() > 0)
    every = predictions(model, corpus, tmp_path, "-k", 12, "-b", 100).toarray()
    np.testing.assert_allclose(ours.toarray(), np.where(selected.toarray() > 0, every, 0), rtol=1e-5)


def test_a_bare_folder_of_rankers(model, corpus, tmp_path):
    ours = predictions(model / "ranker", corpus, tmp_path)
    assert rows_of(ours) == rows_of(predictions(model, corpus, tmp_path))


def test_other_names_than_numbers_are_not_needed(corpus, tmp_path, capsys):
    run_train("-x", corpus / "X.npz", "-y", corpus / "Y.npz", "-m", tmp_path / "m")
    run_predict("-m", tmp_path / "m", "-x", corpus / "X.npz", "-k", 1)
    (first, *_), row = capsys.readouterr().out.splitlines(), rows_of(predictions(tmp_path / "m", corpus, tmp_path))[0]
    assert first.split() == [f"{row[0][1]:.4f}", str(row[0][0])]


def test_an_interrupted_prediction_leaves_no_partial_file(model, corpus, tmp_path, monkeypatch):
    def broken(*_):
        yield [("a", 1.0)]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "named", broken)
    with pytest.raises(OSError, match="No space"):
        run_predict("-m", model, "-x", corpus / "X.npz", "-o", tmp_path / "p.jsonl")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["pred", "pred.v1"])
def test_a_matrix_under_exactly_the_name_given(model, corpus, tmp_path, name):
    """As PECOS writes it; numpy and scipy would append an extension."""
    run_predict("-m", model, "-x", corpus / "X.npz", "-o", tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert rows_of(sp.load_npz(tmp_path / name)) == rows_of(predictions(model, corpus, tmp_path))


def test_only_some_labels(model, corpus, tmp_path):
    """Only labels of the file are predicted, and a narrow beam finds those that it would have dropped."""
    names = (corpus / "labels.txt").read_text().splitlines()
    (tmp_path / "only.txt").write_text(f"{names[3]}\n7\n", encoding="utf-8")
    ours = predictions(model, corpus, tmp_path, "--only-labels", tmp_path / "only.txt", "-b", 2, "-k", 5)
    every = predictions(model, corpus, tmp_path, "-k", 12, "-b", 100).toarray()
    expected = np.zeros_like(every)
    expected[:, [3, 7]] = every[:, [3, 7]]
    np.testing.assert_allclose(ours.toarray(), expected, rtol=1e-6)
    assert np.diff(ours.indptr).tolist() == [2] * 90
    (tmp_path / "only.txt").write_text("nothing of the kind\n")
    with pytest.raises(InputError, match=r"only\.txt, line 1: not a label of this model"):
        predictions(model, corpus, tmp_path, "--only-labels", tmp_path / "only.txt")
