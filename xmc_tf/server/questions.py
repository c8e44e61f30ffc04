"""Parse requests and build responses in the REST format of TensorFlow Serving, by row or by column."""

import base64
import binascii
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json

# Signature -> its inputs.
SIGNATURES = {"serving_default": ("text",), "top_k": ("text", "k"), "about": ("text",)}
_KEYS = ("inputs", "instances", "k", "only_labels", "signature_name")


class Question(NamedTuple):
    signature: str
    texts: list[str]
    ks: list[int]  # number of labels of each document; empty: the server's
    by_row: bool  # the request has instances, so the answer has predictions
    only_labels: tuple[str | int, ...] = ()  # names or numbers of the labels that may be predicted; empty: all


class BestLabels(NamedTuple):
    """The best labels of one document, in descending order of score."""

    labels: np.ndarray
    scores: np.ndarray


def parse_question(body: bytes, limit: int) -> Question:
    """Parse the body of a request, which may have up to ``limit`` bytes. Raise InputError if it is invalid."""
    content = parse_json(body, of="the request", limit=limit)
    signature = content.get("signature_name") or "serving_default"
    if not isinstance(signature, str) or signature not in SIGNATURES:
        raise InputError(
            f"there is no signature {str(signature)[:60]!r}", expected=f"signature_name: {', '.join(SIGNATURES)}"
        )
    if unknown := ", ".join(sorted(content.keys() - _KEYS))[:200]:
        raise InputError("a request has unknown keys", expected=", ".join(_KEYS), received=unknown)
    by_row = "instances" in content
    if by_row == ("inputs" in content):
        raise InputError(
            f"a request has {'both' if by_row else 'neither'} inputs {'and' if by_row else 'nor'} instances",
            expected='{"inputs": {"text": ["first text", "second text"]}}',
        )
    names = SIGNATURES[signature]
    columns = _of_rows(content["instances"], names) if by_row else _of_columns(content["inputs"], names)
    texts = [_text(value, row) for row, value in enumerate(columns["text"])]
    ks = columns.get("k", [])
    if "k" in content:
        if "k" in names:
            raise InputError(
                "a request for top_k has a k for each text", received="another k for all texts", fix="leave it out"
            )
        ks = [content["k"]] * len(texts)
    for row, value in enumerate(ks):
        if type(value) is not int:
            raise InputError(f"the value of k at position {row} is not a whole number", received=type(value).__name__)
    if "k" in names and len(ks) != len(texts):
        raise InputError("k must have one number for each text", received=f"{len(ks)} numbers, {len(texts)} texts")
    only = content.get("only_labels")
    if only is not None and not (isinstance(only, list) and only and all(type(one) in (str, int) for one in only)):
        raise InputError(
            "only_labels is not a list of labels", expected='names or numbers, such as "only_labels": ["baking", 7]'
        )
    return Question(signature, texts, ks, by_row, tuple(only or ()))


def _of_rows(rows: Any, names: Sequence[str]) -> dict[str, list[Any]]:
    if not isinstance(rows, list):
        raise InputError("instances is not a list", expected='"instances": [{"text": "first text"}]')
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for row, value in enumerate(rows):
        named = isinstance(value, dict) and set(value) != {"b64"}
        if not named and len(names) > 1:
            raise InputError(f"instances[{row}] is not an object", expected=f"an object with {', '.join(names)}")
        fields = value if named else {names[0]: value}
        if set(fields) != set(names):
            raise InputError(
                f"instances[{row}] does not match the signature",
                expected=", ".join(names),
                received=", ".join(sorted(fields))[:200] or "none",
            )
        for name in names:
            columns[name].append(fields[name])
    return columns


def _of_columns(inputs: Any, names: Sequence[str]) -> dict[str, list[Any]]:
    if isinstance(inputs, list) and len(names) == 1:
        inputs = {names[0]: inputs}
    if not isinstance(inputs, dict) or set(inputs) != set(names):
        received = ", ".join(sorted(inputs))[:200] if isinstance(inputs, dict) else type(inputs).__name__
        raise InputError("inputs does not match the signature", expected=", ".join(names), received=received)
    for name, values in inputs.items():
        if not isinstance(values, list):
            raise InputError(f"input {name} is not a list", expected=f'"{name}": […], with one value per document')
    return inputs


def _text(value: Any, row: int) -> str:
    if isinstance(value, dict) and set(value) == {"b64"} and isinstance(value["b64"], str):
        try:
            return base64.b64decode(value["b64"], validate=True).decode(errors="replace")
        except (binascii.Error, ValueError):
            raise InputError(f"text[{row}] is not valid base64", expected="a UTF-8 text in base64") from None
    if not isinstance(value, str):
        raise InputError(f"text[{row}] is not a string", expected='"…" or {"b64": "…"}', received=type(value).__name__)
    # Lone surrogates, which JSON can contain and UTF-8 cannot.
    return value.encode("utf-8", errors="replace").decode()


def answer_of(
    question: Question, best: Sequence[BestLabels], names: Sequence[str] | None, width: int
) -> dict[str, Any]:
    """Return the labels, scores and names of each document. Rows are padded to ``width`` with label -1."""
    rows = []
    for one in best:
        labels, missing = one.labels.tolist(), width - len(one.labels)
        named = [names[label] if names else str(label) for label in labels] + [""] * missing
        scores = one.scores.tolist() + [0.0] * missing
        rows.append({"labels": labels + [-1] * missing, "scores": scores, "names": named})
    if question.by_row:
        return {"predictions": rows}
    return {"outputs": {key: [row[key] for row in rows] for key in ("labels", "scores", "names")}}


def answer_about_model(question: Question, numbers: dict[str, int]) -> dict[str, Any]:
    """Return the response to the signature ``about``, which repeats the same numbers for each text."""
    if question.by_row:
        return {"predictions": [numbers] * len(question.texts)}
    return {"outputs": {name: [number] * len(question.texts) for name, number in numbers.items()}}
