"""An export holds the records of its files, and is compared with them when it is loaded."""

import json
import shutil

import pytest

from tests.files import flipped
from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.serving.local import ABOUT, LocalModel


@pytest.fixture
def copy(exported, tmp_path):
    shutil.copytree(exported, tmp_path / "1")
    return tmp_path / "1"


def test_all_files_are_recorded_but_the_records_themselves(exported):
    files = {path.relative_to(exported).as_posix() for path in exported.rglob("*") if path.is_file()}
    assert set(json.loads((exported / ABOUT).read_text())["files"]) == files - {ABOUT}
    assert {"saved_model.pb", "variables/variables.index"} <= files


def test_a_damaged_file_is_named(copy):
    for name in json.loads((copy / ABOUT).read_text())["files"]:
        with flipped(copy / name), pytest.raises(InputError, match=f"{name} is damaged: its content") as caught:
            LocalModel(copy)
        assert "export the model again" in caught.value.fix


def test_so_are_settings_that_have_changed(copy):
    text = (copy / ABOUT).read_text()
    (copy / ABOUT).write_text(text.replace('"k": 5', '"k": 4'))
    refused(r"xmc_tf\.json has changed since it was exported", LocalModel, copy)


def test_an_export_without_records_still_loads(copy):
    about = json.loads((copy / ABOUT).read_text())
    del about["files"], about["checksum"]
    (copy / ABOUT).write_text(json.dumps(about))
    assert LocalModel(copy).ask(["word1 word2"])["labels"].shape == (1, 5)
