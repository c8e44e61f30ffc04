"""An encoder fine-tuned on a table, and its labels for another one."""

import csv
import json
import re
import shutil

import pytest

from tests.files import contents
from tests.jobs.conftest import documents
from xmc_tf import XTransformer, evaluate
from xmc_tf.common.errors import InputError
from xmc_tf.demo.encoder import make_tiny
from xmc_tf.encoder import TextTokenizer
from xmc_tf.evaluate import main as measure
from xmc_tf.predict import main as predict
from xmc_tf.tables.runs import runs_of
from xmc_tf.tables.store import TableStore
from xmc_tf.train import main as train


@pytest.fixture
def tiny(tmp_path):
    """The folder of a tiny encoder."""
    texts = [text for text, _ in documents(200, 2)]
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return make_tiny(tmp_path / "tiny", texts, length=16, **sizes)


@pytest.fixture
def tokenized(monkeypatch):
    """Return a list to which each text that is tokenized is added."""
    texts, computed = [], TextTokenizer._computed
    monkeypatch.setattr(
        TextTokenizer, "_computed", lambda self, some, limit: texts.extend(some) or computed(self, some, limit)
    )
    return texts


def test_an_encoder_is_fine_tuned_on_a_table(multi, tiny, tokenized, tmp_path, capsys, caplog):
    texts = [text for text, _ in documents(200, 2)]
    flags = ["--model-shortcut", tiny, "--max-steps", 2, "--truncate-length", 16]
    train([str(one) for one in (multi, "-m", tmp_path / "model", *flags, "--report", tmp_path / "report")])
    assert set(tokenized) >= {*texts, "music", "travel"}
    shown = capsys.readouterr().out
    store = TableStore.open(multi.with_suffix(".sqlite"))
    (run,) = runs_of(store)
    model = XTransformer.load(tmp_path / "model")
    found = evaluate(store.labels("test"), model.predict(store.texts("test")), (1,))
    assert run.metrics["P@1"] == pytest.approx(found.at("P", 1))
    assert (run.kind, run.documents["train"]) == ("XR-Transformer", 160)
    assert f"{100 * found.at('P', 1):.2f}" in shown
    costs = r" +\d+ +[\d.]+ +[1-9][\d.]* [KM]B\n"  # seconds, milliseconds, size
    precision = rf"{100 * found.at('P', 1):.2f}( +[\d.]+)*"
    assert re.search(rf"\n +with the encoder +{precision}{costs} +linear( +[\d.]+)+{costs}", shown)
    assert re.search("the encoder (improves|changes|lowers) the mean of P@1", shown)
    # Training says of the validation documents what the warning of the evaluation counts.
    assert "evaluate counts them as used in training" in " ".join(shown.split())
    assert [step for step, _ in run.curve["training loss, level 1"]] == [1, 2]
    (point,) = run.curve["validation precision in %, level 1: P@1"]
    assert point[0] == 2
    curves = json.loads((tmp_path / "report" / "report.json").read_text())["curves"]
    assert {"name": "P@1", "chart": "validation precision in %, level 1", "steps": [2], "values": [point[1]]} in curves
    assert not (tmp_path / "model.work").exists()
    predict([str(multi), "-m", str(tmp_path / "model"), "-o", str(tmp_path / "out.csv"), "-k", "2"])
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [[row["label 1"], row["label 2"]] for row in rows[:20]] == [
        [name for name, _ in best] for best in model.best(texts[:20], k=2)
    ]
    capsys.readouterr()
    measure([str(multi), "-m", str(tmp_path / "model"), "--json"])  # the test documents, as in the training
    measured = json.loads(capsys.readouterr().out)
    assert "180 of 200 documents were used in training" in caplog.text
    assert (measured["documents"], measured["systems"][0]["P@1"]) == (20, pytest.approx(run.metrics["P@1"]))

    # A second training tokenizes nothing; a table with another text is read and tokenized again.
    tokenized.clear()
    caplog.set_level("INFO")
    train([str(one) for one in (multi, "-m", tmp_path / "second", *flags)])
    assert tokenized == []
    assert f"no text was tokenized: {multi.with_suffix('.sqlite')} has the tokens of all" in caplog.text
    expected = contents(tmp_path / "model")
    del expected["README.md"]  # the card, which the report has written
    assert contents(tmp_path / "second") == expected
    some = model.best(texts[:3], k=2, only_labels=["music", "travel"])
    assert {name for best in some for name, _ in best} == {"music", "travel"}


@pytest.mark.full
def test_a_corrected_table_repeats_the_stages_that_depend_on_it(multi, tiny, tmp_path, caplog):
    """With the work folder of an earlier training, the model is that of a training without it."""
    caplog.set_level("INFO")
    flags = ["--model-shortcut", tiny, "--no-fine-tune", "--truncate-length", 16, "--test", 0, "--keep-work"]
    texts = [text for text, _ in documents(200, 2)]

    def made(name):
        caplog.clear()
        train([str(one) for one in (multi, "-m", tmp_path / name, "--work-dir", tmp_path / "work", *flags)])
        reused = re.findall(r"(\S+): reused from", caplog.text)
        return XTransformer.load(tmp_path / name).best(texts[:40], k=2), reused

    before, _ = made("before")
    again, reused = made("again")
    assert again == before
    assert {"features", "rankers", "documents"} <= set(reused)
    multi.write_text(multi.read_text().replace("music", "sports"))
    corrected, reused = made("corrected")
    assert "data set: read again (labels changed)" in caplog.text
    assert corrected != before
    assert "music" not in {name for best in corrected for name, _ in best}
    assert not {"rankers", "documents"} & set(reused)
    shutil.rmtree(tmp_path / "work")
    assert made("from the beginning")[0] == corrected


def test_settings_of_an_encoder_are_not_compared(multi, tmp_path):
    with pytest.raises(InputError, match=r"--minutes .* an encoder: settings are compared for linear rankers only"):
        train([str(multi), "-m", str(tmp_path / "model"), "--model-shortcut", "tiny", "--minutes", "3"])
