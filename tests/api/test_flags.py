"""Every flag of a command changes the result or is refused, with every kind of documents and of models."""

import argparse
import contextlib
import json
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.docs.tiny_data import write_files
from tests.refusals import refused
from tests.sequences.chains import markov_table
from xmc_tf import (
    HierarchicalKMeansParams,
    MatcherParams,
    MatcherPredParams,
    TextFile,
    XRLinear,
    XRLinearParams,
    XTransformer,
    XTransformerParams,
    XTransformerPredParams,
    load_matrix,
)
from xmc_tf.common.errors import InputError
from xmc_tf.data import save_matrix
from xmc_tf.features import Tfidf
from xmc_tf.launch.__main__ import main as launch
from xmc_tf.launch.options import parser as launch_parser
from xmc_tf.predict import main as predict
from xmc_tf.sequences.data.preparation import prepare
from xmc_tf.sequences.train import main as train_sequences
from xmc_tf.train import main as train


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Documents of every kind, and models of both kinds, whose trees have several levels."""
    folder = write_files(tmp_path_factory.mktemp("flags"))
    texts, Y = TextFile(folder / "X.trn.txt"), load_matrix(folder / "Y.trn.npz")
    names = (folder / "labels.txt").read_text().split("\n")[:-1]
    tree = HierarchicalKMeansParams(nr_splits=2, min_codes=2, max_leaf_size=2)
    linear = XRLinear.train(texts, Y, names=names, params=XRLinearParams(tree=tree), keep_training_data=True)
    linear.save(folder / "linear")
    XRLinear.train(load_matrix(folder / "X.trn.npz"), Y, params=XRLinearParams(tree=tree)).save(folder / "features")
    matcher = MatcherParams(model_shortcut=str(folder / "encoder"), max_steps=2, batch_size=16)
    XTransformer.train(
        texts, Y, names=names, params=XTransformerParams(tree, tree, matcher),
        pred_params=XTransformerPredParams(MatcherPredParams(truncate_length=16)),
    ).save(folder / "tuned")  # fmt: skip
    draw = np.random.default_rng(1)
    save_matrix(folder / "S.npz", csr_matrix(draw.random((32, 8), np.float32) * (draw.random((32, 8)) < 0.3)))
    save_matrix(folder / "P.npz", linear.predict(TextFile(folder / "X.tst.txt")))
    (folder / "only.txt").write_text("0\n3\n")
    for name, content in {"new": "quantum chemistry", "fewer": "cooking", "groups": "cooking\tgardening"}.items():
        (folder / f"{name}.txt").write_text(f"{content}\n")
    labelled = [f"0,{row % 3}\t{text}\n" for row, text in enumerate(texts)]
    (folder / "labelled.txt").write_text("".join(labelled))
    with contextlib.chdir(folder):
        train(["data.csv", "-m", "recorded", "--effort", "fast"])
        prepare([markov_table(folder / "interactions.csv", users=40, length=8, items=20)], "histories")
        train_sequences([*SEQUENCES, "--set", "model_dir=next"])
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    """The folder as the current one."""
    monkeypatch.chdir(folder)
    return folder


# What is predicted, and by which model; {} is the output.
PREDICTIONS = {
    "a table, linear": ["data.csv", "-m", "linear", "-o", "{}.jsonl"],
    "a file of texts, linear": ["-t", "X.tst.txt", "-m", "linear", "-o", "{}.jsonl"],
    "features, linear": ["-x", "X.tst.npz", "-m", "features", "-o", "{}.jsonl"],
    "a table, encoder": ["data.csv", "-m", "tuned", "-o", "{}.jsonl"],
    "a query, encoder": ["-q", "gradient of a sparse matrix", "-m", "tuned", "-o", "{}.jsonl"],
}
CHANGES = {
    "-k": "2", "-b": "1", "-pp": "sigmoid", "--scores": "ranker", "--threshold": "0.3", "--min-precision": "0.3",
    "--ensemble-method": "transformer-only", "--only-labels": "only.txt", "-so": "S.npz", "-x": "X.tst.npz",
    "-y": "Y.tst.npz", "--layout": "pecos", "--keep": "text", "--column": "label", "--format": "jsonl",
    "--header": "false", "--encoding": "latin-1", "--separator": ";", "--table": "other",
}  # fmt: skip


def result_of(argv, capsys):
    """Return what a prediction prints and writes, or the error."""
    capsys.readouterr()
    try:
        predict([word.format("out") for word in argv])
    except InputError as error:
        return f"refused: {error}"
    return capsys.readouterr().out + Path("out.jsonl").read_text()


def often_or_full(names):
    """Return the names as parameters; those of encoders and sequences are only in make test-all."""
    rare = re.compile("encode|sequences|train files")
    return [pytest.param(name, marks=[pytest.mark.full] if rare.search(name) else []) for name in names]


@pytest.mark.parametrize("kind", often_or_full(PREDICTIONS))
def test_each_flag_of_a_prediction_changes_the_result_or_is_refused(kind, here, capsys):
    base, without_effect = PREDICTIONS[kind], []
    # ASCII is the same in both encodings; there are no probabilities without texts, so scores are the rankers'.
    usual_values = {"--encoding", *(["--scores"] if kind.startswith("features") else [])}
    usual = result_of(base, capsys)
    assert not usual.startswith("refused")
    for flag, value in CHANGES.items():
        changed = result_of([*base, flag, value] if flag not in base else [*base, flag, value, value], capsys)
        if changed == usual and flag not in usual_values:
            without_effect.append(flag)
    assert not without_effect


@pytest.mark.parametrize("model", ["linear", "tuned"])
@pytest.mark.parametrize("documents", [["data.csv"], ["-t", "X.tst.txt"]])
def test_documents_are_predicted_in_chunks(model, documents, here, capsys, monkeypatch):
    sizes, transform = [], Tfidf.transform
    monkeypatch.setattr(
        Tfidf, "transform", lambda self, texts, **more: sizes.append(len(texts)) or transform(self, texts, **more)
    )
    argv = [*documents, "-m", model, "-o", "{}.jsonl"]
    whole = result_of(argv, capsys)
    assert max(sizes) > 7
    sizes.clear()
    chunked = result_of([*argv, "--max-pred-chunk", "7"], capsys)
    assert max(sizes) == 7
    for one, other in zip(chunked.splitlines(), whole.splitlines(), strict=True):
        ours, theirs = json.loads(one), json.loads(other)
        assert ours["labels"] == theirs["labels"]
        # Two units of the sixth decimal: products of other sizes round otherwise.
        assert ours["scores"] == pytest.approx(theirs["scores"], abs=2.5e-6)


SETTINGS = "data_dir=histories model=sasrec max_len=6 sliding_step=3 embed_dim=8 n_layers=1 max_steps=2"
SEQUENCES = [word for setting in SETTINGS.split() for word in ("--set", setting)]
ENCODER = ["--model-shortcut", "encoder", "--max-steps", "1"]
# Command lines that succeed, of each command with flags that depend on the kind of input.
COMMANDS = {
    **{f"predict {kind}": ("predict", argv) for kind, argv in PREDICTIONS.items()},
    "linear.predict": ("linear.predict", PREDICTIONS["features, linear"]),
    "train a table": ("train", ["data.csv", "-m", "{}", "--effort", "fast"]),
    "train an encoder on a table": ("train", ["data.csv", "-m", "{}", *ENCODER]),
    "train files": ("train", ["-t", "X.trn.txt", "-y", "Y.trn.npz", "-m", "{}", *ENCODER]),
    "linear.train texts": ("linear.train", ["-t", "X.trn.txt", "-y", "Y.trn.npz", "-m", "{}"]),
    "linear.train features": ("linear.train", ["-x", "X.trn.npz", "-y", "Y.trn.npz", "-m", "{}"]),
    "encode": ("encode", ["-m", "tuned", "-t", "X.tst.txt", "-o", "{}.npy"]),
    "export": ("export", ["-m", "linear", "-o", "{}/1", "-t", "X.tst.txt", "--warmup", "2"]),
    "explain": ("explain", ["-m", "linear", "sparse matrix"]),
    "append a table": ("append", ["data.csv", "-m", "linear", "-o", "{}"]),
    "audit": ("report.audit", ["data.csv", "-m", "linear", "-o", "{}"]),
    "append files": ("append", ["-t", "X.tst.txt", "-y", "Y.tst.npz", "-m", "linear", "-o", "{}"]),
    "evaluate a table": ("evaluate", ["data.csv", "-m", "linear", "--report", "{}"]),
    "evaluate files": ("evaluate", ["-y", "Y.tst.npz", "-p", "P.npz", "--report", "{}"]),
    "labels add": ("labels.add", ["new.txt", "-m", "linear", "-o", "{}"]),
    "labels remove": ("labels.remove", ["fewer.txt", "-m", "linear", "-o", "{}"]),
    "labels merge": ("labels.merge", ["groups.txt", "-m", "linear", "-o", "{}"]),
    "show": ("tree.show", ["linear/tree"]),
    "prepare": ("prepare", ["data.csv", "-o", "{}.sqlite"]),
    "report": ("report.command", ["data.sqlite", "-m", "linear", "-o", "{}"]),
    "preprocess build": ("preprocess", ["build", "-i", "labelled.txt", "-m", "{}"]),
    "preprocess run": (
        "preprocess",
        ["run", "-p", "linear/features", "-i", "labelled.txt", "-l", "labels.txt", "-x", "{}.npz", "-y", "{}.Y.npz"],
    ),
    "runs": ("runs", ["data.sqlite"]),
    "plan": ("plan.__main__", ["--labels", "3e6", "--docs", "2e6", "--encoder", "bert-base"]),
    "check a model": ("check.__main__", ["--model", "linear"]),
    "demo": ("demo.__main__", ["--table", "{}.csv"]),
    "serve": ("server.__main__", ["-m", "linear", "-p", "0"]),
    "try": ("playground", ["linear", "-p", "0"]),
    "label": ("label", ["data.csv", "--labels", "labels.txt", "-p", "0", "-o", "{}.sqlite"]),
    "sequences prepare": ("sequences.prepare", ["interactions.csv", "-o", "{}"]),
    "sequences train": ("sequences.train", [*SEQUENCES, "--set", "model_dir={}"]),
    "sequences predict": ("sequences.predict", ["-m", "next", "-q", "i3"]),
    "sequences evaluate": ("sequences.evaluate", ["-m", "next", "--data", "histories"]),
    "sequences export": ("sequences.export", ["-m", "next", "-o", "{}/1"]),
}  # fmt: skip


def recorded(monkeypatch, read):
    """Note in ``read`` each flag whose value a command reads, also from copies of its flags."""
    parse = argparse.ArgumentParser.parse_args

    def noting(kind):
        class Noting(kind):
            def __getattribute__(self, name):
                if not name.startswith("_"):
                    read.add(name)
                return super().__getattribute__(name)

        return Noting

    def parse_and_note(self, args=None, namespace=None):
        found = parse(self, args, namespace)
        found.__class__ = noting(type(found))
        read.clear()
        return found

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_note)
    monkeypatch.setattr(argparse, "Namespace", noting(argparse.Namespace))


def unread_flags(module, argv, output, monkeypatch):
    """Return the flags of a command, as argparse's actions, whose values it does not read with a command line."""
    module, read = import_module(f"xmc_tf.{module}"), set()
    parsers = [module.parser()]
    for action in parsers[0]._actions:
        if isinstance(action, argparse._SubParsersAction):
            parsers = [action.choices[argv[0]]]
    actions = [action for action in parsers[0]._actions if action.dest not in ("help", argparse.SUPPRESS)]
    with monkeypatch.context() as patch:
        recorded(patch, read)
        module.main([word.format(output) for word in argv])
    return [action for action in actions if action.dest not in read]


def value_of(action):
    """Return words that set a flag to another value than its default."""
    if action.nargs == 0:
        return []
    if action.choices:
        return [str([one for one in action.choices if one != action.default][-1])]
    if action.metavar == "true/false":
        return [str(not action.default).lower()]
    return ["2" if action.metavar == "INT" else "0.5" if action.metavar == "NUMBER" else "X.tst.txt"]


@pytest.mark.parametrize("name", often_or_full(COMMANDS))
def test_each_flag_is_read_or_refused(name, here, tmp_path, monkeypatch, capsys):
    for server in ("xmc_tf.server.__main__", "xmc_tf.playground", "xmc_tf.label"):
        monkeypatch.setattr(f"{server}.serve", lambda _, bound: bound.close())
    monkeypatch.setattr("xmc_tf.demo.__main__.PACKAGES", ["numpy"])  # reading all of them takes long
    module, argv = COMMANDS[name]
    accepted = []
    for number, action in enumerate(unread_flags(module, argv, tmp_path / "out", monkeypatch)):
        words = [*action.option_strings[:1], *value_of(action)]
        if not action.option_strings or action.option_strings[0] in argv:
            continue
        command = import_module(f"xmc_tf.{module}").main
        with contextlib.suppress(InputError, SystemExit):  # argparse exits
            command([*(word.format(tmp_path / f"out{number}") for word in argv), *words])
            accepted.append(" ".join(words))
    assert not accepted, "these flags are parsed and not used"


# Command lines of the launcher, which says in a dry run what it would do.
LAUNCHES = {
    "one host": ["--np", "2"],
    "several hosts": ["-H", "one:4,two:2"],
    "the first of several nodes": ["--nodes", "2", "--np", "2", "--master-addr", "here"],
}
LAUNCH_VALUES = {
    "--np": "3", "--hosts": "hosts.json", "--hostfile": "hosts.txt", "-H": "three:3",
    "--shared-folder": "linear", "--min-np": "1", "--max-np": "1", "--nodes": "3", "--node-rank": "1",
    "--master-addr": "there", "--master-port": "29501", "--secret-file": "only.txt",
    "--controller": "gloo", "--threads": "3", "--timeout": "61", "--stall-timeout": "61", "--log-dir": "logs",
}  # fmt: skip


@pytest.mark.parametrize("kind", LAUNCHES)
def test_each_flag_of_the_launcher_changes_its_dry_run_or_is_refused(kind, here, capsys):
    (here / "hosts.json").write_text('{"four": 4}')
    (here / "hosts.txt").write_text("five slots=5\n")

    def dry_run(*flags):
        argv = ["--dry-run", "--controller", "mpi", *LAUNCHES[kind], *flags]
        with contextlib.suppress(InputError):
            launch([*argv, "-m", "xmc_tf.train", "-t", "X.trn.txt"])
        return capsys.readouterr().out

    actions = [one for one in launch_parser()._actions if one.dest not in ("help", "dry_run", "module", "script")]
    usual = dry_run()
    assert usual
    ignored = []
    for action in actions:
        flag = action.option_strings[0]
        if dry_run(flag, *([] if action.nargs == 0 else [LAUNCH_VALUES[flag]])) == usual:
            ignored.append(flag)
    assert not ignored


# A value that would be read, and change nothing.
REFUSED = {
    "a file for a list of runs": ("runs", ["data.sqlite", "-o", "runs.csv"]),
    "JSON of a deletion": ("runs", ["data.sqlite", "delete", "1", "--json"]),
    "a speed of no encoder": ("plan.__main__", ["--labels", "9", "--docs", "9", "--docs-per-second", "5"]),
    "a time limit without ranks": ("check.__main__", ["--model", "linear", "--timeout", "5"]),
    "a folder of a demo without models": ("demo.__main__", ["--table", "t.csv", "--work", "demo", "--ask"]),
}


@pytest.mark.parametrize("why", REFUSED)
def test_flags_without_effect_are_refused(why, here):
    module, argv = REFUSED[why]
    error = refused("cannot be used", import_module(f"xmc_tf.{module}").main, argv)
    if why == "a folder of a demo without models":
        assert "leave out --work and --ask" in str(error)


@pytest.mark.parametrize("flag", ["-y", "--truth-path"])
def test_errors_name_a_flag_as_it_was_typed(flag, here):
    refused(f"{flag} cannot be used", import_module("xmc_tf.evaluate").main, ["t.csv", "-m", "model", flag, "y.npz"])
