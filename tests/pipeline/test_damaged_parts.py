"""Parts of an XTransformer are compared with their records when each is first read."""

import shutil

import pytest

from tests.files import flipped
from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.encoder import Encoder, TextTokenizer
from xmc_tf.models.xtransformer import XTransformer


def use(part):
    """What reads a part of a model."""
    return {
        "tree": lambda model: model.tree,
        "features": lambda model: model.tfidf,
        "encoder": lambda model: model.encoder,
        "tokenizer": lambda model: model.tokenizer,
        "head": lambda model: model.matcher,
        "ranker": lambda model: model.ranker,
    }[part]


@pytest.fixture(scope="module")
def copy(tuned, tmp_path_factory):
    folder = tmp_path_factory.mktemp("copy") / "m"
    shutil.copytree(tuned.folder, folder)
    return folder


@pytest.mark.parametrize("part", ["tree", "features", "encoder", "tokenizer", "head", "ranker"])
def test_a_flip_in_any_file_of_a_part_is_found_when_it_is_read(copy, part):
    folder = copy / ("encoder" if part == "tokenizer" else part)
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or (part == "tokenizer" and path.suffix in (".safetensors", ".h5")):
            continue
        with flipped(path, 0.4):
            model = XTransformer.load(copy)  # reads no part yet
            with pytest.raises(InputError) as caught:
                use(part)(model)
        assert f"{path} is damaged: its content has changed" in caught.value.problem
    use(part)(XTransformer.load(copy))


def test_an_encoder_taken_out_of_a_model_by_its_path_is_compared_too(copy):
    path = next((copy / "encoder").glob("*.safetensors"))
    with flipped(path, 0.7):
        for folder in (copy, copy / "encoder"):
            refused("is damaged: its content has changed", Encoder.load, folder)
            TextTokenizer.load(folder)  # reads no weights
