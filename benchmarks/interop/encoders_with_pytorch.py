"""Check that encoders of every architecture compute what PyTorch's transformers computes, and the same gradients.

    python -m benchmarks.interop.encoders_with_pytorch --peer PYTHON

PYTHON runs an environment with torch and transformers. Tiny encoders with random weights, of each architecture and its
variants, read documents of several lengths: one token, padding, and the longest length. One JSON line a case gives the
largest differences; the exit status is 1 if a hidden state differs by more than 1e-5, or a gradient by more than 1e-5
of the largest gradient of the case. With --write, PyTorch's embeddings of these
cases become those that ``tests/encoder`` expects.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests.encoder.tiny import CASES, EXPECTED, LENGTHS, documents, perturbed, tiny_content
from xmc_tf.encoder import Encoder
from xmc_tf.encoder.network.attention import Layout
from xmc_tf.encoder.network.forward import Forward
from xmc_tf.encoder.network.operations import Operations, TrainingOperations
from xmc_tf.encoder.network.packed_layout import PackedLayout
from xmc_tf.encoder.weight_files import in_files

_TOLERANCE = 1e-5
_SIDE = Path(__file__).with_name("encoders_peer_side.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="a Python with torch and transformers")
    parser.add_argument("--cases", nargs="+", choices=sorted(CASES), default=sorted(CASES))
    parser.add_argument("--write", action="store_true", help=f"write {EXPECTED.name}")
    options = parser.parse_args()
    expected = {}
    with tempfile.TemporaryDirectory() as temporary:
        folders = {case: Path(temporary, case) for case in options.cases}
        encoders = {case: prepare(case, folder) for case, folder in folders.items()}
        subprocess.run([options.peer, str(_SIDE), *map(str, folders.values())], check=True)
        agree = []
        for case, folder in folders.items():
            result = compare(encoders[case], folder)
            agree.append(result["agrees"])
            expected[case] = _means(folder)
            print(json.dumps({"interop": "encoders_with_pytorch", "case": case, **result}), flush=True)
    if options.write:
        expected = json.loads(EXPECTED.read_text()) | expected
        lines = [f"{json.dumps(case)}: {json.dumps(expected[case])}" for case in sorted(expected) if case in CASES]
        EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    sys.exit(0 if all(agree) else 1)


def _means(folder: Path) -> list[list[float]]:
    """Return the means of PyTorch's states of each document."""
    mask = np.load(folder / "inputs.npz")["mask"][:, :, None]
    means = (np.load(folder / "outputs.npz")["states"] * mask).sum(axis=1) / mask.sum(axis=1)
    return [[round(float(value), 6) for value in row] for row in means]


def prepare(case: str, folder: Path) -> Encoder:
    """Write an encoder and its inputs."""
    encoder = perturbed(Encoder.from_config(tiny_content(case), seed=3))
    encoder.save(folder)
    ids, mask = documents(case, (*LENGTHS, min(encoder.max_length, 64)))
    rng = np.random.default_rng(4)
    factors = rng.standard_normal((*ids.shape, encoder.dim)).astype(np.float32) * mask[:, :, None]
    more = {"pooler_factors": rng.standard_normal((len(ids), encoder.dim)).astype(np.float32)}
    if encoder.architecture == "xlnet":
        last = np.arange(ids.shape[1]) == mask.sum(axis=1, keepdims=True) - 1
        more["segments"] = np.where(mask == 0, 3, np.where(last, 2, 0))
    np.savez(folder / "inputs.npz", ids=ids, mask=mask, factors=factors, **more)
    return encoder


def compare(encoder: Encoder, folder: Path) -> dict[str, object]:
    """Return the largest differences of states and gradients, in and outside of training, packed and padded."""
    given, theirs = np.load(folder / "inputs.npz"), np.load(folder / "outputs.npz")
    config, mask = encoder.config.with_dropout(0.0), tf.constant(given["mask"])
    real = given["mask"][:, :, None] > 0
    difference = {"states": 0.0, "pooler": 0.0, "gradients": 0.0}
    worst = ""
    for training, packed in ((False, True), (True, True), (True, False)):
        operations = Operations(config.activation, config.epsilon)
        if training:
            operations = TrainingOperations(config.activation, config.epsilon, tf.zeros([2], tf.int64), False)
        layout = PackedLayout(mask, rounded=not training) if packed else Layout(tf, mask)
        with tf.GradientTape() as tape:
            forward = Forward(config, encoder.weights, layout, operations, tf.float32)
            rows = layout.unpack(forward.states(tf.where(mask > 0, given["ids"], encoder.pad_id)))
            states = tf.reshape(rows, given["factors"].shape)
            loss = tf.reduce_sum(states * given["factors"])
            if "pooler" in theirs:
                pooled = forward.pooler(states[:, 0])
                loss += tf.reduce_sum(pooled * given["pooler_factors"])
                _largest(difference, "pooler", np.abs(pooled - theirs["pooler"]))
        _largest(difference, "states", np.where(real, np.abs(states - theirs["states"]), 0))
        gradients = dict(zip(encoder.weights, tape.gradient(loss, list(encoder.weights.values())), strict=True))
        given_up = [weight for weight in encoder.listed_weights if gradients[weight.name] is not None]
        values = {one.name: tf.convert_to_tensor(gradients[one.name]).numpy() for one in given_up}
        ours = in_files(given_up, values)
        known = {name.removeprefix("gradient ") for name in theirs if name.startswith("gradient ")}
        if known != set(ours):
            return {"agrees": False, "only one has a gradient of": sorted(known ^ set(ours))[:5]}
        scale = max(float(np.abs(theirs[f"gradient {name}"]).max()) for name in known)
        for name in sorted(known):
            found = np.abs(ours[name] - theirs[f"gradient {name}"]) / scale
            if found.max() > difference["gradients"]:
                worst = name
            _largest(difference, "gradients", found)
    agrees = all(value <= _TOLERANCE for value in difference.values())
    return {"agrees": agrees, **{name: f"{value:.1e}" for name, value in difference.items()}, "worst": worst}


def _largest(difference: dict[str, float], name: str, found: np.ndarray) -> None:
    difference[name] = max(difference[name], float(np.max(found)))


if __name__ == "__main__":
    main()
