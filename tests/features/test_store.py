"""Loading an incomplete folder raises an error that names the file."""

import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from tests.features.texts import random_corpus
from tests.refusals import refused
from xmc_tf.features import Tfidf
from xmc_tf.params import TfidfParams

FILES = ["params.json", "keys.npy", "columns.npy", "idf.npy", "vocabulary.txt"]


@pytest.fixture(scope="module")
def fitted() -> Tfidf:
    return Tfidf.fit(random_corpus(200, seed=9), TfidfParams.plain(ngram_max=2, max_features=400, norm="l1"))


@pytest.fixture
def folder(fitted, tmp_path) -> Path:
    fitted.save(tmp_path / "tfidf")
    return tmp_path / "tfidf"


def rewrite(folder: Path, name: str, content: bytes) -> None:
    """Change a file and its checksum, as an informed attacker would."""
    (folder / name).write_bytes(content)
    header = json.loads((folder / "params.json").read_text())
    header["files"][name] = {"bytes": len(content), "crc32": f"{zlib.crc32(content):08x}"}
    (folder / "params.json").write_text(json.dumps(header))


@pytest.mark.parametrize("name", FILES)
def test_missing_cut_short_or_of_another_model(folder, name, tmp_path):
    """The other model has as many features, so that no shape shows the difference."""
    Tfidf.fit(random_corpus(200, seed=11), TfidfParams.plain(max_features=400)).save(tmp_path / "other")
    content, other = ((place / name).read_bytes() for place in (folder, tmp_path / "other"))
    damaged = "params.json is not JSON" if name == FILES[0] else f"{name} is damaged: its size"
    changes = [(None, f"{name} (does not exist|is missing)"), (b"", damaged), (content[: len(content) // 2], damaged)]
    changes += [] if name == FILES[0] else [(other, f"{name} is damaged")]
    for changed, said in changes:
        (folder / name).unlink(missing_ok=True)
        if changed is not None:
            (folder / name).write_bytes(changed)
        refused(said, Tfidf.load, folder)


def test_no_folder(tmp_path):
    refused(r"nowhere/params.json does not exist\n.*\n.*no folder of that name", Tfidf.load, tmp_path / "nowhere")


def npy(array: np.ndarray, allow_pickle: bool = False) -> bytes:
    import io

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("keys.npy", npy(np.arange(400)[::-1].copy()), "ascending"),
        ("keys.npy", npy(np.zeros(400, np.int64)), "none twice"),
        ("keys.npy", npy(np.arange(399)), "400 numbers of type int64"),
        ("keys.npy", npy(np.array([object()] * 400), allow_pickle=True), "400 numbers of type int64"),
        ("keys.npy", npy(np.arange(400))[:-8], "400 numbers of type int64"),
        ("columns.npy", npy(np.zeros(400, np.int32)), "numbers 0 to 399 once"),
        ("columns.npy", npy(np.arange(1, 401, dtype=np.int32)), "numbers 0 to 399 once"),
        ("idf.npy", npy(np.full(400, np.nan, np.float32)), "finite"),
        ("idf.npy", npy(np.zeros(400, np.float32)), "above 0"),
        ("vocabulary.txt", b"too\nfew\n", "400 lines"),
    ],
)
def test_at_odds(folder, name, content, said):
    rewrite(folder, name, content)
    caught = refused(f"{name} has unexpected content", Tfidf.load, folder)
    assert said in str(caught)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "another"}, "xmc_tf.features.Tfidf"),
        ({"version": 3}, "version"),
        ({"files": {}}, "keys.npy"),
        ({"nr_documents": "many"}, "nr_documents"),
        ({"nr_features": 0}, "nr_features"),
        ({"params": {"min_df": 0}}, "min_df"),
        ({"params": {"mindf": 1}}, "mindf"),
        *((content, "") for content in (b"[]", b"null", b"\xff", b"{")),
    ],
)
def test_a_header_that_cannot_be(folder, changes, said):
    path = folder / "params.json"
    if isinstance(changes, dict):
        changes = json.dumps({**json.loads(path.read_text()), **changes}).encode()
    path.write_bytes(changes)
    caught = refused(r"params\.json", Tfidf.load, folder)
    assert said in str(caught)
