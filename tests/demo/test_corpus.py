import json
from functools import partial

import numpy as np
import scipy.sparse as smat

from tests.refusals import refused
from xmc_tf.demo import corpus as corpus_module
from xmc_tf.demo.corpus import build, collect, is_built, originals
from xmc_tf.demo.sources import words
from xmc_tf.tables.preparation import prepare

SUBJECTS = ("matrix", "tensor", "graph", "string", "file", "window", "signal", "socket")
VERBS = ("sort", "merge", "split", "invert", "print", "measure", "cancel", "download")
FILLERS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty", "karst")


def write_package(folder, seed=0):
    """Return a package of 64 functions in 8 modules, each with a text of its own."""
    rng = np.random.default_rng(seed)
    for subject in SUBJECTS:
        lines = []
        for verb in VERBS:
            filler = " ".join(rng.choice(FILLERS, 14))
            text = f"{verb.title()}s a {subject}: {filler}."
            lines.append(f'def {verb}_{subject}(axis, {verb}_mode):\n    """{text}"""\n')
        path = folder / "sub" / f"{subject}s.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines))
    return folder


def test_the_promises_of_the_data(tmp_path):
    corpus = collect({"pack": write_package(tmp_path)}, least=3, largest_share=0.5)
    texts = corpus.train + corpus.test
    assert corpus.test
    assert len(originals([words(text) for text in texts])) == len(texts)
    assert corpus.train_labels.shape == (len(corpus.train), len(corpus.names))
    assert corpus.test_labels.shape == (len(corpus.test), len(corpus.names))
    frequency = np.asarray(corpus.train_labels.sum(axis=0)).ravel()
    assert frequency.min() >= 3
    assert frequency.max() <= 0.5 * len(corpus.train)
    # What every function has says nothing: no "takes: axis", no "kind: function", no "package: pack".
    assert {name.split(":")[0] for name in corpus.names} == {"about", "module", "takes"}
    assert "takes: axis" not in corpus.names
    for matrix in (corpus.train_labels, corpus.test_labels):
        assert matrix.has_sorted_indices
        assert set(np.diff(matrix.indptr).tolist()) <= set(range(2, 9))


def test_labels_belong_to_their_texts(tmp_path):
    corpus = collect({"pack": write_package(tmp_path)}, least=3, largest_share=0.5)
    for text, row in zip(corpus.test, corpus.test_labels, strict=True):
        verb, _, subject = text.split(":")[0].lower().split()
        names = {corpus.names[i] for i in row.indices}
        assert f"module: pack.sub.{subject}s" in names
        assert {f"about: {verb[:-1]}", f"about: {subject}"} <= names


def test_copies_in_other_modules_do_not_come_in(tmp_path):
    write_package(tmp_path)
    once = collect({"pack": tmp_path}, least=3, largest_share=0.5)
    for path in sorted((tmp_path / "sub").glob("*.py")):
        (tmp_path / f"z_{path.name}").write_text(path.read_text())
    twice = collect({"pack": tmp_path}, least=3, largest_share=0.5)
    assert (once.train, once.test) == (twice.train, twice.test)


def test_too_little_documentation_raises_an_error(tmp_path):
    (tmp_path / "one.py").write_text('"""Only one module is here and its text is long enough to be kept."""\n')
    refused("1 texts in pack", collect, {"pack": tmp_path})


def test_the_data_as_a_table(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_module, "package_folders", lambda _: {"pack": write_package(tmp_path / "pack")})
    monkeypatch.setattr(corpus_module, "collect", partial(collect, least=3, largest_share=0.5))
    count = corpus_module.write_table(tmp_path / "data.csv", ["pack"])
    store = prepare(tmp_path / "data.csv", tmp_path / "data.sqlite")
    expected = collect({"pack": tmp_path / "pack"}, least=3, largest_share=0.5)
    assert store.count() == count == len(expected.train) + len(expected.test)
    assert sorted(store.names) == sorted(expected.names)
    assert store.labels().nnz == expected.train_labels.nnz + expected.test_labels.nnz


def test_files_are_written_once_and_again_when_versions_change(tmp_path, monkeypatch):
    source = write_package(tmp_path / "source")
    monkeypatch.setattr(corpus_module, "package_folders", lambda packages: dict.fromkeys(packages, source))
    monkeypatch.setattr(corpus_module, "collect", partial(collect, least=3, largest_share=0.5))
    versions = {"numpy": "1"}
    monkeypatch.setattr(corpus_module.importlib.metadata, "version", versions.get)
    folder = tmp_path / "data"
    assert not is_built(folder, ["numpy"])
    build(folder, ["numpy"])
    assert is_built(folder, ["numpy"])
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(first) == {
        "X.trn.txt", "X.tst.txt", "Y.trn.npz", "Y.tst.npz", "labels.txt", "corpus.json",
    }  # fmt: skip
    build(folder, ["numpy"])
    assert first["X.trn.txt"] == (folder / "X.trn.txt").read_bytes()
    versions["numpy"] = "2"
    assert not is_built(folder, ["numpy"])
    about = json.loads(first["corpus.json"])
    assert about["packages"] == {"numpy": "1"}
    assert about["train"] == len(first["X.trn.txt"].splitlines()) == smat.load_npz(folder / "Y.trn.npz").shape[0]
    assert about["labels"] == len(first["labels.txt"].splitlines()) == smat.load_npz(folder / "Y.tst.npz").shape[1]
