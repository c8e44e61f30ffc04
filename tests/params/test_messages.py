"""Every bad parameter file is answered with the key, what was expected, what was received, and how to fix it."""

import argparse
import json

import pytest

from tests.params import published
from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.params import (
    HierarchicalKMeansParams,
    LinearChainParams,
    LinearLevelParams,
    MatcherParams,
    RankerParams,
    XTransformerParams,
    XTransformerPredParams,
    add_flags,
    base,
    from_arguments,
    load_blocks,
    per_level,
)


def load(path):
    return load_blocks(
        path, ignore=("tfidf_params",), train_params=XTransformerParams, pred_params=XTransformerPredParams
    )


def message_of(tmp_path, data) -> str:
    path = tmp_path / "params.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return str(refused((), load, path))


def test_unknown_key_names_its_path_and_the_nearest_one(tmp_path):
    data = published.xtransformer()
    data["train_params"]["matcher_params_chain"][1]["learning_rte"] = 1e-3
    message = message_of(tmp_path, data)
    assert "params.json: train_params.matcher_params_chain[1].learning_rte is not a parameter" in message
    assert 'did you mean "learning_rate"?' in message


def test_unknown_key_at_the_top(tmp_path):
    message = message_of(tmp_path, {"train_param": {}})
    assert "train_param is not a parameter" in message
    assert 'did you mean "train_params"?' in message


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (
            "batch_size",
            "32",
            ["has the wrong type", "a whole number at least 1", '"32" (a text)', "without quotes"],
        ),
        ("batch_size", 32.0, ["has the wrong type", "32.0 (a number)", "write 32"]),
        ("batch_size", True, ["has the wrong type", "true"]),
        ("batch_size", None, ["has the wrong type", "null"]),
        ("batch_size", 0, ["is out of range", "at least 1", "received: 0"]),
        ("use_gpu", "false", ["has the wrong type", "true or false", "without quotes"]),
        ("use_gpu", 1, ["has the wrong type", "1 (a whole number)"]),
        ("learning_rate", -1.0, ["is out of range", "above 0"]),
        ("learning_rate", float("nan"), ["is out of range", "NaN"]),
        ("learning_rate", float("inf"), ["is out of range", "Infinity"]),
        ("hidden_dropout_prob", 1, ["is out of range", "below 1"]),
        ("loss_function", "squared_hinge", ["one of hinge, squared-hinge", 'did you mean "squared-hinge"?']),
        ("lr_schedule", "cosinus", ["constant_with_warmup", 'did you mean "cosine"?']),
        ("bootstrap_method", 3, ["has the wrong type", "weighted-linear", "3 (a whole number)"]),
        ("negative_sampling", "tfn+usn", ["all, tfn, man or tfn+man", '"tfn+usn"']),
        ("train_layers", "0", ["all, half, or a whole number of at least 1", '"0"']),
        ("model_shortcut", "", ["is empty"]),
        ("max_active_matching_labels", [], ["has the wrong type", "a list"]),
    ],
)
def test_bad_value(tmp_path, key, value, words):
    data = {"train_params": {"matcher_params_chain": [{}, {key: value}]}}
    message = message_of(tmp_path, data)
    assert f"params.json: train_params.matcher_params_chain[1].{key}" in message
    for word in words:
        assert word in message


def test_bad_entry_of_a_chain(tmp_path):
    chain = {"ranker_params": {"hlm_args": {"neg_mining_chain": ["tfn", "tfm"]}}}
    assert "train_params.ranker_params.hlm_args.neg_mining_chain[1]" in message_of(tmp_path, {"train_params": chain})
    chain = {"ranker_params": {"hlm_args": {"model_chain": []}}}
    assert "model_chain is an empty list" in message_of(tmp_path, {"train_params": chain})
    chain = {"ranker_params": {"hlm_args": {"model_chain": [3]}}}
    assert "model_chain[0] is not a block" in message_of(tmp_path, {"train_params": chain})


def test_parameters_that_do_not_go_together(tmp_path):
    tree = {"min_sample_rate": 0.5, "max_sample_rate": 0.2}
    message = message_of(tmp_path, {"train_params": {"refined_indexer_params": tree}})
    assert "train_params.refined_indexer_params.min_sample_rate is larger than max_sample_rate" in message
    for name, one, other in (("train_layers", "half", "3"), ("lora_rank", 8, 0)):
        message = message_of(tmp_path, {"train_params": {"matcher_params_chain": [{name: one}, {name: other}]}})
        assert f"train_params.matcher_params_chain has different values of {name}" in message
        assert f"received: {one}, {other}" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{\n 'a': 1}", ["line 2, column 2", "is not JSON"]),
        ("", ["line 1, column 1", "not JSON"]),
        ("[1]", ["contains no parameters"]),
        ('{"train_params": 3}', ["train_params is not a block"]),
        ('{"train_params": {"do_fine_tune": true, "do_fine_tune": false}}', ["do_fine_tune", "given twice"]),
        ("[" * 100_000, ["nested too deeply"]),
    ],
)
def test_not_a_parameter_file(tmp_path, text, words):
    message = message_of(tmp_path, text)
    assert "params.json" in message
    for word in words:
        assert word in message


def test_file_that_cannot_be_read(tmp_path):
    (tmp_path / "params.json").write_text("{}")
    refused(r"parms\.json does not exist(.|\n)*did you mean .*params\.json", load, tmp_path / "parms.json")
    refused("is a folder", load, tmp_path)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe{}")
    refused("not text in UTF-8", load, tmp_path / "bytes.json")


def test_python_callers_get_the_same_checks():
    refused("nr_splits is out of range", HierarchicalKMeansParams, nr_splits=1)
    refused("model_chain has the wrong type", LinearChainParams, model_chain={"Cp": 1})
    params = MatcherParams(learning_rate=1, negative_sampling="TFN+man")
    assert isinstance(params.learning_rate, float)
    assert params.negative_sampling == "tfn+man"
    with pytest.raises(AttributeError):
        params.learning_rate = 2.0


def test_chain_for_a_tree_of_another_depth(caplog):
    base._warn_of_another_depth.cache_clear()  # it warns once in a process
    assert per_level(("tfn", "man"), 2) == ("tfn", "man")
    assert not caplog.records
    for _ in range(2):
        assert per_level(("tfn", "usn", "man"), 2, "neg_mining_chain") == ("usn", "man")
    assert per_level(("tfn", "man"), 4, "neg_mining_chain") == ("tfn", "tfn", "tfn", "man")
    assert [record.getMessage() for record in caplog.records] == [
        "neg_mining_chain has 3 entries, the tree has 2 levels: the last 2 are used",
        "neg_mining_chain has 2 entries, the tree has 4 levels: the first is also used for the levels above",
    ]
    refused("is empty", per_level, (), 2, "neg_mining_chain")


@pytest.fixture
def parser():
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_flags(parser, "nr_splits", "min_codes", "spherical", "threads", of=HierarchicalKMeansParams)
    add_flags(parser, "solver_type", "Cp", of=LinearLevelParams, threshold={"default": 0.2})
    return parser


def test_flags_take_their_defaults_from_the_class(parser):
    arguments = parser.parse_args([])
    assert arguments.nr_splits == 16
    assert arguments.threshold == 0.2
    assert from_arguments(HierarchicalKMeansParams, arguments) == HierarchicalKMeansParams()


def test_flags_reach_every_block_that_knows_them(parser):
    arguments = parser.parse_args(["--nr-splits", "8", "-n", "2", "--Cp", "4", "--spherical", "false"])
    ranker = from_arguments(RankerParams, arguments)
    assert ranker.nr_splits == 8
    assert ranker.hlm_args.model_chain == LinearLevelParams(Cp=4.0, threads=2, threshold=0.2)
    assert from_arguments(HierarchicalKMeansParams, arguments).spherical is False


def test_flags_that_cannot_be(parser):
    with pytest.raises(InputError, match=r"--nr-splits is out of range(.|\n)*at least 2(.|\n)*received: 1"):
        from_arguments(RankerParams, parser.parse_args(["--nr-splits", "1"]))
    with pytest.raises(argparse.ArgumentError, match="expected true or false, received 'maybe'"):
        parser.parse_args(["--spherical", "maybe"])
    with pytest.raises(argparse.ArgumentError, match="invalid choice"):
        parser.parse_args(["--solver-type", "L2"])


def test_all_single_values_without_names():
    parser = argparse.ArgumentParser()
    add_flags(parser, of=MatcherParams)
    assert "--lr-schedule" in parser.format_help()
    assert from_arguments(MatcherParams, parser.parse_args([])) == MatcherParams()
