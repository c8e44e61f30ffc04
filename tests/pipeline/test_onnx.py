"""Whole models in ONNX Runtime: the same answers as TensorFlow's, where TensorFlow is not installed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.pipeline.corpus import ROOT, texts_and_labels
from tests.server.running import running
from xmc_tf import export, predict
from xmc_tf.common.errors import InputError
from xmc_tf.encoder.onnx.encoder import GRAPH
from xmc_tf.export import export_measured
from xmc_tf.models.folder import CARD, MARK
from xmc_tf.models.loading import load
from xmc_tf.serving.client import Client

pytestmark = pytest.mark.full

# Run in a process of its own: a finder that answers as if the packages were not installed.
WITHOUT = """
import importlib.util, json, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "tensorflow_text", "keras", "transformers", "h5py", "horovod"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "tensorflow" else found(name, package)
"""

# An export that is killed while it measures.
KILLED = """
import os, signal, sys
from xmc_tf import export

load = export.load
export.load = lambda path, **of: os.kill(os.getpid(), signal.SIGKILL) if "fp32" in str(path) else load(path, **of)
export.main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def exported(tuned, tmp_path_factory):
    """Return the folder of a fine-tuned model, exported for ONNX Runtime."""
    folder = tmp_path_factory.mktemp("onnx") / "light"
    tuned.export_onnx(folder)
    return folder


def many_texts(corpus):
    """Return short and long texts of the corpus's words."""
    texts = [text.decode() for text in texts_and_labels(corpus, "tst")[0].lines()]
    return [*texts, *(" ".join(texts[begin : begin + 6]) for begin in range(0, len(texts), 6)), ""]


@pytest.mark.parametrize("method", ["transformer-only", "concat-only", "average"])
def test_all_scores_are_those_of_tensorflow(corpus, tuned, exported, method):
    texts = many_texts(corpus)
    light, plain = load(exported), load(tuned.folder, runtime="onnx")
    assert (tuned.runtime, light.runtime, plain.runtime) == ("tensorflow", "onnx", "onnx")
    expected = tuned.predict(texts, ensemble_method=method).toarray()
    for model in (light, plain):
        np.testing.assert_allclose(model.predict(texts, ensemble_method=method).toarray(), expected, atol=1e-4)
    np.testing.assert_allclose(light.encode(texts), tuned.encode(texts), atol=1e-5)


def test_windows_of_long_texts_are_those_of_tensorflow(corpus, frozen):
    texts, model = many_texts(corpus), load(frozen.folder, runtime="onnx")
    metadata = frozen.metadata.replace(long_texts="max", max_windows=4)
    model.metadata, theirs = metadata, load(frozen.folder)
    theirs.metadata = metadata
    np.testing.assert_allclose(model.predict(texts).toarray(), theirs.predict(texts).toarray(), atol=1e-4)
    assert np.abs(model.encode(texts) - frozen.encode(texts)).max() > 1e-3  # windows change long texts


def test_a_process_without_tensorflow_answers_and_explains(corpus, tuned, exported, tmp_path):
    text = many_texts(corpus)[0]
    code = WITHOUT + (
        "import xmc_tf\n"
        "from xmc_tf.server.versions import ServedModel\n"
        "answers = []\n"
        "for folder in sys.argv[2:]:\n"
        "    model = xmc_tf.load(folder)\n"
        "    served = ServedModel(folder).current.predict([sys.argv[1]], 3)[0]\n"
        "    explained = model.explain(sys.argv[1], 3).labels[0].score\n"
        "    answers.append([model.best([sys.argv[1]], k=3), served.labels.tolist(), explained])\n"
        "assert not {name for name in sys.modules if name.split('.')[0] in ('tensorflow', 'transformers', 'h5py')}\n"
        "print(json.dumps(answers))\n"
    )
    command = [sys.executable, "-c", code, text, str(exported), str(tuned.folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    expected, first = tuned.best([text], k=3)[0], tuned.predict([text]).indices[0]
    for best, served, explained in json.loads(done.stdout):
        assert [name for name, _ in best[0]] == [name for name, _ in expected]
        assert [score for _, score in best[0]] == pytest.approx([score for _, score in expected], abs=1e-4)
        assert (served[0], explained) == (first, pytest.approx(expected[0][1], abs=1e-4))


def test_an_export_measures_what_eight_bits_cost(corpus, frozen, tmp_path, capsys):
    files = ["-t", str(corpus / "X.tst.txt"), "-y", str(corpus / "Y.tst.npz")]
    light = tmp_path / "new" / "light"
    command = ["-m", str(frozen.folder), "-o", str(light), "--format", "onnx", *files]
    killed = subprocess.run([sys.executable, "-c", KILLED, *command], cwd=ROOT, timeout=240, check=False)
    assert killed.returncode == -9
    assert [path.name for path in light.parent.glob(".light.xmc_tf-*")]
    export.main(command)
    assert [path.name for path in light.parent.iterdir()] == ["light"]
    table = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[1:] for line in table.splitlines() if line.strip()}
    assert {"float32", "8", "loss"} <= rows.keys()
    chosen = "8 bits" if max(map(float, rows["loss"])) < 0.2 else "float32"
    assert f"the encoder's matrices have {chosen}" in table
    card = (light / CARD).read_text()
    assert MARK in card
    assert f"matrices have {chosen}" in card
    assert f"| float32 | {' | '.join(rows['float32'])} |" in card
    assert f"| 8 bits | {' | '.join(rows['8'][1:])} |" in card
    predict.main(["-m", str(light), "-q", "library", "-k", "1", "--runtime", "onnx"])
    assert "library" in capsys.readouterr().out
    assert not (light / "training").exists()
    (light / CARD).write_text("a card of others")
    export.main(["-m", str(frozen.folder), "-o", str(light), "--format", "onnx", "--weights", "int8", *files])
    assert (light / CARD).read_text() == "a card of others"
    assert b"words.scales" in (light / "encoder" / GRAPH).read_bytes()


def test_eight_bits_are_chosen_only_where_they_cost_little(corpus, frozen, tmp_path, monkeypatch):
    texts, Y = texts_and_labels(corpus, "tst")
    monkeypatch.setattr("xmc_tf.export.LARGEST_LOSS", -100.0)
    chosen, _ = export_measured(frozen, tmp_path / "light", "auto", texts, Y)
    assert chosen == "fp32"
    assert b"words.scales" not in (tmp_path / "light" / "encoder" / GRAPH).read_bytes()


def test_exports_that_cannot_be_are_refused(corpus, tuned, exported, tmp_path):
    def refused(message, *flags, model=tuned.folder):
        with pytest.raises(InputError, match=message):
            export.main(["-m", str(model), "-o", str(tmp_path / "out"), "--format", "onnx", *flags])

    refused("-b cannot be used with --format onnx", "-b", "5")
    refused("--weights cannot be used with --format onnx", "--weights", "fp16")
    refused("-t and -y can only be used together", "-t", str(corpus / "X.tst.txt"))
    refused("was already exported|cannot be exported", model=exported)
    with pytest.raises(InputError, match="was exported for ONNX Runtime"):
        load(exported, runtime="tensorflow").encode(["a text"])
    with pytest.raises(InputError, match="was exported for ONNX Runtime"):
        load(exported).export_parts()


pytest.importorskip("uvicorn")


@pytest.mark.parametrize("runtime", ["tensorflow", "onnx"])
def test_answers_over_http_are_the_models(runtime, tuned, corpus, tmp_path):
    texts = [text.decode() for text in texts_and_labels(corpus, "tst")[0].lines()][:20]
    with running(tuned.folder, "-k", "5", "--runtime", runtime, log=tmp_path / "log") as server:
        maps = Path(f"/proc/{server.process.pid}/maps").read_text()
        answer = Client(server.url).best(texts)
    assert ("libtensorflow" in maps) == (runtime == "tensorflow")
    expected = tuned.predict(texts, only_topk=5)
    for row, text in enumerate(texts):
        own = expected[row]
        order = np.argsort(-own.data, kind="stable")
        assert len(own.data) == 5, text
        np.testing.assert_allclose(answer.scores[row], own.data[order], atol=1e-4)
        found = dict(zip(own.indices.tolist(), own.data.tolist(), strict=True))
        np.testing.assert_allclose([found[label] for label in answer.labels[row]], answer.scores[row], atol=1e-4)
