"""The table of signatures on the page on serving is right."""

import re

import tensorflow as tf

from tests.distributed.launch import REPOSITORY

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
