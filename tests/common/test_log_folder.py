"""Tests of the folder of TensorBoard's files."""

from tests.refusals import refused
from xmc_tf.common.files.log_folder import log_folder


def test_a_file_is_no_folder_for_logs(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "logs"):
        refused(f"{path} cannot hold TensorBoard's files", log_folder, path)
    assert log_folder(tmp_path / "a" / "b") == str(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
