"""Matrices from disk: every form comes out the same, and what can be mapped is mapped."""

import io
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused, tried
from xmc_tf.data import load_matrix, save_matrix


@st.composite
def dense_matrices(draw):
    rows, columns = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    full = rng.integers(-9, 10, (rows, columns)).astype(np.float32)
    return np.where(rng.random((rows, columns)) < draw(st.floats(0, 1)), full, 0).astype(np.float32)


def base_is_map(array: np.ndarray) -> bool:
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


@given(
    full=dense_matrices(),
    form=st.sampled_from(["csr", "csc", "coo"]),
    compressed=st.booleans(),
    index=st.sampled_from([np.int32, np.int64, np.uint32, np.uint16, np.dtype(">i8")]),
    value=st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.dtype(">f4")]),
    array=st.booleans(),
    mmap=st.booleans(),
)
def test_every_form_that_scipy_writes(tmp_path_factory, full, form, compressed, index, value, array, mmap):
    path = tmp_path_factory.mktemp("matrix") / "M.npz"
    matrix = (sp.coo_array if array else sp.coo_matrix)(full.astype(np.float32)).asformat(form)
    matrix.data = matrix.data.astype(value)
    sp.save_npz(path, matrix, compressed=compressed)
    recast(path, compressed, index)
    loaded = load_matrix(path, mmap=mmap)
    assert loaded.format == ("csr" if form == "coo" else form)
    assert loaded.dtype == np.float32
    assert loaded.indices.dtype == loaded.indptr.dtype == np.int32
    assert loaded.has_canonical_format
    np.testing.assert_array_equal(loaded.toarray(), full)
    loaded.check_format(full_check=True)


def recast(path, compressed, index):
    """Convert the index arrays of an .npz to a type that scipy itself does not write."""
    arrays = dict(np.load(path))
    for key in ("indices", "indptr", "row", "col"):
        if key in arrays:
            arrays[key] = arrays[key].astype(index)
    (np.savez_compressed if compressed else np.savez)(path, **arrays)


@given(full=dense_matrices(), form=st.sampled_from(["csr", "csc", "coo", "lil"]))
def test_what_we_save_we_and_scipy_load(tmp_path_factory, full, form):
    path = tmp_path_factory.mktemp("matrix") / "M.npz"
    save_matrix(path, sp.coo_matrix(full.astype(np.float64)).asformat(form))
    loaded, theirs = load_matrix(path), sp.load_npz(path)
    np.testing.assert_array_equal(loaded.toarray(), full)
    np.testing.assert_array_equal(theirs.toarray(), full)
    assert theirs.format == loaded.format == ("csc" if form == "csc" else "csr")
    assert theirs.data.dtype == np.float32
    assert theirs.indices.dtype == np.int32


@given(full=dense_matrices(), fortran=st.booleans(), value=st.sampled_from([np.float32, np.float64, np.int8]))
def test_dense(tmp_path_factory, full, fortran, value):
    path = tmp_path_factory.mktemp("matrix") / "M.npy"
    np.save(path, np.asarray(full, dtype=value, order="F" if fortran else "C"))
    loaded = load_matrix(path)
    np.testing.assert_array_equal(loaded, full)
    assert loaded.dtype == np.float32
    assert loaded.flags.c_contiguous
    save_matrix(path, full)
    np.testing.assert_array_equal(load_matrix(path), full)


def test_stored_members_are_mapped_and_not_copied(tmp_path):
    matrix = sp.random(50, 40, 0.2, format="csr", dtype=np.float32, random_state=0)
    save_matrix(tmp_path / "M.npz", matrix)
    loaded = load_matrix(tmp_path / "M.npz")
    for array in (loaded.data, loaded.indices, loaded.indptr):
        assert base_is_map(array)
        assert not array.flags.writeable
        assert not array.flags.owndata
        assert array.ctypes.data % 64 == 0
        assert type(array) is np.ndarray
    with pytest.raises(ValueError, match="read-only"):
        loaded.data[0] = 1
    # The mapping shows what the file holds, and so does each further one: nothing was copied.
    with zipfile.ZipFile(tmp_path / "M.npz") as archive:
        start = archive.getinfo("data.npy").header_offset
    content = bytearray((tmp_path / "M.npz").read_bytes())
    place = content.index(matrix.data[:3].tobytes(), start)
    with (tmp_path / "M.npz").open("r+b") as file:
        file.seek(place)
        file.write(np.float32(7).tobytes())
    assert loaded.data[0] == 7


def test_what_scipy_stores_is_mapped_too(tmp_path):
    matrix = sp.random(50, 40, 0.2, format="csc", dtype=np.float32, random_state=0)
    sp.save_npz(tmp_path / "M.npz", matrix, compressed=False)
    loaded = load_matrix(tmp_path / "M.npz")
    assert base_is_map(loaded.data)
    assert base_is_map(loaded.indices)
    assert abs(loaded @ loaded.T - matrix @ matrix.T).max() < 1e-6
    assert not base_is_map(load_matrix(tmp_path / "M.npz", mmap=False).data)


def test_unsorted_and_double_entries_are_put_in_order(tmp_path):
    matrix = sp.csr_matrix((3, 4), dtype=np.float32)
    matrix.data = np.array([1, 2, 4, 8, 16], np.float32)
    matrix.indices = np.array([3, 0, 1, 1, 0], np.int32)
    matrix.indptr = np.array([0, 2, 2, 5], np.int32)
    sp.save_npz(tmp_path / "M.npz", matrix, compressed=False)
    loaded = load_matrix(tmp_path / "M.npz")
    assert loaded.toarray().tolist() == [[2, 0, 0, 1], [0, 0, 0, 0], [16, 12, 0, 0]]
    assert loaded.has_canonical_format
    assert loaded.indices.tolist() == [0, 3, 0, 1]
    assert loaded.data.flags.writeable  # its own: the file's would have had to be changed


@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (3, 4)])
def test_matrices_without_entries(tmp_path, form, shape):
    save_matrix(tmp_path / "M.npz", sp.csr_matrix(shape).asformat(form))
    loaded = load_matrix(tmp_path / "M.npz")
    assert loaded.shape == shape
    assert loaded.nnz == 0


def test_what_is_inside_decides_and_not_the_name(tmp_path):
    np.save(tmp_path / "M.npy", np.ones((2, 2), np.float32))
    (tmp_path / "M.npy").rename(tmp_path / "M.npz")
    assert load_matrix(tmp_path / "M.npz").shape == (2, 2)


def test_names_to_save_under(tmp_path):
    refused(r"ends in \.npz", save_matrix, tmp_path / "M.npy", sp.csr_matrix((2, 2)))
    refused(r"ends in \.npy", save_matrix, tmp_path / "M", np.ones((2, 2)))


def written(write) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


MATRIX = sp.random(20, 10, 0.2, format="csr", dtype=np.float32, random_state=0)
FILES = {
    "stored": written(lambda file: sp.save_npz(file, MATRIX, compressed=False)),
    "compressed": written(lambda file: sp.save_npz(file, MATRIX, compressed=True)),
    "coo": written(lambda file: sp.save_npz(file, MATRIX.tocoo(), compressed=False)),
    "npy": written(lambda file: np.save(file, MATRIX.toarray())),
}


@pytest.mark.parametrize("kind", FILES)
@given(data=st.data(), mmap=st.booleans())
def test_damaged_bytes(tmp_path_factory, outcomes, kind, data, mmap):
    content = bytearray(FILES[kind])
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    path = tmp_path_factory.mktemp("damaged") / "X"
    path.write_bytes(content)
    matrix = tried(outcomes, "/X", load_matrix, path, mmap=mmap)
    if matrix is not None:
        assert np.isfinite(matrix if isinstance(matrix, np.ndarray) else matrix.data).all()
