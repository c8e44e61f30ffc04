"""The graph in a SavedModel: loaded where only TensorFlow is, it gives what `transform` gives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.features.texts import HARD, random_corpus
from xmc_tf.features import Tfidf
from xmc_tf.params import TfidfParams

# Knows nothing of xmc_tf. Texts cross as a file of lengths and bytes, since they hold NULs.
PROGRAM = """
import json, sys
import numpy as np, tensorflow as tf
core = {name.lower() for name in dir(tf.raw_ops)}
import tensorflow_text
folder, texts, out = sys.argv[1:]
with open(texts, "rb") as file:
    lengths = json.loads(file.readline())
    texts = [file.read(length) for length in lengths]
model = tf.saved_model.load(folder)
row_splits, ids, weights = model(tf.constant(texts))
padded_ids, padded_weights = model.padded(tf.constant(texts))
none = model(tf.zeros([0], tf.string))
np.savez(out, row_splits=row_splits, ids=ids, weights=weights, padded_ids=padded_ids,
         padded_weights=padded_weights, none_splits=none[0], none_ids=none[1])
from tensorflow.core.protobuf import saved_model_pb2
saved = saved_model_pb2.SavedModel()
saved.ParseFromString(open(folder + "/saved_model.pb", "rb").read())
graph = saved.meta_graphs[0].graph_def
nodes = [*graph.node, *(node for part in graph.library.function for node in part.node_def)]
used = {node.op for node in nodes} - {part.signature.name for part in graph.library.function}
print(json.dumps({
    "beyond core": sorted(op for op in used if op.lower() not in core),
    "xmc_tf": [name for name in sys.modules if name.startswith("xmc_tf")],
    "largest constant": max(node.attr["value"].tensor.ByteSize() for node in nodes if node.op == "Const"),
}))
"""


@pytest.fixture(scope="module")
def texts() -> list[bytes]:
    megabyte = (b"w1 w2 " + "Ö7É w3, ".encode()) * 80_000
    unbroken = b"x" * (1 << 20)
    gaps = b"w1" + b"\x00 \xff" * 400_000 + b"w2"
    assert len(megabyte) >= 1 << 20
    return [*HARD, megabyte, *(text.encode() for text in random_corpus(40, seed=8)), unbroken, gaps, b""]


@pytest.fixture(scope="module")
def tfidf(texts) -> Tfidf:
    return Tfidf.fit(texts + texts[:1] + HARD, TfidfParams(ngram_max=3))


@pytest.fixture(scope="module")
def served(tfidf, texts, tmp_path_factory):
    """Return the results of the exported model in a separate process outside of this repository."""
    folder = tmp_path_factory.mktemp("served")
    tf.saved_model.save(tfidf.graph(), str(folder / "model"))
    lengths = json.dumps([len(text) for text in texts]).encode()
    (folder / "texts").write_bytes(lengths + b"\n" + b"".join(texts))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            PROGRAM,
            str(folder / "model"),
            str(folder / "texts"),
            str(folder / "out.npz"),
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return np.load(folder / "out.npz"), json.loads(done.stdout), folder / "model"


def test_the_saved_model_gives_what_transform_gives(tfidf, texts, served):
    rows = tfidf.transform(texts)
    answer, about, _ = served
    assert about["xmc_tf"] == []
    assert np.array_equal(answer["row_splits"], rows.indptr)
    assert np.array_equal(answer["ids"], rows.indices)
    assert np.array_equal(answer["weights"], rows.data)
    assert answer["row_splits"].dtype == np.int64
    assert answer["ids"].dtype == np.int32
    assert answer["none_splits"].tolist() == [0]
    assert answer["none_ids"].tolist() == []
    # All kinds of hard text have features, or the comparison would say little.
    assert np.diff(rows.indptr).astype(bool).sum() >= len(texts) - 5


def test_padded_rows_hold_the_same(tfidf, texts, served):
    rows = tfidf.transform(texts)
    answer = served[0]
    longest = np.diff(rows.indptr).max()
    assert answer["padded_ids"].shape == answer["padded_weights"].shape == (len(texts), longest)
    for i, row in enumerate(rows):
        assert np.array_equal(answer["padded_ids"][i, : row.nnz], row.indices)
        assert np.array_equal(answer["padded_weights"][i, : row.nnz], row.data)
        assert not answer["padded_ids"][i, row.nnz :].any()
        assert not answer["padded_weights"][i, row.nnz :].any()


def test_the_graph_needs_core_ops_and_one_of_tensorflow_text(served):
    # tensorflow_model_server is built with both and nothing else.
    assert served[1]["beyond core"] == ["RegexSplitWithOffsets"]


def test_the_vocabulary_is_in_variables(served, tfidf):
    assert served[1]["largest constant"] < 1000
    variables = sum(path.stat().st_size for path in (served[2] / "variables").iterdir())
    assert variables > 16 * tfidf.nr_features


def test_the_graph_can_be_called_in_a_larger_one(tfidf):
    class Larger(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tfidf = tfidf.graph()

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def __call__(self, text):
            row_splits, _, weights = self.tfidf(text)
            return tf.RaggedTensor.from_row_splits(weights, row_splits).to_tensor() * 2

    text = ["w1 w2 w3", "", "w5"]
    doubled = Larger()(tf.constant(text)).numpy()
    np.testing.assert_array_equal(doubled.sum(axis=1) > 0, [True, False, True])
    np.testing.assert_allclose(np.sqrt((doubled**2).sum(axis=1))[[0, 2]], 2, rtol=1e-6)


def test_texts_to_features_need_no_tensorflow(tfidf, tmp_path):
    tfidf.save(tmp_path / "tfidf")
    program = (
        "import sys\nfrom xmc_tf.features import Tfidf\n"
        f"rows = Tfidf.load({str(tmp_path / 'tfidf')!r}).transform(['w1 w2'])\n"
        "Tfidf.fit(['one word', 'one word'])\n"
        "print(rows.nnz, 'tensorflow' in sys.modules)"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "False"]
