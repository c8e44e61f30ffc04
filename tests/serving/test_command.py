"""``python -m xmc_tf.export``: from a model's folder to one that a server takes, with warm-up and precision."""

import json
import re
import shutil
import sys

import pytest
import tensorflow as tf
from scipy.sparse import save_npz
from tensorflow_serving.apis import prediction_log_pb2

from tests.refusals import refused
from tests.serving.cases import assert_same, documents
from xmc_tf import export
from xmc_tf.serving.local import LocalModel
from xmc_tf.serving.warmup import WARMUP, write_warmup
from xmc_tf.store.models import ABOUT


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return texts and their labels on disk."""
    folder = tmp_path_factory.mktemp("data")
    texts, Y = documents(150, seed=31)
    (folder / "X.txt").write_text("".join(f"{text}\n" for text in texts))
    save_npz(folder / "Y.npz", Y)
    return texts, ["-t", str(folder / "X.txt")], ["-y", str(folder / "Y.npz")]


def test_a_model_becomes_a_version_with_warm_up_requests(model, files, tmp_path, capsys):
    texts, of_texts, _ = files
    output = tmp_path / "served" / "3"
    export.main(["-m", str(model.folder), "-o", str(output), "-k", "4", "-b", "6", *of_texts, "--warmup", "10"])
    out = LocalModel(output).ask(texts)
    assert_same(out["labels"], out["scores"], model.predict(texts, only_topk=4, beam_size=6, threads=1))
    assert "form" in capsys.readouterr().out

    # The requests are read and run as a server does it.
    signatures = tf.saved_model.load(str(output)).signatures
    asked = []
    for record in tf.data.TFRecordDataset(str(output / WARMUP)):
        request = prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log.request
        inputs = {name: tf.constant(tf.make_ndarray(tensor)) for name, tensor in request.inputs.items()}
        answer = signatures[request.model_spec.signature_name](**inputs)
        assert answer["labels"].shape[0] == inputs["text"].shape[0]
        asked.append((request.model_spec.signature_name, inputs["text"].numpy().tolist()))
    assert len(asked) == 13
    assert {name for name, _ in asked} == {"serving_default", "top_k", "paths"}
    single = [batch[0].decode() for name, batch in asked[:10] if name == "serving_default" and len(batch) == 1]
    assert len(set(single)) == 10
    assert set(single) <= set(texts)
    assert LocalModel(output).about["examples"] == [text for text in single if text.strip()][:3]


def test_smaller_weights_say_what_they_cost(model, files, tmp_path, capsys):
    _, of_texts, of_labels = files
    sizes = {}
    for kind in ("fp32", "int8"):
        output = tmp_path / kind / "1"
        export.main(
            ["-m", str(model.folder), "-o", str(output), "--weights", kind, *of_texts, *of_labels, "--warmup", "0"]
        )
        table = capsys.readouterr().out
        sizes[kind] = json.loads((output / ABOUT).read_text())["bytes"]
        assert not (output / WARMUP).exists()
        rows = {line.split()[0]: line.split()[1:] for line in table.splitlines() if line.strip()}
        assert len(rows["model"]) == len(rows["exported"]) == 3
        losses = [float(loss) for loss in rows["loss"]]
        same = float(re.search(r"same best label for ([\d.]+) %", table).group(1))
        if kind == "fp32":
            assert losses == [0.0, 0.0, 0.0]
            assert same == 100.0
        else:
            assert max(losses) < 1.0
            assert 95 < same <= 100
    assert sizes["int8"] < 0.95 * sizes["fp32"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "served/new"], "the last part must be the version, a number"),
        (["-o", "1", "-k", "0"], r"-k \(--only-topk\) is out of range"),
        (["-o", "1", "-y", "Y.npz"], "-y can only be used with texts"),
        (["-o", "1", "-t", "../X.txt", "--warmup", "5000"], "5,000 warm-up requests cannot be written"),
    ],
)
def test_what_cannot_be_exported_raises_an_error(model, arguments, message, tmp_path, monkeypatch):
    (tmp_path / "X.txt").write_text("word1 word2\n")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    refused(message, export.main, ["-m", str(model.folder), *arguments])
    assert not list(tmp_path.glob("here/*"))


def test_warm_up_requests_are_written_without_tensorflow_serving(model, exported, tmp_path, monkeypatch):
    """As in the light installation; the same bytes as TensorFlow Serving's own classes would encode."""
    for module in [name for name in sys.modules if name.startswith("tensorflow_serving")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
    path = write_warmup(tmp_path, ["å" * 200, "b", b"\xff"], 3)
    logs = [prediction_log_pb2.PredictionLog.FromString(one.numpy()) for one in tf.data.TFRecordDataset(str(path))]
    assert len(logs) == 6
    batch = prediction_log_pb2.PredictionLog()
    request = batch.predict_log.request
    request.model_spec.signature_name = "serving_default"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(["å" * 200, "b", b"\xff"], tf.string, [3]))
    assert logs[3] == batch
    assert not [name for name, _ in logs[3].ListFields() if name.name != "predict_log"]
    assert logs[4].predict_log.request.inputs["k"] == tf.make_tensor_proto([1], tf.int32)


def test_an_export_that_cannot_warm_up_leaves_the_older_one(model, exported, files, tmp_path, monkeypatch):
    """Warm-up requests are part of the export: a failure, here a full disk, leaves what was there."""
    _, of_texts, _ = files
    output = shutil.copytree(exported, tmp_path / "1")
    before = sorted((path.name, path.stat().st_mtime_ns) for path in output.rglob("*"))

    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr("xmc_tf.serving.warmup.atomic_file", full)
    with pytest.raises(OSError, match="No space"):
        export.main(["-m", str(model.folder), "-o", str(output), "-k", "4", *of_texts])
    assert sorted((path.name, path.stat().st_mtime_ns) for path in output.rglob("*")) == before
