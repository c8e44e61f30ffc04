"""``xmc_tf.preprocess``: a vectorizer is built of texts, and files become matrices."""

import numpy as np
import pytest
import scipy.sparse as sp

from tests.refusals import refused
from xmc_tf import preprocess
from xmc_tf.common.errors import InputError
from xmc_tf.data import load_matrix
from xmc_tf.features import Tfidf

LINES = ["0,2\ta Harbour in the north", "1\tthe Forest in the south", "2\tharbour and forest\twith a tab"]


def run(*flags):
    preprocess.main([str(flag) for flag in flags])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return texts with labels, texts alone, label names, and a vectorizer built of the first."""
    folder = tmp_path_factory.mktemp("preprocess")
    (folder / "in.txt").write_text("".join(f"{line}\n" for line in LINES))
    (folder / "alone.txt").write_text("".join(f"{line.split(chr(9))[1]}\n" for line in LINES))
    (folder / "labels.txt").write_text("zero\none\ntwo\nthree\n")
    run("build", "-i", folder / "in.txt", "-m", folder / "v")
    return folder


def test_pecos_defaults(folder):
    """Single words, as they are written, all of them; each document of length 1."""
    tfidf = Tfidf.load(folder / "v")
    words = {word for line in LINES for word in line.split("\t")[1].split()}
    assert set(tfidf.names) == words
    X = tfidf.transform(["the the north"]).toarray()[0]
    idf = {"the": np.log(4 / 3) + 1, "north": np.log(4 / 2) + 1}
    expected = np.array([2 * idf["the"], idf["north"]])
    found = X[[tfidf.names.index("the"), tfidf.names.index("north")]]
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), rtol=1e-5)


def test_matrices_of_a_file(folder, tmp_path):
    run(
        "run", "-p", folder / "v", "-i", folder / "in.txt", "-l", folder / "labels.txt", "-x", tmp_path / "X",
        "-y", tmp_path / "Y.npz",
    )  # fmt: skip
    Y = load_matrix(tmp_path / "Y.npz")
    assert Y.toarray().tolist() == [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    X = sp.load_npz(tmp_path / "X")
    tfidf = Tfidf.load(folder / "v")
    assert (tfidf.transform([line.split("\t")[1] for line in LINES]) != X).nnz == 0
    assert X.has_sorted_indices


def test_texts_alone(folder, tmp_path):
    run("build", "-i", folder / "alone.txt", "-m", tmp_path / "v", "--from-file", "true")
    assert Tfidf.load(tmp_path / "v").names == Tfidf.load(folder / "v").names
    flags = ["run", "-p", tmp_path / "v"]
    run(*flags, "-i", folder / "alone.txt", "-x", tmp_path / "a.npz", "--from-file", "true")
    run(*flags, "-i", folder / "in.txt", "-x", tmp_path / "b.npz")
    assert (load_matrix(tmp_path / "a.npz") != load_matrix(tmp_path / "b.npz")).nnz == 0


def test_fields_and_configuration(folder, tmp_path):
    (tmp_path / "in.txt").write_text("a first\ttext\t0:1:0.5\nanother\ttext\t1:1:2\n")
    config = '{"type": "tfidf", "kwargs": {"ngram_range": [1, 2], "min_df_cnt": 2}}'
    (tmp_path / "c.json").write_text(config)
    flags = ["-i", tmp_path / "in.txt", "--text-pos", 1]
    run("build", *flags, "-m", tmp_path / "v", "--vectorizer-config-path", tmp_path / "c.json")
    assert Tfidf.load(tmp_path / "v").names == ["text"]
    run(
        "run", *flags, "-p", tmp_path / "v", "-x", tmp_path / "X.npz", "--label-pos", 2, "-l", folder / "labels.txt",
        "-y", tmp_path / "Y.npz", "-r", tmp_path / "R.npz",
    )  # fmt: skip
    assert load_matrix(tmp_path / "R.npz").toarray()[:, :2].tolist() == [[0.5, 0], [0, 2]]
    assert load_matrix(tmp_path / "X.npz").toarray().tolist() == [[1], [1]]
    run("build", *flags, "-m", tmp_path / "v", "--vectorizer-config-json", config)  # in place of the one before
    assert Tfidf.load(tmp_path / "v").names == ["text"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-y", "Y.npz"], r"number of labels is not known(.|\n)*add -l"),
        (["-p", "pecos"], "is a vectorizer of PECOS"),
        (["-p", "none"], "does not exist"),
        (["--text-pos", 7], "line 1 has too few fields"),
        (["-x", "in.txt"], "in.txt"),
    ],
)
def test_what_cannot_be_run(folder, tmp_path, monkeypatch, flags, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in LINES))
    (tmp_path / "pecos").mkdir()
    (tmp_path / "pecos" / "config.json").write_text("{}")
    refused(said, run, "run", "-p", folder / "v", "-i", "in.txt", "-x", "X.npz", *flags)
    assert (tmp_path / "in.txt").read_text().startswith("0,2\t")


@pytest.mark.parametrize("text", ["{", "[" * 9_999, "[]"])
def test_a_configuration_that_is_no_json_object(folder, tmp_path, text):
    (tmp_path / "c.json").write_text(text)
    for flag, value in (("path", tmp_path / "c.json"), ("json", text)):
        with pytest.raises(InputError, match=r"c\.json|--vectorizer-config-json"):
            run("build", "-i", folder / "in.txt", "-m", tmp_path / "v", f"--vectorizer-config-{flag}", value)


def test_other_files_are_never_replaced(folder, tmp_path):
    (tmp_path / "X.npz").write_text("mine")
    with pytest.raises(InputError, match=r"holds files that are not part of a fitted TF-IDF(.|\n)*received: X\.npz"):
        run("build", "-i", folder / "in.txt", "-m", tmp_path)
    assert (tmp_path / "X.npz").read_text() == "mine"
    refused("received: a file", run, "build", "-i", folder / "in.txt", "-m", tmp_path / "X.npz")
    outputs = ("-x", tmp_path / "new.npz", "-y", tmp_path / "Y.npz")
    (tmp_path / "Y.npz").write_text("mine")
    with pytest.raises(InputError, match=r"-y .*Y\.npz exists and was not written by this command"):
        run("run", "-p", "vectorizer", "-i", folder / "in.txt", "-l", "labels.txt", *outputs)
