"""The folder of compiled code, where the home folder cannot hold it."""

import os
import stat
import tempfile

from xmc_tf.common.process import cache_folder


def test_a_folder_that_cannot_be_written_is_replaced_by_a_private_one(tmp_path, monkeypatch, caplog):
    (tmp_path / "home").write_text("a file: no folder can be made below it")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("XMC_TF_CACHE", str(tmp_path / "home" / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    found = cache_folder.cache_folder()
    assert found == tmp_path / "tmp" / f"xmc_tf-{os.geteuid()}"
    assert stat.S_IMODE(found.stat().st_mode) == 0o700
    assert cache_folder.cache_folder() == found
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(found) in caplog.text


def test_a_folder_that_others_may_write_is_not_used(tmp_path, monkeypatch):
    (tmp_path / "home").write_text("")
    (tmp_path / "tmp").mkdir()
    other = tmp_path / "tmp" / f"xmc_tf-{os.geteuid()}"
    other.mkdir()
    other.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("XMC_TF_CACHE", str(tmp_path / "home" / "cache"))
    found = cache_folder.cache_folder()
    assert found.parent == tmp_path / "tmp"
    assert found != other
    assert stat.S_IMODE(found.stat().st_mode) == 0o700
    assert os.environ["XMC_TF_CACHE"] == str(found)  # of processes that this one starts
