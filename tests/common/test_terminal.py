"""Tests of names with control characters, and of names that are not UTF-8."""

import json
import subprocess
import sys

import pytest

from xmc_tf.common.process.terminal import PrintableOutput, printable, printable_json
from xmc_tf.prepare import main as prepare_main

_SHOW = """
import sys
from xmc_tf.common.process import cli
from xmc_tf.common.errors import InputError
import logging
def main(argv):
    name = sys.argv[1]
    print(name)
    logging.getLogger("x").warning("reading %s", name)
    raise InputError(f"{name} does not exist", fix="look")
cli.run(main)
"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, é, 漢字, 👩\u200d🚀", "plain text, é, 漢字, 👩\u200d🚀"),
        ("red\x1b[31m", "red\\x1b[31m"),
        ("\x9b2J \x7f \x00", "\\x9b2J \\x7f \\x00"),
        ("left\u202eright", "left\\u202eright"),
        ("line\nend\ttab\r", "line\\nend\\ttab\\r"),
        ("\udcff", "\\udcff"),
    ],
)
def test_control_characters_are_escaped(text, shown):
    assert printable(text) == shown


@pytest.mark.parametrize("name", [b"caf\xe9.npz", b"a\x1b]0;owned\x07.npz"])
def test_a_command_shows_any_name(name):
    done = subprocess.run([sys.executable, "-c", _SHOW, name], capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert b"\x1b" not in done.stderr + done.stdout
    assert done.stdout.count(b"npz") == 1
    assert done.stderr.count(b"npz") == 2
    assert b"fix:      look" in done.stderr


def test_json_stays_json():
    content = {"name": "\x1b[31m \x9b \U000e0001 👩\u200d🚀 \udcff", "é": [1, "\n"]}
    text = printable_json(content)
    assert json.loads(text) == content
    assert "é" in text
    assert printable(text) == text


def test_a_result_and_an_unknown_argument_show_the_name_of_a_file_escaped(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", PrintableOutput(sys.stdout))
    table = tmp_path / "data.csv"
    table.write_text("text,label\n" + "a text,x\nanother,y\n" * 20, encoding="utf-8")
    output = tmp_path / "red\x1b[31m.sqlite"
    prepare_main([str(table), "-o", str(output)])
    assert output.exists()
    assert "red\\x1b[31m.sqlite" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        prepare_main([str(table), "--unknown\x1b[31m"])
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "--unknown\\x1b[31m" in said
