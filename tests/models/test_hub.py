"""Model folders on the Hugging Face hub; the hub is a stand-in that keeps folders."""

import shutil
import sys
from types import ModuleType

import pytest

import xmc_tf
from tests.refusals import refused
from xmc_tf.models.xr_linear import XRLinear


class RefusedError(Exception):
    """What the hub raises."""


class NotCachedError(FileNotFoundError):
    """What the hub's client raises without a network."""


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A module that stands in for huggingface_hub, with repositories in a folder."""
    stand_in, errors = ModuleType("huggingface_hub"), ModuleType("huggingface_hub.errors")
    stand_in.__spec__, stand_in.asked = object(), []
    errors.HfHubHTTPError, errors.LocalEntryNotFoundError = RefusedError, NotCachedError
    stand_in.errors = errors
    place = tmp_path / "hub"

    def create_repo(repository, **options):
        stand_in.asked.append((repository, options))

    def upload_folder(repo_id, folder_path, **_):
        shutil.copytree(folder_path, place / repo_id)

    def snapshot_download(repository, revision=None):
        stand_in.asked.append((repository, revision))
        if not (place / repository).exists():
            raise RefusedError("404: no such repository\nand more lines")
        return str(place / repository)

    stand_in.create_repo, stand_in.upload_folder = create_repo, upload_folder
    stand_in.snapshot_download = snapshot_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", stand_in)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    return stand_in


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "model"
    XRLinear.train(["soup with herbs", "herbs for a garden"], [["cooking"], ["gardening"]]).save(folder)
    return folder


def test_a_model_is_uploaded_and_loaded(hub, folder):
    assert xmc_tf.push(folder, "hf://me/topics") == "https://huggingface.co/me/topics"
    assert hub.asked == [("me/topics", {"private": True, "exist_ok": True})]
    assert xmc_tf.load("hf://me/topics@v1").names == ["cooking", "gardening"]
    assert hub.asked[-1] == ("me/topics", "v1")


def test_the_hub_s_refusals_are_said_in_one_line(hub, folder, tmp_path):
    caught = refused((), xmc_tf.load, "hf://me/nothing")
    assert str(caught).splitlines()[0] == "hf://me/nothing: 404: no such repository"
    for wrong in ("hf://topics", "hf://a/b/c", "hf://me/topics@", "hf://../x y"):
        refused("is not the address of a model on the hub", xmc_tf.load, wrong)
    refused("does not exist", xmc_tf.push, tmp_path / "nothing", "hf://me/topics")


def test_without_a_network_it_says_how_to_get_the_model(hub, monkeypatch):
    def snapshot_download(repository, revision=None):
        raise NotCachedError("cannot find a snapshot\nand more lines")

    hub.snapshot_download = snapshot_download
    for variables, received in (({}, "cannot find a snapshot"), ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE=1")):
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        caught = refused("hf://me/topics is not in the cache and cannot be downloaded", xmc_tf.load, "hf://me/topics")
        assert caught.received == received
        assert "hf download me/topics --local-dir FOLDER" in caught.fix


def test_the_package_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    refused(r"huggingface_hub is not installed(.|\n)*\[hub\]", xmc_tf.load, "hf://me/topics")
