"""Models and exports made by version 0.2.0 give the same predictions.

``models_of_0_2.tar.xz`` has what 0.2.0 wrote with TensorFlow 2.18, Keras 2 and transformers 4.53: linear models, one of
them with several trees, and an XR-Transformer, all with names of labels; exports; a sequence model; inputs and answers.
"""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import load_npz

from xmc_tf.models.loading import load

ARCHIVE = Path(__file__).with_name("models_of_0_2.tar.xz")
CLOSE = 1e-5


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """Return the folder of what 0.2.0 wrote."""
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.3 and older have none
        archive.extractall(folder)
    return folder


def asked(old):
    return json.loads((old / "asked.json").read_text())


@pytest.mark.parametrize("name", ["linear", "balanced", "transformer"])
def test_models_predict_the_same(name, old):
    if name == "transformer":
        pytest.importorskip("tensorflow")
    expected = load_npz(old / f"{name}.npz").toarray()
    model = load(old / name)
    found = model.predict(asked(old), only_topk=5).toarray()
    np.testing.assert_allclose(found, expected, atol=CLOSE)
    assert found.max() > 0.9
    assert model.names[:2] == ["library", "kitchen"]


def test_an_encoder_gives_the_same_embeddings(old):
    pytest.importorskip("tensorflow")
    found = load(old / "transformer").encode(asked(old))
    np.testing.assert_allclose(found, np.load(old / "embeddings.npy"), atol=CLOSE)


@pytest.mark.parametrize("name", ["linear", "transformer"])
def test_exports_answer_the_same(name, old):
    pytest.importorskip("tensorflow")
    from xmc_tf.serving.local import LocalModel

    expected = load_npz(old / f"{name}.npz").toarray()
    found = LocalModel(old / f"export-{name}/1").predict(asked(old)).toarray()
    best = expected > 0
    np.testing.assert_allclose(found[best], expected[best], atol=CLOSE)
    assert best.sum() == 5 * len(expected)


def test_a_sequence_model_predicts_the_same(old, tmp_path):
    pytest.importorskip("tensorflow")
    from xmc_tf.sequences import predict

    model, histories = (str(old / name) for name in ("sequences", "histories.jsonl"))
    predict.main(["-m", model, "-i", histories, "-o", str(tmp_path / "next.jsonl")])
    expected, found = (
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in (old / "sequences.jsonl", tmp_path / "next.jsonl")
    )
    assert [one["items"] for one in found] == [one["items"] for one in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one["scores"], other["scores"], atol=2 * CLOSE)  # they are rounded
