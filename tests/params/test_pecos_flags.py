"""Every flag of PECOS's commands is accepted, and each has an effect or a warning that says why it has none."""

import argparse
import importlib
import logging

import pytest

from tests.params.pecos_flags import OUR_COMMANDS, PECOS_FLAGS
from xmc_tf.params import WITHOUT_EFFECT, add_without_effect, warn_without_effect

# PECOS's short spelling → the flag of the table.
LONG = {("linear.train", "-mwf"): "--main-workload-factor", ("preprocess build", "-t"): "--dtype"}


def parser_of(command):
    """Return the parser of one of our commands, without required flags."""
    name, _, verb = command.partition(" ")
    parser = importlib.import_module("xmc_tf.jobs.train_flags" if name == "train" else f"xmc_tf.{name}").parser()
    if verb:
        (commands,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        parser = commands.choices[verb]
    for action in [*parser._actions, *parser._mutually_exclusive_groups]:
        action.required = False
    return parser


PARSERS = {command: parser_of(command) for command in set(OUR_COMMANDS.values())}


@pytest.mark.parametrize("module", PECOS_FLAGS)
def test_every_flag_has_an_effect_or_a_warning(module, caplog):
    command = OUR_COMMANDS[module]
    parser, without_effect = PARSERS[command], WITHOUT_EFFECT.get(command, {})
    plain, wrong = vars(parser.parse_args([])), []
    for flag, value in PECOS_FLAGS[module].items():
        caplog.clear()
        given = parser.parse_args([flag] if value is None else [flag, value])
        if command in WITHOUT_EFFECT:
            warn_without_effect(given, command)
        long = LONG.get((command, flag), flag)
        expected = [f"{long} has no effect: {without_effect[long]}"] if long in without_effect else []
        if vars(given) == plain or caplog.messages != expected:
            wrong.append((flag, caplog.messages))
    assert not wrong


@pytest.mark.parametrize(
    ("command", "of_pecos"),
    [
        ("train", ["--trn-text-path", "--trn-feat-path", "--trn-label-path", "--model-dir"]),
        ("linear.train", ["--text-path", "--inst-path", "--label-path", "--model-folder"]),
    ],
)
def test_trainings_take_the_names_of_other_commands_too(command, of_pecos):
    spellings = [["--text-path", "--feat-path", "--label-path", "--model-folder"], of_pecos]
    ours, theirs = (
        PARSERS[command].parse_args([part for flag in flags for part in (flag, "f")]) for flags in spellings
    )
    assert ours == theirs
    assert (ours.text_path, ours.feat_path, ours.label_path, ours.model_folder) == ("f", ["f"], "f", "f")


@pytest.mark.parametrize("command", [command for command in WITHOUT_EFFECT if command in PARSERS])
def test_the_table_is_the_parsers(command, caplog):
    """Each flag of the table is a flag of its command, and nothing is said where none is given."""
    warn_without_effect(PARSERS[command].parse_args([]), command)
    assert not caplog.records
    for flag, reason in WITHOUT_EFFECT[command].items():
        caplog.clear()
        warn_without_effect(PARSERS[command].parse_args([flag, "1"]), command)
        assert caplog.messages == [f"{flag} has no effect: {reason}"]


def test_the_help_leaves_them_out():
    """The reference lists them, with the reasons."""
    parser = argparse.ArgumentParser()
    add_without_effect(parser, "predict")
    assert not [flag for flag in WITHOUT_EFFECT["predict"] if flag in parser.format_help()]
    assert parser.parse_args(["--seed", "1"]).seed == "1"


@pytest.mark.parametrize("command", ["linear.train", "predict", "encode", "train"])
def test_the_commands_warn(command, caplog, tmp_path):
    """By the command itself: it warns before it notices that its files do not exist."""
    if command == "encode":
        pytest.importorskip("tensorflow")
    module = importlib.import_module(f"xmc_tf.{command}")
    flags = {
        "linear.train": ["-x", "no.npz", "-y", "no.npz", "-m", str(tmp_path / "m"), "-mwf", "0.3"],
        "train": ["-t", "no.txt", "-y", "no.npz", "-m", str(tmp_path / "m"), "--hostfile", "hosts"],
        "predict": ["-t", "no.txt", "-m", "no", "--batch-gen-workers", "2"],
        "encode": ["-t", "no.txt", "-m", "no", "-o", "E.npy", "--max-pred-chunk", "2"],
    }
    with pytest.raises((FileNotFoundError, ValueError)), caplog.at_level(logging.WARNING, logger="xmc_tf"):
        module.main(flags[command])
    assert [message for message in caplog.messages if "has no effect: " in message]
