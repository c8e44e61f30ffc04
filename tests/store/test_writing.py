"""Large arrays come to a file whole, however little it takes at a time, and the folder of TensorBoard's files."""

import io

import numpy as np
import pytest

from tests.refusals import refused
from xmc_tf.store.files import log_folder, write_in_steps


class Reluctant(io.BytesIO):
    """Takes a few bytes less than it is given, as a full pipe or a signal may have it."""

    def write(self, data):
        return super().write(data[: max(1, len(data) - 7)])


@pytest.mark.parametrize("file", [io.BytesIO, Reluctant])
@pytest.mark.parametrize("length", [0, 1, 4096, 100_003])
def test_all_is_written(file, length):
    numbers = np.arange(length, dtype=np.int32)
    written = file()
    write_in_steps(written, numbers.data)
    assert written.getvalue() == numbers.tobytes()


@pytest.mark.parametrize("start", [0, 100, 16384])
def test_writes_end_where_pages_end(start):
    ends = []

    class Looking(io.BytesIO):
        def write(self, data):
            ends.append(self.tell() + len(data))
            return super().write(data)

    file = Looking()
    file.seek(start)
    write_in_steps(file, np.ones(100_003, np.uint8).data, start)
    assert file.getvalue()[start:] == b"\x01" * 100_003
    assert all(end % 4096 == 0 for end in ends[:-1])
    assert ends[-1] == start + 100_003


def test_a_file_is_no_folder_for_logs(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "logs"):
        refused(f"{path} cannot hold TensorBoard's files", log_folder, path)
    assert log_folder(tmp_path / "a" / "b") == str(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
