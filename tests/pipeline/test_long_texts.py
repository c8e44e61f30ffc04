"""Long texts from training to prediction: words behind the first window count, unless texts are truncated."""

import json
import logging

import numpy as np
import pytest
from scipy.sparse import csr_matrix, vstack

from tests.pipeline.corpus import TOPICS, write_encoder
from tests.refusals import refused
from xmc_tf import train
from xmc_tf.common.errors import InputError
from xmc_tf.data.windows import WindowOptions
from xmc_tf.jobs import train_flags
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.models.xtransformer import TrainingRun, XTransformer
from xmc_tf.params import (
    LinearChainParams,
    LinearLevelParams,
    MatcherParams,
    MatcherPredParams,
    RankerParams,
    XTransformerParams,
    XTransformerPredParams,
)

pytestmark = pytest.mark.full

LENGTH = 12  # of a window, with two special tokens


def documents(count, words, seed):
    """Return texts of so many words, of which only the last tells the topic, and their labels."""
    topics = np.random.default_rng(seed).integers(0, len(TOPICS), count)
    texts = [" ".join(["word"] * (words - 1) + [TOPICS[topic]]) for topic in topics]
    ones = np.ones(count, np.float32)
    return texts, csr_matrix((ones, (np.arange(count), topics)), shape=(count, len(TOPICS)))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """Return the folder of a tiny encoder."""
    folder = tmp_path_factory.mktemp("long") / "encoder"
    write_encoder(folder)
    return folder


@pytest.fixture(scope="module")
def trained(encoder):
    """Return a function that trains a model of the embeddings alone, on long and short documents, in one work folder.

    It returns the model, and the lines that the training logs.
    """

    def train_with(long_texts, **more):
        long, short = documents(60, 10 * LENGTH, seed=0), documents(60, 4, seed=1)
        matcher = MatcherParams(model_shortcut=str(encoder), max_steps=4, learning_rate=1e-4, save_steps=100)
        ranker = LinearLevelParams(threshold=0.0, Cp=1000, Cn=1000, max_iter=2000)
        lines = []
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())
        logger = logging.getLogger("xmc_tf")
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            model = XTransformer.train(
                long[0] + short[0],
                vstack([long[1], short[1]], format="csr"),
                tfidf=None,
                params=XTransformerParams(
                    matcher_params_chain=matcher,
                    ranker_params=RankerParams(hlm_args=LinearChainParams(model_chain=ranker)),
                ),
                pred_params=XTransformerPredParams(
                    MatcherPredParams(truncate_length=LENGTH, long_texts=long_texts, **more)
                ),
                run=TrainingRun(work_dir=encoder.parent / "work"),
            )
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
        return model, lines

    return train_with


@pytest.fixture(scope="module")
def by_mean(trained):
    """Return a model that reads four windows, and the lines of its training, which is the first in the folder."""
    return trained("mean", max_windows=4)


@pytest.fixture(scope="module")
def by_max(by_mean, trained):
    """Return a model that reads more windows, in another way, and the lines of its training, which is the next one."""
    return trained("max")


@pytest.fixture(scope="module")
def truncating(by_max, trained):
    """Return a model that reads the first window, and the lines of its training."""
    return trained("truncate")


def made(lines):
    """Return the stages that a training has made."""
    return {line.split(":")[0] for line in lines if ": done in" in line} - {"tokens"}


def hits(model, words, method="concat-only"):
    """Return the share of held-out documents whose best label is right."""
    texts, Y = documents(40, words, seed=2)
    predicted = model.predict(texts, only_topk=1, ensemble_method=method)
    return float(np.mean(np.asarray(Y[np.arange(len(texts)), predicted.indices]) > 0))


@pytest.mark.parametrize("fixture", ["by_max", "truncating"])
def test_a_document_of_ten_windows_is_found_by_its_last_word(fixture, request):
    model, _ = request.getfixturevalue(fixture)
    assert hits(model, 4) == 1
    for method in ("concat-only", "average"):
        found = hits(model, 10 * LENGTH, method)
        if fixture == "truncating":
            assert found < 0.4  # chance
        else:
            assert found > 0.8


def test_another_reading_repeats_the_stages_that_depend_on_it(by_mean, by_max, truncating, trained):
    _, first = by_mean
    assert {"fine-tuning", "embeddings", "rankers"} <= made(first)
    assert "truncated to 4 windows of 12 tokens: 60 of 120 documents" in "\n".join(first)
    assert "120 documents, 300 windows" in "\n".join(first)
    model, again = by_max
    assert {"fine-tuning", "embeddings", "rankers"} <= made(again)
    assert "encoder" not in made(again)
    assert model.metadata.reading == WindowOptions(LENGTH, 16, "max")
    _, third = truncating
    assert {"fine-tuning", "embeddings", "rankers"} <= made(third)
    assert made(trained("truncate")[1]) == set()


def test_old_models_truncate_and_damaged_ones_are_refused():
    old = {"model": "XTransformer", "truncate_length": 64}
    assert ModelMetadata(old).reading == WindowOptions(64)
    with pytest.raises(InputError, match="long_texts is 'fold'"):
        _ = ModelMetadata({**old, "long_texts": "fold", "max_windows": 2}).reading
    with pytest.raises(InputError, match="max_windows is missing"):
        _ = ModelMetadata({**old, "long_texts": "max"}).reading


@pytest.mark.parametrize(
    ("flags", "inside", "expected"),
    [
        ([], None, WindowOptions(128)),
        (["--long-texts", "max"], None, WindowOptions(128, 16, "max")),
        (["--long-texts", "mean", "--max-windows", "4"], None, WindowOptions(128, 4, "mean")),
        # PECOS's parameter files mean what they mean in PECOS.
        ([], {}, WindowOptions(128)),
        (["--long-texts", "mean"], {}, WindowOptions(128, 16, "mean")),
        ([], {"long_texts": "mean", "max_windows": 3}, WindowOptions(128, 3, "mean")),
    ],
)
def test_flags_and_parameter_files(tmp_path, flags, inside, expected):
    if inside is not None:
        path = tmp_path / "params.json"
        path.write_text(json.dumps({"pred_params": {"matcher_params_chain": inside}}))
        flags = ["--params-path", str(path), *flags]
    assert train._recipe(train_flags.parser().parse_args(flags)).reading == expected


def test_no_windows_are_refused():
    refused("--max-windows", train._recipe, train_flags.parser().parse_args(["--max-windows", "0"]))
