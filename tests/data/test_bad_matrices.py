"""Each bad matrix is answered with its file, what was expected, what was received, and what to do."""

import io
import zipfile
import zlib

import numpy as np
import pytest
import scipy.sparse as sp

from tests.refusals import refused
from xmc_tf.data import load_matrix
from xmc_tf.data import npz as npz_module
from xmc_tf.data.npz import read_npz


def message_of(path, **options) -> str:
    return str(refused([f"features: {path}"], load_matrix, path, name="features", **options))


def raw(path, form="csr", shape=(2, 3), data=(1.0, 2.0), indices=(0, 2), indptr=(0, 1, 2), **more):
    """Return an .npz of arrays that need not fit together."""
    arrays = {
        "format": np.array(form.encode()),
        "shape": shape,
        "data": data,
        "indices": indices,
        "indptr": indptr,
        **more,
    }
    np.savez(path, **{key: np.array(value) for key, value in arrays.items() if value is not None})
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "X.npz"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"indices": (0, 3)}, ["expected: indices from 0 to 2", "received: 3 in row 1"]),
        ({"indices": (-1, 2)}, ["received: -1 in row 0"]),
        (
            {"indices": (0, 2), "form": "csc", "indptr": (0, 1, 2, 2)},
            ["indices from 0 to 1", "2 in column 1"],
        ),
        ({"indptr": (0, 2)}, ["3 pointers (indptr)"]),
        ({"indptr": (0, 1, 3)}, ["from 0 to 2", "from 0 to 3"]),
        ({"indptr": (1, 1, 2)}, ["from 1 to 2"]),
        ({"indptr": (0, 3, 2)}, ["never decrease", "after number 1"]),
        ({"indices": (0.0, 2.0)}, ["indices are not whole numbers", "float64"]),
        ({"indices": (0,)}, ["as many indices as values", "1 indices and 2 values"]),
        ({"data": ("a", "b")}, ["holds no numbers", "<U1"]),
        ({"data": (1j, 2j)}, ["holds no numbers", "complex128"]),
        ({"data": ((1.0, 2.0),)}, ["data is not a list of values"]),
        ({"data": (1.0, float("nan"))}, ["row 1, column 2 (counted from 0) is nan", "finite"]),
        ({"data": (-float("inf"), 1.0)}, ["row 0, column 0 (counted from 0) is -inf"]),
        ({"data": (1e39, 1.0)}, ["row 0, column 0", "is inf", "fit into 32 bits"]),
        (
            {"form": "csc", "indices": (1, 1), "indptr": (0, 0, 1, 2), "data": (0, np.nan)},
            ["row 1, column 2"],
        ),
        ({"shape": (2, 3, 4)}, ["shape of two whole numbers"]),
        ({"shape": (-2, 3)}, ["shape of two whole numbers"]),
        ({"shape": None}, ["lacks shape"]),
        ({"indptr": None}, ["lacks indptr"]),
        ({"form": "bsr"}, ["format bsr", "tocsr()"]),
        ({"form": "coo"}, ["lacks row, col"]),
        ({"form": "coo", "row": (0, 2), "col": (0, 1)}, ["a row is out of range", "rows from 0 to 1"]),
        ({"form": "coo", "row": (0, 1), "col": (0, -1)}, ["a column is out of range"]),
        ({"form": "coo", "row": (0, 1), "col": (0,)}, ["column of each of the 2 values"]),
        ({"form": "coo", "row": (0, 1), "col": (0, 1), "shape": (2**40, 3)}, ["too many rows"]),
        ({"format": None}, ["no sparse matrix", "an archive of shape, data"]),
    ],
)
@pytest.mark.parametrize("mmap", [True, False])
def test_arrays_that_do_not_fit_together(path, changes, words, mmap):
    message = message_of(raw(path, **changes), mmap=mmap)
    for word in words:
        assert word in message


def test_dense_nan_names_row_and_column(tmp_path):
    full = np.ones((5000, 300), np.float32)
    full[4321, 17] = np.nan
    np.save(tmp_path / "X.npy", full)
    assert "row 4,321, column 17 (counted from 0) is nan" in message_of(tmp_path / "X.npy")
    np.save(tmp_path / "X.npy", np.ones(5, np.float32))
    assert "two dimensions" in message_of(tmp_path / "X.npy")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_pickles_are_never_loaded(path, save):
    class Bomb:
        def __reduce__(self):
            return pytest.fail, ("the pickle was loaded",)

    save(path, data=np.array([Bomb()], dtype=object), format=b"csr")
    message = message_of(path)
    assert "member data.npy holds pickled Python objects, which are never loaded" in message
    np.save(path.with_suffix(".npy"), np.array([Bomb()], dtype=object))
    assert "pickled Python objects" in message_of(path.with_suffix(".npy"))


def test_truncated_array(tmp_path):
    np.save(tmp_path / "X.npy", np.ones((100, 3), np.float32))
    content = (tmp_path / "X.npy").read_bytes()
    (tmp_path / "X.npy").write_bytes(content[:-5])
    message = message_of(tmp_path / "X.npy")
    assert "its header describes 1,200 bytes" in message
    assert "1,195 exist" in message
    (tmp_path / "X.npy").write_bytes(content[:20])
    assert "damaged, truncated" in message_of(tmp_path / "X.npy")


def test_flipped_bits_in_a_compressed_member(path):
    sp.save_npz(path, sp.random(300, 300, 0.1, format="csr", random_state=0))
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 8] = bytes(byte ^ 0xFF for byte in content[middle : middle + 8])
    path.write_bytes(content)
    assert "damaged" in message_of(path)


@pytest.mark.parametrize("content", [b"", b"some text\n", b"\x1f\x8b\x08"])
def test_no_matrix_at_all(path, content):
    path.write_bytes(content)
    assert "is not a matrix" in message_of(path)


def test_what_is_no_archive_of_ours(tmp_path, path):
    assert "does not exist" in message_of(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("data.npy", b"abc")
    assert "has an unsupported compression" in message_of(path)
    assert "is a folder" in message_of(tmp_path)


def test_header_that_promises_more_than_there_is(path):
    """Nothing is allocated for a head that speaks of terabytes."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (2**40,)})
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("data.npy", head.getvalue() + bytes(100))
        message = message_of(path)
        assert "its header describes 4,398,046,511,104 bytes" in message
        assert "100 exist" in message


def test_header_that_is_a_program(path):
    text = b"{'descr': __import__('os').getpid(), 'fortran_order': False, 'shape': (1,)}\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    assert "member data.npy is damaged" in message_of(path)


def test_zip_bomb(path):
    """Four members that each say to hold a gigabyte: refused by what the directory says, before unfolding."""
    block = zlib.compressobj(9, wbits=-15)
    zeros = bytes(1 << 20)
    squeezed = b"".join(block.compress(zeros) for _ in range(4)) + block.flush()
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("data", "indices", "indptr", "shape"):
            archive.writestr(f"{name}.npy", squeezed)
        for info in archive.filelist:
            info.compress_type, info.file_size = zipfile.ZIP_DEFLATED, (1 << 32) - 2
    message = message_of(path)
    assert "expands to 17,179,869,176 bytes" in message
    assert "zip bomb" in message


@pytest.mark.parametrize(
    ("form", "shape", "words"),
    [
        ("csr", (2, 2**31), "2,147,483,648"),
        ("csc", (2**40, 2), "too many rows for its 2 entries"),
        ("coo", (2, 2**28), "too many columns for its 2 entries"),
        ("coo", (2**28, 2), "too many rows for its 2 entries"),
    ],
)
def test_shapes_that_claim_far_more_than_the_file_holds(path, form, shape, words):
    """Empty columns take no room in a file and eight bytes each in memory, many times over in training."""
    raw(path, form, shape, indices=(0, 1), row=(0, 1), col=(0, 1))
    assert words in message_of(path)


def test_hashed_features_may_leave_most_columns_empty(path):
    raw(path, shape=(2, 2**27), indices=(0, 2**27 - 1))
    assert load_matrix(path).shape == (2, 2**27)


def test_many_equal_values_are_no_bomb(path, monkeypatch):
    """The ones of a label matrix shrink a thousandfold, its indices do not: the whole counts."""
    monkeypatch.setattr(npz_module, "BOMB_BYTES", 1000)
    monkeypatch.setattr(npz_module, "BOMB_RATIO", 100)
    rng = np.random.default_rng(0)
    indices = np.sort(rng.choice(2**26, 200_000, replace=False))
    matrix = sp.csr_matrix((np.ones(200_000, np.float32), indices, [0, 200_000]), shape=(1, 2**26))
    sp.save_npz(path, matrix, compressed=True)
    assert load_matrix(path).nnz == 200_000
    np.savez_compressed(path, data=np.ones(1_000_000, np.float32))
    refused("zip bomb", read_npz, path)
