"""The examples of README, of the explanations and in docstrings run; test_pages.py runs the tutorial and the guides.

README comes first, and leaves a model and its export behind, which the others use.
"""

import doctest
import os
import re
import shutil
from contextlib import nullcontext

import keras
import numpy as np
import pytest
import tensorflow as tf

import xmc_tf
from tests.docs.page_blocks import Reader, run_page
from tests.docs.tiny_data import write_files
from tests.serving.stand_in import rest
from tools.docs import examples
from tools.docs.blocks import blocks
from tools.docs.public_names import docstring, documented
from tools.docs.shown_outputs import compared
from xmc_tf.collective.estimator import EvalSpec, TrainSpec
from xmc_tf.data import TextFile, load_matrix, load_names
from xmc_tf.linear import train

README = examples.ROOT / "README.md"
IN_TEST_PAGES = {examples.ROOT / "docs" / "tutorial.md", *(examples.ROOT / "docs" / "how-to").glob("*.md")}
PAGES = [page for page in examples.pages() if page not in IN_TEST_PAGES | {README}]
PAGES = [page for page in PAGES if any(block.language in examples.RUN for block in blocks(page))]
DOCSTRINGS = {"xmc_tf": xmc_tf.__doc__} | {name: docstring(value) for name, value in documented().items()}
DOCSTRINGS = {name: text for name, text in DOCSTRINGS.items() if [*examples.of_docstring(name, text)]}
# What takes longest, and is tested elsewhere: examples that export or train with an encoder, and those of servers.
LONG = ["Client", "Model.export", "TrainingRun", "XTransformer.export", "XTransformer.train", "serving"]


def often_or_full(names, title=str):
    """Return parameters of a test, those that take longest with the mark of make test-all."""
    return [
        pytest.param(one, id=title(one), marks=[pytest.mark.full] if title(one).removeprefix("xmc_tf.") in LONG else [])
        for one in names
    ]


# What the examples say, and what is used instead: an encoder that needs no network, tables that fit.
INSTEAD = {
    "FOLDER-OR-HUB-NAME": "encoder",
    "sentence-transformers/all-MiniLM-L6-v2": "encoder",
    "10_000_000": "10_000",
    "max_steps=5000": "max_steps=4",
}
SERVER = "http://localhost:8501"


def names():
    """Variables that the examples use and a reader has: data and modules."""
    ids = np.random.default_rng(0).integers(0, 1000, (8, 3))
    data = tf.data.Dataset.from_tensor_slices((ids, np.ones((8, 1), np.float32))).batch(4)

    def make_model():
        model = keras.Sequential(
            [keras.layers.Embedding(1000, 2), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)]
        )
        model.compile("sgd", "mse")
        return model

    return {
        **{name: getattr(xmc_tf, name) for name in xmc_tf.__all__},
        "EvalSpec": EvalSpec,
        "TrainSpec": TrainSpec,
        "data": data,
        "held_out_data": lambda: data,
        "keras": keras,
        "ids": tf.constant([1, 2], tf.int64),
        "make_model": make_model,
        "scale": tf.Variable(2.0),
        "tf": tf,
        "training_data": lambda: data,
        "weights": tf.Variable(tf.ones([3, 1])),
    }


@pytest.fixture(scope="module")
def readme(tmp_path_factory):
    """The folder that README leaves behind, and what each of its blocks printed."""
    folder = write_files(tmp_path_factory.mktemp("readme"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        reader = reader_in(folder)
        printed = [reader.run(block) for block in blocks(README) if block.language in examples.RUN]
        train.main(["-t", "X.trn.txt", "-y", "Y.trn.npz", "-m", "linear", "--labels", "labels.txt"])
    return folder, printed


@pytest.fixture(scope="module")
def after_readme(readme):
    return readme[0]


@pytest.fixture
def folder(after_readme, tmp_path, monkeypatch):
    """A copy of the folder that README leaves behind, which is the current folder."""
    place = tmp_path / "work"
    shutil.copytree(after_readme, place, copy_function=os.link)
    monkeypatch.chdir(place)
    return place


def answering(folder, text):
    """Return a server of the export, if a text names one."""
    return rest(folder / "served" / "1") if SERVER in text else nullcontext(SERVER)


def reader_in(folder, **servers):
    reader = Reader(folder, {old: lambda new=new: new for old, new in (INSTEAD | servers).items()})
    reader.names |= names()
    return reader


def test_readme_trains_measures_and_exports(after_readme):
    assert (after_readme / "served" / "1" / "saved_model.pb").is_file()
    assert (after_readme / "report").is_dir()
    predicted, truth = load_matrix(after_readme / "pred.npz"), load_matrix(after_readme / "Y.tst.npz")
    assert xmc_tf.evaluate(truth, predicted).at("P", 1) > 0.8


def test_readme_shows_the_end_of_a_training_as_it_is_printed(readme):
    """Settings depend on the table, and small tables have no @10; what else is shown is the same, but for numbers."""
    ends = next(block.code for block in blocks(README) if block.code.startswith("settings "))
    results = [line.removesuffix(line.split()[-1]) for line in ends[ends.index("% ") :].splitlines()]
    shown = ["settings", ends[ends.index("results ") : ends.index("% ")].rstrip(), *results]
    printed = [_without_numbers(line) for line in readme[1][0].splitlines()]
    missing = [one for one in shown if not any(line.startswith(_without_numbers(one)) for line in printed)]
    assert not missing, readme[1][0]


def _without_numbers(line):
    return re.sub(r"(?<!@)\b\d[\d.,]*", "N", " ".join(line.split()))


@pytest.mark.parametrize("page", often_or_full(PAGES, lambda page: page.stem))
def test_a_page_runs(page, folder, renew):
    with answering(folder, page.read_text(encoding="utf-8")) as url:
        outputs = list(run_page(page, reader_in(folder, **{SERVER: url})))
    wrong = compared(page, outputs, renew)
    assert wrong == "", wrong


class Checker(doctest.OutputChecker):
    """Compare the outputs that are shown, number for number; ``…`` stands for any text."""

    def check_output(self, want, got, optionflags):
        """Return whether the output is as shown."""
        if not want:
            return True
        flags = optionflags | doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        return super().check_output(want.replace("…", "..."), got, flags)


@pytest.mark.parametrize("name", often_or_full(DOCSTRINGS))
def test_the_example_of_a_docstring_runs(name, folder):
    if name.startswith("xmc_tf.XRLinear"):
        (folder / "model").rename(folder / "other")
        (folder / "linear").rename(folder / "model")
    with answering(folder, DOCSTRINGS[name]) as url:
        assert run_docstring(name, DOCSTRINGS[name].replace(SERVER, url)) == ""


def of_the_folder():
    """Variables of docstrings: what the files of the current folder hold."""
    return {
        "labels": load_matrix("Y.tst.npz"),
        "held_out": lambda: names()["data"],
        "names": load_names("labels.txt"),
        "ratings": lambda: names()["data"],
        "strategy": xmc_tf.CollectiveStrategy(),
        "texts": TextFile("X.tst.txt"),
        "tokenize": lambda lines: [line.split() for line in lines],
        "Y": load_matrix("Y.trn.npz"),
        "Y_test": load_matrix("Y.tst.npz"),
    }


def run_docstring(name, text):
    """Run the examples of a docstring and return what is wrong."""
    for old, new in INSTEAD.items():
        text = text.replace(old, new)
    flags = doctest.ELLIPSIS
    variables = names() | of_the_folder()
    if "model = " not in text and re.search(r"\bmodel\.", text):
        variables["model"] = xmc_tf.load("model")
    test = doctest.DocTestParser().get_doctest(text, variables, name, None, None)
    out = []
    doctest.DocTestRunner(Checker(), verbose=False, optionflags=flags).run(test, out=out.append, clear_globs=False)
    assert test.examples
    return "".join(out)
