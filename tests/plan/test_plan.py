"""Estimates against what the training code does, and the command that prints them."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from transformers import AutoConfig

from tests.refusals import refused
from xmc_tf.data import Features
from xmc_tf.matcher.tasks import deepest_level
from xmc_tf.params import HierarchicalKMeansParams, RankerParams
from xmc_tf.plan import __main__ as command
from xmc_tf.plan import estimate as estimate_module
from xmc_tf.plan.formulas import (
    DEVICES,
    ENCODERS,
    DataSizes,
    FineTuningOptions,
    Machines,
    encoder_size,
    fine_tuning,
    parse_hosts,
    ranker_work,
    rankers,
    trained_nodes,
)
from xmc_tf.plan.formulas import tree as tree_stage
from xmc_tf.rankers.tasks import Instances, level_tasks
from xmc_tf.tree.kmeans import build_tree

MINILM = ENCODERS["all-minilm-l6-v2"]


@pytest.mark.parametrize(
    ("name", "millions"),
    [("bert-base", 109), ("all-minilm-l6-v2", 22.6), ("xlm-roberta-base", 277), ("bert-large", 334)],
)
def test_numbers_of_weights_are_those_of_the_model_cards(name, millions):
    assert ENCODERS[name].weights / 1e6 == pytest.approx(millions, rel=0.01)


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta"])
def test_the_shape_is_read_from_a_configuration(kind, tmp_path):
    AutoConfig.for_model(kind).save_pretrained(tmp_path)
    found = encoder_size(str(tmp_path))
    assert (found.width, found.feed_forward, found.heads) == (768, 3072, 12)
    assert found.layers == (6 if kind == "distilbert" else 12)


@pytest.mark.parametrize("labels", [50, 300, 2617, 40_000])
@pytest.mark.parametrize("most", [40, 200, 5000])
def test_the_level_is_the_one_that_training_chooses(labels, most):
    features = csr_matrix(np.random.default_rng(0).random((labels, 4), np.float32))
    tree = build_tree(features, HierarchicalKMeansParams())
    sizes = tree.level_sizes
    options = FineTuningOptions(max_match_clusters=most)
    if sizes[1] > most:
        for choose in (lambda: deepest_level(tree, most), lambda: trained_nodes(labels, options)):
            refused("level of", choose)
    else:
        assert trained_nodes(labels, options) == sizes[deepest_level(tree, most)]


def test_work_of_rankers_is_that_of_the_tasks_of_a_training():
    rng = np.random.default_rng(0)
    labels, documents, per_document, entries = 2048, 10_000, 4.0, 6
    frequency = (16481 * rng.random(labels) + 2080.0) ** -1.092
    rate = per_document * frequency / frequency.sum()
    Y = csr_matrix((rng.random((documents, labels)) < rate).astype(np.float32))
    features = csr_matrix(
        (np.ones(documents * entries, np.float32), rng.integers(0, 50, documents * entries),
         np.arange(0, documents * entries + 1, entries))
    )  # fmt: skip
    tree = build_tree(csr_matrix(rng.random((labels, 4), np.float32)), HierarchicalKMeansParams())
    instances = Instances(Features(features), RankerParams())
    levels = instances.levels(Y, tree.to_chain())
    tasks = [level_tasks(instances, levels.problem(t)) for t in range(levels.depth)]
    found = ranker_work(DataSizes(labels, documents, per_document, entries), entries)
    assert len(tasks) == 3
    assert found.total == pytest.approx(sum(one.work.sum() for one in tasks), rel=0.02)
    assert found.longest == tasks[0].work.max()


def test_more_cores_than_the_roots_task_allows_save_no_time():
    data = DataSizes(10_000_000, 93_000_000, labels_per_document=4.9, entries=30)
    seconds = [rankers(data, 0, Machines(ranks, 1, 1)).seconds for ranks in (1, 16, 32, 64, 512)]
    assert seconds[0] / seconds[1] == pytest.approx(16)
    assert seconds[2] > seconds[3] == seconds[4]


def test_the_head_is_divided_and_the_encoder_is_not():
    data, options = DataSizes(10_000_000, 1_000_000, tokens=32), FineTuningOptions(max_match_clusters=10_000_000)
    one, eight = (fine_tuning(data, MINILM, Machines(1, n), DEVICES["h100"], options) for n in (1, 8))
    head = 10_000_000 * 385 * 32
    assert one.memory - eight.memory == pytest.approx(head * 7 / 8)
    assert one.sent == 0
    assert one.wire_share == 0
    assert eight.sent > 0
    assert "10,000,000 nodes" in one.detail
    half = replace(options, half_head=True)
    one_half, eight_half = (fine_tuning(data, MINILM, Machines(1, n), DEVICES["h100"], half) for n in (1, 8))
    # The scores of a block are the same on any number of ranks, those of one step of more documents are more.
    scores = 8 * 32 * 8192 * 4
    assert one_half.memory - eight_half.memory == pytest.approx(10_000_000 * (2 * 385 + 4) * 7 / 8 - 7 * scores)
    assert one_half.memory < one.memory / 10


def test_adapters_are_all_that_is_trained_and_summed():
    data, options, cpu = DataSizes(2617, 7534, tokens=51), FineTuningOptions(half=True), DEVICES["cpu-core"]
    adapters = 6 * 8 * (3 * 384 + 384 + 2 * 384 + 2 * (384 + 1536))  # of queries, keys and values; out; inner and outer
    for layers, count in (("all", adapters), ("half", adapters / 2)):
        size = encoder_size("all-MiniLM-L6-v2", layers, lora_rank=8)
        assert size.trained_weights == count
        whole, found = (fine_tuning(data, one, Machines(2, 1), cpu, options)
                        for one in (encoder_size("all-MiniLM-L6-v2", layers), size))  # fmt: skip
        assert whole.memory - found.memory == pytest.approx(12 * (whole_size(layers) - count))
        assert whole.sent - found.sent == pytest.approx(3 * 7534 / 64 * (whole_size(layers) - count) * 4)
        assert found.seconds < whole.seconds


def whole_size(layers):
    return encoder_size("all-MiniLM-L6-v2", layers).trained_weights


@pytest.mark.parametrize(("train_layers", "frozen"), [("half", 3), ("2", 4), ("6", 0)])
def test_frozen_layers_need_no_gradients_and_are_computed_once(train_layers, frozen):
    data, options, cpu = DataSizes(2617, 7534, tokens=51), FineTuningOptions(half=True), DEVICES["cpu-core"]
    size = encoder_size("all-MiniLM-L6-v2", train_layers)
    arguments = data, size, Machines(2, 1), cpu, options
    names = [stage.name for stage in estimate_module.estimate(*arguments).stages]
    assert names == ["TF-IDF", "label tree", "frozen layers", "fine-tuning", "embeddings", "rankers"]
    stages = dict(zip(names, estimate_module.estimate(*arguments).stages, strict=True))
    whole = dict(zip(names[:2] + names[3:], estimate_module.estimate(data, MINILM, *arguments[2:]).stages, strict=True))
    trained, layer = (6 - frozen) / 6, MINILM.layer_weights / 6
    # A gradient, two slots and the activations of a layer; the embeddings have a gradient and two slots too.
    activations = 32 * MINILM.activation_bytes(51, half=True) / 6
    saved = 12 * (MINILM.weights - (6 - frozen) * layer) + frozen * activations
    assert whole["fine-tuning"].memory - stages["fine-tuning"].memory == pytest.approx(saved)
    assert stages["frozen layers"].disk == 7534 * 51 * 384 * 2
    assert stages["embeddings"].seconds == pytest.approx(whole["embeddings"].seconds * trained)
    lower, upper = stages["frozen layers"].seconds, stages["embeddings"].seconds
    assert lower + upper == pytest.approx(whole["embeddings"].seconds)
    assert whole["fine-tuning"].sent - stages["fine-tuning"].sent == pytest.approx(
        3 * 7534 / 64 * (MINILM.weights - (6 - frozen) * layer) * 4
    )
    assert stages["fine-tuning"].seconds < whole["fine-tuning"].seconds * trained**0.5
    # A measured speed is that of the trained layers.
    measured = replace(options, docs_per_second=100)
    found = {stage.name: stage.seconds for stage in estimate_module.estimate(*arguments[:4], measured).stages}
    assert found["embeddings"] == pytest.approx(7534 / 300 / 2)
    assert found["frozen layers"] == pytest.approx(found["embeddings"] * frozen / (6 - frozen))


def test_a_measured_speed_replaces_the_devices():
    data = DataSizes(1000, 32_000)
    found = fine_tuning(data, MINILM, Machines(1, 1), DEVICES["cpu-core"], FineTuningOptions(docs_per_second=100))
    assert found.seconds == pytest.approx(3 * 32_000 / 100)


def test_a_slow_network_is_named_with_a_fix(capsys):
    arguments = ["--labels", "3e6", "--docs", "2M", "--encoder", "bert-base-cased", "--device", "a100"]
    command.main([*arguments, "--hosts", "4x8", "--network", "1"])
    shown = capsys.readouterr().out
    assert "3,000,000 labels, 2,000,000 documents, bert-base-cased (109 million weights), 4 x 8 ranks" in shown
    assert "for the network (fix:" in shown
    command.main([*arguments, "--hosts", "8", "--device", "v100"])
    assert "for the network" not in capsys.readouterr().out


def test_too_little_memory_is_named(capsys):
    command.main(["--labels", "500k", "--docs", "5M", "--hosts", "1x4", "--memory", "16"])
    assert "rankers needs" in capsys.readouterr().out


def test_json_has_the_figures_of_the_table(capsys):
    arguments = ["--labels", "2617", "--docs", "7534", "--hosts", "2"]
    command.main([*arguments, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [stage["name"] for stage in found["stages"]] == ["TF-IDF", "label tree", "rankers"]
    assert found["seconds"] == pytest.approx(sum(stage["seconds"] for stage in found["stages"]))


@pytest.mark.parametrize("text", ["0x8", "4x", "x", "", "4x8x2", "-1", "4 8", "123456"])
def test_invalid_hosts_are_refused(text):
    refused("--hosts", parse_hosts, text)


@pytest.mark.parametrize(("text", "value"), [("3e6", 3e6), ("2M", 2e6), ("500k", 5e5), ("1_000", 1e3), ("1.5", 1.5)])
def test_numbers_as_people_write_them(text, value):
    assert command.number(text) == value


@pytest.mark.parametrize("text", ["", "0", "-3", "1e99", "nan", "many", "1e", "9" * 400])
def test_other_numbers_are_refused(text, capsys):
    with pytest.raises(SystemExit):
        command.main(["--labels", text, "--docs", "5"])
    assert "--labels" in capsys.readouterr().err


def test_an_unknown_encoder_and_a_damaged_configuration_are_named(tmp_path):
    refused("--encoder gpt-9", encoder_size, "gpt-9")
    refused("at most 6, half or all", command.main, ["--labels", "9", "--docs", "9", "--encoder",
                                                     "all-minilm-l6-v2", "--train-layers", "7"])  # fmt: skip
    refused("--train-layers", command.main, ["--labels", "9", "--docs", "9", "--train-layers", "half"])
    (tmp_path / "config.json").write_text('{"model_type": "bert", "num_hidden_layers": "six"}')
    refused("num_hidden_layers", encoder_size, str(tmp_path))


def test_large_data_need_memory_for_the_data_and_disk_for_the_weights():
    sizes = {"labels_per_document": 36, "entries": 50, "features": 337_000}
    small, large = DataSizes(100_000, 60_000, **sizes), DataSizes(2_800_000, 1_700_000, **sizes)
    one, two = Machines(1, 1, 2), Machines(1, 2, 1)
    held, streamed = rankers(small, 0, one), rankers(large, 0, one)
    weights = 8 * 0.75 * 1_700_000 * 36 * 50
    assert streamed.disk == pytest.approx(weights)
    assert streamed.memory < weights / 2
    assert rankers(large, 0, one, streamed=False).memory > weights
    assert rankers(large, 0, two).disk == pytest.approx(3 * weights)
    assert held.memory > held.disk / 2
    assert tree_stage(large, one).memory < 8e9


def test_a_training_says_what_it_needs_and_what_the_machine_lacks(tmp_path, caplog, monkeypatch):
    data = DataSizes(2_800_000, 1_700_000, 36, 50, 337_000)
    with caplog.at_level("INFO"):
        monkeypatch.setattr(estimate_module, "available_memory", lambda: 1e9)
        monkeypatch.setattr(estimate_module.shutil, "disk_usage", lambda path: SimpleNamespace(free=1e9))
        estimate_module.warn_of_needs(data, tmp_path / "new" / "m", 2, trees=1, shape=FineTuningOptions())
    estimate, memory, disk = (record.getMessage() for record in caplog.records)
    assert "on the disk" in estimate
    assert "the stage rankers needs about" in memory
    assert "only 1.0 GB is available" in memory
    assert "18.4 GB on the disk, but only 1.0 GB is free" in disk
    caplog.clear()
    estimate_module.warn_of_needs(DataSizes(10, 10), tmp_path / "m", 2, trees=1, shape=FineTuningOptions())
    assert not caplog.records
