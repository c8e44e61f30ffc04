"""``xmc-tf serve`` with an encoder in TensorFlow and in ONNX Runtime: it answers over HTTP as the model does."""

from pathlib import Path

import numpy as np
import pytest

from tests.pipeline.corpus import texts_and_labels
from tests.server.running import running
from xmc_tf.serving.client import Client

pytest.importorskip("uvicorn")
pytestmark = pytest.mark.full


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
