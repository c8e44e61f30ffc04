"""An untidy table goes through all commands without a flag being repeated, and the screen says what is left out."""

import csv
import random
import re
from importlib import import_module
from pathlib import Path

import pytest

from xmc_tf.__main__ import MODULES
from xmc_tf.models.loading import load

TOPICS = {
    "climate": "warming carbon emission", "forests": "timber wood canopy", "music": "melody violin orchestra",
    "physics": "quantum photon electron", "history": "empire medieval revolution", "cooking": "oven recipe soup",
}  # fmt: skip
IDS = {topic: f"gnd:{4134800 + place}-{place}" for place, topic in enumerate(TOPICS)}


def rows(count, seed, prefix):
    draw = random.Random(seed)
    for number in range(count):
        topics = draw.sample(list(TOPICS), draw.choice([1, 2]))
        words = [draw.choice(TOPICS[topic].split()) for topic in topics for _ in range(6)]
        bare = number % 7 == 3  # 14 %
        yield [
            f"{prefix}{number}",
            " ".join(words[:3]),
            " ".join(words[3:]),
            "" if bare else "; ".join(IDS[t] for t in topics),
        ]


def write(path, found):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "title", "abstract", "gnd"], *found])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("untidy")
    write(folder / "old.csv", rows(210, 0, "a"))
    write(folder / "new.csv", rows(70, 1, "b"))
    (folder / "names.tsv").write_text("".join(f"{one}\t{topic.title()}\n" for topic, one in IDS.items()))
    return folder


def test_all_commands_in_turn(trained, monkeypatch, capsys, caplog):
    monkeypatch.chdir(trained)
    _command("train")([
        "old.csv", "-m", "model", "--text-column", "title,abstract", "--label-column", "gnd", "--effort", "fast",
        "--names-file", "names.tsv", "--keep-training-data", "--report", "report",
    ])  # fmt: skip
    said = capsys.readouterr().out + caplog.text
    assert "30 of 210 rows are left out: 30 × no label" in said
    assert "examples" in said
    assert "Climate" in said  # labels go by their names
    assert (trained / "model" / "README.md").exists()

    caplog.clear()
    _command("append")(["new.csv", "-m", "model"])
    assert "10 of 70 documents have no text or no label and are not appended" in caplog.text

    _command("predict")(["new.csv", "-m", "model", "-o", "labels.csv"])
    with (trained / "labels.csv").open(encoding="utf-8") as file:
        answers = list(csv.DictReader(file))
    assert len(answers) == 70
    assert answers[0]["id"] == "b0"

    caplog.clear()
    capsys.readouterr()
    _command("evaluate")(["new.csv", "-m", "model", "--rows", "all", "--report", "new-report"])
    assert "10 of 70 documents have no text or no label and are not measured" in caplog.text
    printed = capsys.readouterr().out
    assert float(re.search(r"^model +([\d.]+)", printed, re.MULTILINE)[1]) > 90, printed  # P@1
    assert named_examples("new-report") >= {"b"}

    _command("report")(["old.sqlite", "-m", "model", "-o", "report"])
    assert named_examples("report") >= {"a"}

    _command("export")(["-m", "model", "-o", "served/1"])
    assert "import tensorflow_text" in capsys.readouterr().out
    assert load("model").metadata.columns.texts == ("title", "abstract")


def named_examples(folder):
    """Return the letters of the ids with which the examples of a report begin, each followed by the text."""
    page = Path(folder, "report.html").read_text(encoding="utf-8")
    words = "|".join(word for topic in TOPICS.values() for word in topic.split())
    return set(re.findall(rf"<summary>(?:<[^>]*>)*([ab])\d+(?:<[^>]*>|\s)*(?:{words})", page))


def _command(name):
    module = import_module(MODULES[name])
    return (import_module(f"{MODULES[name]}.__main__") if hasattr(module, "__path__") else module).main
