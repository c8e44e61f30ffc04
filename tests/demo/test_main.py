"""The demonstration from end to end, on a small package in place of the installed ones."""

import importlib
import io
import re
from functools import partial
from pathlib import Path

import pytest

from tests.demo.test_corpus import write_package
from xmc_tf.common.errors import InputError
from xmc_tf.demo import __main__ as demo
from xmc_tf.demo import corpus, encoder
from xmc_tf.models.xtransformer import XTransformer


@pytest.fixture
def small(tmp_path, monkeypatch):
    source = write_package(tmp_path / "source")
    monkeypatch.setattr(corpus, "package_folders", lambda packages: {"pack": source})
    monkeypatch.setattr(corpus, "collect", partial(corpus.collect, least=3, largest_share=0.5))
    return str(tmp_path / "work")


def test_from_raw_texts_to_label_names(small, capsys, monkeypatch):
    pytest.importorskip("tensorflow")
    monkeypatch.setattr(demo, "pretrained_folder", lambda: None)
    # The commands run in this process, which has loaded TensorFlow already.
    monkeypatch.setattr(demo, "_call", lambda module, arguments: importlib.import_module(module).main(arguments))
    demo.main(["--work", small, "--no-ask"])
    out = capsys.readouterr().out
    table = {line.strip().split("  ")[0]: re.findall(r"\d+\.\d\d", line) for line in out.splitlines()}
    baseline = table["always the most frequent labels"]
    for name in ("XR-Linear", "XR-Transformer"):
        assert len(table[name]) == 3
        assert float(table[name][0]) > 2 * float(baseline[0])
    assert "a tiny one is trained from scratch" in out
    assert out.count("✓") >= 3
    assert "5  New texts" in out
    assert "✓" in out.split("3  XR-Transformer")[0]  # answers come before the fine-tuning
    assert "xmc_tf.evaluate" in out.split("What next")[1]
    assert "\x1b" not in out

    # Again: the data are there, and this time somebody types.
    demo._data(Path(small, "data"))
    monkeypatch.setattr("sys.stdin", io.StringIO("Sorts a matrix\n\nnever read\n"))
    demo._try(XTransformer.load(Path(small, "xr-transformer")), ask=True)
    again = capsys.readouterr().out
    assert f"already in {small}" in again
    assert "about: matrix" in again.split("text>")[1]
    assert again.count("text>") == 2


def test_the_table_is_made_of_the_packages_that_are_installed(tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(demo, "PACKAGES", {"json": "", "no_such_package": ""})
    monkeypatch.setattr(demo, "write_table", lambda path, packages: asked.append(packages) or 7)
    demo.main(["--table", str(tmp_path / "data.csv")])
    assert asked == [["json"]]
    assert ": 7 rows" in " ".join(capsys.readouterr().out.split())


def test_texts_are_labelled_on_a_page_with_their_labels_hidden(small, monkeypatch, capsys):
    run = []
    monkeypatch.setattr(demo.os, "execv", lambda program, words: run.append(words))
    for _ in range(2):  # the second time, the texts are there
        demo.main(["--label", "--work", small])
    assert run[0] == run[1]
    _, _, command, texts, _, subjects, *_ = run[0]
    assert command == "xmc_tf.label"
    assert "matrix" in Path(texts).read_text()
    assert "matrix" in Path(subjects).read_text().splitlines()
    assert len(capsys.readouterr().out.strip().splitlines()) == 2 * 3
    with pytest.raises(InputError, match="mutually exclusive"):
        demo.main(["--label", "--table", "data.csv"])


def test_a_pretrained_encoder_is_found_where_make_puts_it(tmp_path, monkeypatch):
    monkeypatch.setattr(encoder, "PACKAGE", "no_such_package")
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    assert encoder.pretrained_folder() is None
    folder = tmp_path / "encoders" / "no_such_package" / "model"
    folder.mkdir(parents=True)
    assert encoder.pretrained_folder() is None
    (folder / "config.json").write_text("{}")
    assert encoder.pretrained_folder() == folder


def test_a_failing_step_ends_the_demo_with_its_exit_code(tmp_path, capfd):
    with pytest.raises(SystemExit) as stop:
        demo._call("xmc_tf.linear.train", demo._inputs(tmp_path, tmp_path / "model"))
    assert stop.value.code == 2
    assert "does not exist" in capfd.readouterr().err
