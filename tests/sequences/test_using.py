"""Prediction, evaluation and export of a trained model: the same answers from all of them."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from tests.collective.threads import on_ranks
from tests.plain_tensorflow import ask
from tests.refusals import refused
from tests.sequences.chains import markov_table
from xmc_tf.params import SequenceParams
from xmc_tf.playground import answers_of
from xmc_tf.sequences import evaluate, export, predict
from xmc_tf.sequences.data.folder import PreparedFolder
from xmc_tf.sequences.data.preparation import prepare
from xmc_tf.sequences.model import folder as model_folder
from xmc_tf.sequences.train import main

pytest.importorskip("tensorflow")  # which the commands load when they start to train


@pytest.fixture(scope="module", params=[pytest.param("bert4rec", marks=pytest.mark.full), "sasrec"])
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    prepare([markov_table(folder / "i.csv", users=80, length=8, items=20)], folder / "data")
    settings = {
        "data_dir": folder / "data", "model_dir": folder / "model", "model": request.param, "max_len": 6,
        "sliding_step": 3, "embed_dim": 8, "n_layers": 1, "max_steps": 20, "learning_rate": 0.01,
    }  # fmt: skip
    main([word for name, value in settings.items() for word in ("--set", f"{name}={value}")])
    return folder


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_the_export_answers_as_predict_does(trained, tmp_path, capsys):
    export.main(["-m", str(trained / "model"), "-o", str(tmp_path / "1"), "-k", "4"])
    histories = [["i3", "i7", "i1"], ["i2"], [], [f"i{n % 20}" for n in range(30)], ["what?", "i3", "who?"]]
    path = tmp_path / "histories.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in histories))
    capsys.readouterr()
    predict.main(["-m", str(trained / "model"), "-i", str(path), "-k", "4", "--batch-size", "2"])
    ours = lines(capsys.readouterr().out)
    assert ours[4] != ours[2]  # the unknown names are left out, not the history
    padded = [[*one[:2], "", *one[2:], *[""] * (30 - len(one))] for one in histories]
    theirs = ask(tmp_path / "1", history=padded)
    assert [[item.decode() for item in row] for row in theirs["items"]] == [one["items"] for one in ours]
    np.testing.assert_allclose(theirs["scores"], [one["scores"] for one in ours], atol=2e-5)


def test_evaluate_equals_the_training_and_a_count_of_predictions(trained, capsys):
    evaluate.main(["-m", str(trained / "model"), "--data", str(trained / "data"), "--json", "--batch-size", "7"])
    found = json.loads(capsys.readouterr().out)
    recorded = json.loads((trained / "model" / "params.json").read_text())["metrics"]["test"]
    assert found["users"] == 80
    assert {name: found[name] for name in recorded} == pytest.approx(recorded)
    # The same from predictions for histories without their last item.
    data = PreparedFolder(trained / "data")
    names = data.item_names()
    path = trained / "without_last.jsonl"
    (part,) = data.parts()
    users = [part.items[low:high] for low, high in zip(part.splits, part.splits[1:], strict=False)]
    path.write_text("".join(json.dumps([names[item] for item in items[:-1]]) + "\n" for items in users))
    predict.main(["-m", str(trained / "model"), "-i", str(path)])
    rows = lines(capsys.readouterr().out)
    hits = [names[items[-1]] in row["items"] for items, row in zip(users, rows, strict=True)]
    assert np.mean(hits) == pytest.approx(found["Recall@10"])


def test_predictions_of_all_users(trained, tmp_path):
    out = tmp_path / "next.jsonl"
    predict.main(["-m", str(trained / "model"), "--data", str(trained / "data"), "-o", str(out), "-k", "99"])
    rows = lines(out.read_text())
    assert sorted(row["user"] for row in rows) == sorted(f"u{number}" for number in range(80))
    assert all(len(set(row["items"])) == 20 and np.all(np.diff(row["scores"]) <= 0) for row in rows)


def test_refused(trained, tmp_path, capsys):
    model = str(trained / "model")
    other = markov_table(tmp_path / "i.csv", users=20, length=8, items=19)
    prepare([other], tmp_path / "data")
    refused("has different items from the model", evaluate.main, ["-m", model, "--data", str(tmp_path / "data")])
    refused("cannot tell which histories", predict.main, ["-m", model])
    path = tmp_path / "bad.jsonl"
    path.write_text('["i1"]\n{"items": "i1"}\n')
    refused(r"bad.jsonl, line 2 is not a history", predict.main, ["-m", model, "-i", str(path)])
    refused("the folder of a sequence model", export.main, ["-m", str(tmp_path), "-o", str(tmp_path / "1")])


def test_the_playground_answers_as_predict_does(trained, capsys):
    answers = answers_of(str(trained / "model"))
    about = answers.about()
    assert (about["labels"], about["k"], about["history"]) == (20, 20, True)
    found = answers.ask(" i3\nwhat?\n\ni7", 4)
    assert found["unknown"] == ["what?"]
    capsys.readouterr()
    predict.main(["-m", str(trained / "model"), "-q", "i3", "-q", "i7", "-k", "4"])
    (expected,) = lines(capsys.readouterr().out)
    assert [one["name"] for one in found["labels"]] == expected["items"]
    np.testing.assert_allclose([one["score"] for one in found["labels"]], expected["scores"], atol=1e-4)
    assert all(PreparedFolder(trained / "data").item_names()[one["label"]] == one["name"] for one in found["labels"])
    refused("k is out of range", answers.ask, "i3", 21)


def test_names_that_one_rank_cannot_read_are_an_error_on_all(tmp_path, monkeypatch):
    model = SimpleNamespace(nr_items=1, replicated=[], table=None)
    header = {"params": SequenceParams().to_json(), "items": 1}
    for name, result in (("Recommender", model), ("read_header", header), ("load_tables", {})):
        monkeypatch.setattr(model_folder, name, lambda *_, result=result, **__: result)
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "items.txt").write_text("i0\n")

    def load(world):
        return model_folder.load_model(tmp_path / str(world.rank), SimpleNamespace(communicator=world))

    assert ["items.txt" in str(one) for one in on_ranks(2, load)] == [True, True]
