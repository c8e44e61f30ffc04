"""Training by the command: a model that reaches the best possible predictions, resuming, refused settings."""

import json
import logging

import numpy as np
import pytest

from tests.refusals import refused
from tests.sequences.chains import markov_table
from xmc_tf.params import SequenceParams, load_sequence_params
from xmc_tf.sequences import train
from xmc_tf.sequences.data.preparation import prepare
from xmc_tf.sequences.train import main
from xmc_tf.store.checksums import checksum_of

pytest.importorskip("tensorflow")  # which the commands load when they start to train

SURE = 0.8


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chain")
    prepare([markov_table(folder / "i.csv", users=600, length=14, items=30, sure=SURE)], folder / "data")
    return folder / "data"


def config(folder, data, **values):
    values = {
        "data_dir": str(data), "model_dir": str(folder / "model"), "max_len": 12, "sliding_step": 6, "embed_dim": 16,
        "n_layers": 1, "dropout": 0.0, "learning_rate": 0.01, "per_device_train_batch_size": 64, "seed": 1, **values,
    }  # fmt: skip
    path = folder / "config.toml"
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
    return str(path)


def metrics(folder):
    return json.loads((folder / "model" / "params.json").read_text())["metrics"]


@pytest.mark.parametrize(
    ("model", "more"),
    [
        pytest.param("bert4rec", {"n_epochs": 45, "eval_steps": 150}, marks=pytest.mark.full),
        ("sasrec", {"loss": "sampled", "negatives": 20, "n_epochs": 12}),
    ],
)
def test_a_markov_chain_is_learned(tmp_path, data, capsys, model, more):
    main(["--config", config(tmp_path, data, model=model, patience=0, **more)])
    assert "test Recall@10" in capsys.readouterr().out
    found = metrics(tmp_path)["test"]
    # The successor comes next in 80 % of cases, and with the same luck as any item otherwise. The best order puts it
    # first; the other items follow in any order.
    first = SURE + (1 - SURE) / 30
    rest = (1 - first) / 29
    ceiling = first + rest * sum(1 / rank for rank in range(2, 31))
    assert found["MRR"] > 0.95 * ceiling
    assert not (tmp_path / "model.work").exists()


def test_resuming_equals_an_uninterrupted_training(tmp_path, data, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    settings = {"dropout": 0.2, "n_epochs": 2, "logging_steps": 1}
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    main(["--config", config(tmp_path / "whole", data, **settings)])
    whole = [record.args for record in caplog.records if "loss" in record.msg]
    caplog.clear()

    saved = []
    from xmc_tf.sequences import training

    save = training.save_training

    def saving(*arguments):
        save(*arguments)
        saved.append(1)
        if len(saved) == 2:
            raise KeyboardInterrupt

    broken = ["--config", config(tmp_path / "broken", data, **settings)]
    with monkeypatch.context() as patch:
        patch.setattr(training, "save_training", saving)
        with pytest.raises(KeyboardInterrupt):
            main(broken)
    refused(r"a different learning_rate[^$]*expected: 0.01", main, [*broken, "--set", "learning_rate=0.5"])
    header = (data / "prepared.json").read_text()
    other = json.loads(header) | {"interactions": 5}
    (data / "prepared.json").write_text(json.dumps(other | {"checksum": checksum_of(other)}))
    refused("interrupted training run with a different data", main, broken)
    (data / "prepared.json").write_text(header)
    main(broken)
    again = [record.args for record in caplog.records if "loss" in record.msg]
    steps = {step: loss for step, _, loss, *_ in again}
    assert sorted(steps) == [step for step, *_ in whole]
    assert [steps[step] for step, *_ in whole] == pytest.approx([loss for _, _, loss, *_ in whole], rel=1e-5)
    one, other = (metrics(tmp_path / name)["test"] for name in ("whole", "broken"))
    assert one == pytest.approx(other, rel=1e-5)


def test_early_stopping(tmp_path, data, caplog):
    caplog.set_level(logging.INFO)
    main(["--config", config(tmp_path, data, learning_rate=1e-12, n_epochs=50, patience=2, eval_steps=1)])
    assert metrics(tmp_path)["steps"] < 10
    assert "no better validation" in caplog.text


def test_the_keys_of_the_source_are_accepted(tmp_path, caplog):
    path = tmp_path / "config.toml"
    path.write_text(
        'data_dir = "d"\ntrain_data = "train_part_*"\neval_data = "eval_part_*"\nn_epochs = 10\n'
        "learning_rate = 3e-4\nweight_decay = 1e-4\nembed_dim = 16\nn_heads = 2\nn_layers = 2\nmax_len = 20\n"
        "sliding_step = 10\nmask_prob = 0.2\nper_device_train_batch_size = 16\nper_device_eval_batch_size = 16\n"
        "model_parallel = true\nnum_workers = 2\nseed = 42\nstreaming = true\n"
    )
    params = load_sequence_params(path)
    assert (params.train_data, params.sliding_step, params.num_workers) == ("train_part_*", 10, 2)
    assert "retired parameters have no effect and were ignored: streaming" in caplog.text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("n_head = 2", r"n_head is not a parameter[^$]*did you mean \"n_heads\""),
        ('max_len = "50"', "max_len has the wrong type"),
        ("n_heads = 3", "n_heads does not divide embed_dim"),
        ("sliding_step = 51", "longer than max_len"),
        ('route = "rows"', "route does not fit loss"),
        ("max_len = ", "is not TOML"),
        ("max_len = " + "[" * 5000, "is not TOML"),
    ],
)
def test_refused_configurations(tmp_path, line, message):
    path = tmp_path / "config.toml"
    path.write_text(line + "\n")
    caught = refused(message, main, ["--config", str(path)])
    assert str(path) in str(caught)


def test_set_replaces_parameters(capsys, tmp_path):
    main(["--show-config", "--set", "max_len=20", "--set", "sliding_step=5", "--set", "data_dir=elsewhere"])
    text = capsys.readouterr().out
    path = tmp_path / "c.toml"
    path.write_text(text)
    params = load_sequence_params(path)
    assert params == SequenceParams(max_len=20, sliding_step=5, data_dir="elsewhere")
    refused("KEY=VALUE", train.with_settings, params, ["n_epochs"])
    refused("too many brackets", train.with_settings, params, ["n_epochs=" + "[" * 5000])
    assert np.isclose(train.with_settings(params, ["learning_rate=1e-2"]).learning_rate, 0.01)
