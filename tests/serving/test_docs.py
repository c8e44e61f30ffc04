"""The statements of the page on serving are true."""

import re

import tensorflow as tf

from tests.distributed.launch import REPOSITORY
from xmc_tf import export
from xmc_tf.playground import parser as playground_parser

PAGE = (REPOSITORY / "docs" / "explanation" / "serving.md").read_text()


def test_the_signatures_are_those_of_an_exported_model(exported):
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    documented = {name: (inputs, outputs) for name, inputs, outputs in rows}
    signatures = tf.saved_model.load(str(exported)).signatures
    assert set(signatures) == set(documented) - {"embed"}  # this model has no encoder
    for name, function in signatures.items():
        inputs, outputs = documented[name]
        for given in function.structured_input_signature[1]:
            assert f"`{given}`" in inputs
        if "the same" not in outputs or name == "paths":
            for output in set(function.structured_outputs) - {"labels", "scores", "names"}:
                assert f"`{output}`" in outputs


def test_the_commands_are_understood():
    lines = [line.split("#")[0].split() for line in PAGE.splitlines() if line.startswith("python -m xmc_tf")]
    assert [line[2] for line in lines] == ["xmc_tf.export", "xmc_tf.playground"]
    assert export.parser().parse_args(lines[0][3:]).beam_size == 20
    assert playground_parser().parse_args(lines[1][3:]).model == "served"


def test_what_the_page_names_exists():
    for name in re.findall(r"\]\(\.\./\.\./([^)]+)\)", PAGE):
        assert (REPOSITORY / name).exists(), name
    for module in re.findall(r"python -m (tests\.[\w.]+)", PAGE):
        assert (REPOSITORY / (module.replace(".", "/") + ".py")).is_file(), module
