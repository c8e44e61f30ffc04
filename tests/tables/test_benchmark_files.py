"""Tables of benchmarks: the Extreme Classification Repository's files, and PECOS's."""

import gzip
import json

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.refusals import refused
from xmc_tf.data import save_matrix
from xmc_tf.tables.preparation import PrepareOptions, prepare
from xmc_tf.tables.splits import SplitOptions

ALL = PrepareOptions(splits=SplitOptions(0, 0))
SPARSE = "4 6 3\n0,2 1:0.5 5:2\n1 0:1\n 3:1 4:1\n2 2:0.25 2:0.5\n"


def _write(path, content):
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content.encode()))
    else:
        path.write_text(content)
    return path


def _labels(store, split="train"):
    names = store.names
    return [{names[at] for at in row.indices} for row in store.labels(split)]


@pytest.mark.parametrize("name", ["train.txt", "train.txt.gz"])
def test_sparse_features(tmp_path, name):
    options = PrepareOptions(splits=SplitOptions(0, 0), max_bad_rows=0.3)
    store = prepare(_write(tmp_path / name, SPARSE), tmp_path / "out.sqlite", options)
    assert _labels(store) == [{"0", "2"}, {"1"}, {"2"}]
    expected = [[0, 0.5, 0, 0, 0, 2], [1, 0, 0, 0, 0, 0], [0, 0, 0.75, 0, 0, 0]]
    assert store.features("train").toarray().tolist() == expected
    bad = store.connection.execute("SELECT line, reason FROM bad_rows").fetchall()
    assert bad == [(4, "no label")]


@pytest.mark.parametrize(
    "line", ["0 6:1", "0 -1:1", "3 1:1", "x 1:1", "0 1:nan", "0 1", "0 1:1:1", "0 a:b", "0 99999999999999999999999:1"]
)
def test_damaged_lines_of_features_are_listed(tmp_path, line):
    path = _write(tmp_path / "train.txt", f"3 6 3\n0 1:1\n{line}\n1 2:1\n")
    store = prepare(path, tmp_path / "out.sqlite", PrepareOptions(splits=SplitOptions(0, 0), max_bad_rows=0.5))
    assert store.connection.execute("SELECT line FROM bad_rows").fetchall() == [(3,)]
    assert store.features("train").shape == (2, 6)


def test_a_table_of_test_documents(tmp_path):
    train = _write(tmp_path / "train.txt", "40 6 3\n" + "".join(f"{n % 3} {n % 6}:{n + 1}\n" for n in range(40)))
    test = _write(tmp_path / "test.txt", "2 6 3\n1 0:7\n0 5:9\n")
    options = PrepareOptions(splits=SplitOptions(0.2, 0.2), test_table=test)
    store = prepare(train, tmp_path / "out.sqlite", options)
    assert store.features("test").toarray().tolist() == [[7, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 9]]
    assert _labels(store, "test") == [{"1"}, {"0"}]
    assert (store.count("train"), store.count("validation")) == (30, 10)
    other = _write(tmp_path / "other.txt", "1 7 3\n1 0:7\n")
    refused("does not fit", prepare, train, tmp_path / "new.sqlite", PrepareOptions(test_table=other))


def test_json_with_numbers_of_labels(tmp_path):
    rows = [
        {"uid": str(n), "title": f"title {n}", "content": f"content {n}", "target_ind": [n % 2, 2]} for n in range(9)
    ]
    table = _write(tmp_path / "trn.json.gz", "".join(json.dumps(row) + "\n" for row in rows))
    names = _write(
        tmp_path / "lbl.json.gz", "".join(json.dumps({"title": one}) + "\n" for one in ("even", "odd", "all"))
    )
    store = prepare(table, tmp_path / "out.sqlite", PrepareOptions(splits=SplitOptions(0, 0), label_names=names))
    assert _labels(store) == [{"all", "odd" if n % 2 else "even"} for n in range(9)]
    assert store.texts("train")[3] == "title 3 content 3"
    short = _write(tmp_path / "short.txt", "even\nodd\n")
    refused("a label has no name", prepare, table, tmp_path / "new.sqlite", PrepareOptions(label_names=short))


def test_equal_label_names_stay_apart(tmp_path):
    table = _write(tmp_path / "data.tsv", "".join(f"{n % 3}\ttext {n}\n" for n in range(9)))
    names = _write(tmp_path / "names.txt", "one\n\none\n")
    store = prepare(table, tmp_path / "out.sqlite", PrepareOptions(splits=SplitOptions(0, 0), label_names=names))
    assert sorted(store.names) == ["(1)", "one", "one (2)"]


def test_a_folder_of_texts_and_matrices(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    Y = np.eye(3, dtype=np.float32)[[0, 1, 2, 0]]
    for part, rows in (("trn", [0, 1, 2]), ("tst", [3])):
        (folder / f"X.{part}.txt").write_text("".join(f"text {row}\n" for row in rows))
        save_matrix(folder / f"Y.{part}.npz", csr_matrix(Y[rows]))
    stored_zero = csr_matrix((np.array([1, 0], np.float32), [0, 2], [0, 2]), shape=(1, 3))
    save_matrix(folder / "Y.tst.npz", stored_zero)
    (folder / "labels.txt").write_text("a\nb\nc\n")
    store = prepare(folder, tmp_path / "out.sqlite", ALL)
    assert list(store.texts("train")) == ["text 0", "text 1", "text 2"]
    assert (list(store.texts("test")), _labels(store, "test")) == (["text 3"], [{"a"}])
    (folder / "X.tst.txt").write_text("one\ntwo\n")
    refused("does not fit", prepare, folder, tmp_path / "new.sqlite", ALL)


def test_a_damaged_packed_file_is_named(tmp_path):
    whole = gzip.compress(SPARSE.encode() * 1000)
    path = tmp_path / "train.txt.gz"
    path.write_bytes(whole[: len(whole) // 2])
    refused(r"train.txt.gz is damaged", prepare, path, tmp_path / "out.sqlite", ALL)
