"""Loading an incomplete folder raises an error that names the file."""

import json
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest

from tests.features.texts import random_corpus
from xmc_tf.common.errors import InputError
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
    header["files"][name] = {"bytes": len(content), "crc32": zlib.crc32(content)}
    (folder / "params.json").write_text(json.dumps(header))


def edit_header(folder: Path, **changes: object) -> None:
    header = json.loads((folder / "params.json").read_text())
    (folder / "params.json").write_text(json.dumps({**header, **changes}))


def test_what_is_loaded_is_what_was_saved(fitted, folder):
    loaded = Tfidf.load(folder)
    texts = random_corpus(100, seed=10)
    assert loaded.params == fitted.params
    assert loaded.nr_documents == 200
    assert loaded.nr_features == fitted.nr_features == 400
    assert loaded.names == fitted.names
    assert (loaded.transform(texts) != fitted.transform(texts)).nnz == 0
    loaded.save(folder.with_name("again"))
    for name in FILES:
        assert (folder.with_name("again") / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("name", FILES)
def test_missing(folder, name):
    (folder / name).unlink()
    with pytest.raises(InputError, match=rf"{name} (does not exist|is missing)"):
        Tfidf.load(folder)


def test_no_folder(tmp_path):
    with pytest.raises(InputError, match=r"nowhere/params.json does not exist\n.*\n.*no folder of that name"):
        Tfidf.load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_cut_short(folder, name, share):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(len(content) * share)])
    with pytest.raises(
        InputError, match="params.json is not JSON" if name == FILES[0] else f"{name} is damaged: its size"
    ):
        Tfidf.load(folder)


@pytest.mark.parametrize("name", FILES[1:])
def test_of_another_model(folder, name, tmp_path):
    # As many features, other ones: no shape tells them apart.
    other = Tfidf.fit(random_corpus(200, seed=11), TfidfParams.plain(max_features=400))
    other.save(tmp_path / "other")
    shutil.copy(tmp_path / "other" / name, folder / name)
    with pytest.raises(InputError, match=rf"{name} is damaged"):
        Tfidf.load(folder)


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
    with pytest.raises(InputError, match=f"{name} has unexpected content") as caught:
        Tfidf.load(folder)
    assert said in str(caught.value)


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
    ],
)
def test_a_header_that_cannot_be(folder, changes, said):
    edit_header(folder, **changes)
    with pytest.raises(InputError, match=r"params\.json") as caught:
        Tfidf.load(folder)
    assert said in str(caught.value)


@pytest.mark.parametrize("content", [b"[]", b"null", b"\xff", b"{"])
def test_a_header_that_is_none(folder, content):
    (folder / "params.json").write_bytes(content)
    with pytest.raises(InputError, match=r"params\.json"):
        Tfidf.load(folder)
