"""The same model in TensorFlow and in ONNX Runtime, with weights of 32 and of 8 bits.

    python -m benchmarks.runtimes --model MODEL --data DIR [--texts 2000] [--rounds 3] [--requests 2000]

MODEL was trained with an encoder; DIR holds X.tst.txt and Y.tst.npz. The sides take turns, each in processes of its
own. Prints one JSON line. Per side: seconds from the start of a process to its first answer, its memory, milliseconds
of one text through the whole model; of the encoder alone, milliseconds of a text of 32 tokens on one core and of 32
texts of 64 tokens on two, by the clock and of the processors, which others on the machine disturb least; P@1, P@3, P@5;
requests per second of ``xmc-tf serve`` under 50 clients, and those without an answer. Beside them the largest
difference of a score from TensorFlow's, for the model and for a tiny encoder of each architecture with windows of long
texts, and the size of the packages that a server installs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.server_load import Server, free_port
from tests.encoder.tiny import ARCHITECTURES, VOCABULARY, perturbed, tiny_encoder
from xmc_tf.data import TextFile, TokenStore, load_matrix
from xmc_tf.encoder import encode_windows
from xmc_tf.encoder.onnx.encoder import OnnxEncoder
from xmc_tf.metrics import measure
from xmc_tf.models.loading import load

_SIDE = Path(__file__).parent / "sides" / "runtime_side.py"
_ROOT = Path(__file__).parents[1]
_SHAPES = {"one_text": (1, 32, 1), "batch": (32, 64, 2)}
_INSTALLED = (
    "numpy", "scipy", "numba", "llvmlite", "msgpack", "simplemma", "py3langid", "onnxruntime", "safetensors",
    "tokenizers", "uvicorn", "httptools", "prometheus-client", "flatbuffers", "protobuf", "packaging",
    "huggingface-hub", "hf-xet",
)  # fmt: skip
_TENSORFLOW = ("tensorflow", "tensorflow-text", "keras", "h5py", "transformers", "tensorboard", "grpcio", "ml-dtypes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a model with an encoder")
    parser.add_argument("--data", type=Path, required=True, help="folder of X.tst.txt and Y.tst.npz")
    parser.add_argument("--texts", type=int, default=2000, help="texts whose scores are compared (default 2,000)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side (default 3)")
    parser.add_argument("--requests", type=int, default=2000, help="requests to each server (default 2,000); 0: none")
    a = parser.parse_args()
    texts = a.data / "X.tst.txt"
    with tempfile.TemporaryDirectory(prefix="xmc-tf-runtimes-") as work:
        sides = {"tensorflow": (a.model, "tensorflow")}
        for name, precision in (("onnx", "fp32"), ("onnx_int8", "int8")):
            load(a.model).export_onnx(f"{work}/{name}", precision=precision)  # type: ignore[attr-defined]
            sides[name] = (f"{work}/{name}", "onnx")
        results = {name: _Figures() for name in sides}
        for _ in range(a.rounds):
            for name, side in sides.items():
                results[name].add(*side, texts)
        figures: dict[str, Any] = {name: one.result() for name, one in results.items()}
        first = load(a.model).predict(*_texts(texts, a.texts))
        truth = load_matrix(a.data / "Y.tst.npz").tocsr()[: a.texts]
        for name, (folder, runtime) in sides.items():
            found = first if name == "tensorflow" else load(folder, runtime=runtime).predict(*_texts(texts, a.texts))
            figures[name] |= {f"P@{k}": round(100 * measure(truth, found, ks=[k])[0].at("P", k), 2) for k in (1, 3, 5)}
            figures[name]["difference"] = float(abs(found - first).max())
        if a.requests:
            for name, served in _served(sides, texts, a.requests).items():
                figures[name] |= served
    print(json.dumps({
        "figure": "runtimes", "aim": {"one_text": 0.6, "int8_one_text": 0.25, "first_answer_s": 0.7, "memory_mb": 350},
        **figures, "architectures": {name: _difference(name) for name in ARCHITECTURES},
        "installed_mb": {"onnx": _megabytes(_INSTALLED), "tensorflow": _megabytes(_TENSORFLOW)},
        "versions": {name: version(name) for name in ("tensorflow", "onnxruntime", "tokenizers")},
    }))  # fmt: skip


class _Figures:
    """The figures of a side, of several processes."""

    def __init__(self) -> None:
        self._first: list[float] = []
        self._memory: list[float] = []
        self._ms: dict[str, list[float]] = defaultdict(list)

    def add(self, model: str, runtime: str, texts: Path) -> None:
        """Run the side once."""
        began = time.perf_counter()
        command = [sys.executable, str(_SIDE), "answer", model, runtime, str(texts)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment()) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "answered\n"
            self._first.append(time.perf_counter() - began)
            found = json.loads(process.stdout.readline())
        assert found["tensorflow"] == (runtime == "tensorflow")
        self._memory.append(found["memory_mb"])
        self._ms["model"] += found["ms"]
        for shape, numbers in _SHAPES.items():
            command = [sys.executable, str(_SIDE), "encoder", model, runtime, *map(str, numbers)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=_environment())
            found = json.loads(done.stdout)
            self._ms[shape] += found["ms"]
            self._ms[f"{shape}_processor"] += found["processor_ms"]

    def result(self) -> dict[str, float]:
        """Return medians; of the first answer also the least, which other processes disturb least."""
        return {
            "first_answer_s": round(float(np.median(self._first)), 2),
            "least_first_answer_s": round(min(self._first), 2),
            "memory_mb": round(max(self._memory)),
            **{f"{name}_ms": round(float(np.median(ms)), 2) for name, ms in self._ms.items()},
        }  # fmt: skip


def _served(sides: Mapping[str, tuple[str, str]], path: Path, requests: int) -> dict[str, dict[str, float]]:
    """Return the requests per second of a server of each side, one after the other, under 50 clients."""
    texts = [text.decode() for text in TextFile(path).lines(0, 500)]
    texts *= -(-requests // len(texts))
    found = {}
    for name, (folder, runtime) in sides.items():
        port = free_port()
        command = [sys.executable, "-m", "xmc_tf.server", "-m", folder, "--runtime", runtime, "-p", str(port)]
        server = Server(command, port, "/v1/models/xmc:predict", lambda text: {"inputs": [text]})
        server.wait()
        server.ask(texts[:200], 50, record=False)
        server.ask(texts[:requests], 50)
        found[name] = {f"served_{key}": value for key, value in server.result().items()}
    return found


def _difference(architecture: str, documents: int = 2000) -> float:
    """Return the largest difference of a probability between the runtimes, with one to three windows a document."""
    draw = np.random.default_rng(0)
    counts = draw.integers(1, 4, documents).astype(np.int32)
    lengths = draw.integers(1, 25, counts.sum()).astype(np.int32)
    ids = draw.integers(10, VOCABULARY, lengths.sum()).astype(np.int32)
    store = TokenStore(ids, lengths, {"fingerprint": "", "about": {}}, Path("random tokens"), counts)
    encoder = perturbed(tiny_encoder(architecture, "mean"))
    with tempfile.TemporaryDirectory() as folder:
        encoder.save(folder)
        sides = encoder, OnnxEncoder.load(folder)
        ours, theirs = (encode_windows(one, store, np.arange(documents)).of_documents("mean") for one in sides)
    head = draw.normal(size=(ours.shape[1], 100))
    return float(np.abs(*np.diff([1 / (1 + np.exp(-vectors @ head)) for vectors in (ours, theirs)], axis=0)).max())


def _texts(path: Path, count: int) -> list[list[bytes]]:
    return [TextFile(path).lines(0, count)]


def _megabytes(packages: tuple[str, ...]) -> int:
    """Return the size of installed packages on the disk."""
    files = (file for name in packages for file in distribution(name).files or [])
    return round(sum(os.stat(file.locate()).st_size for file in files if os.path.exists(file.locate())) / 1e6)


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(_ROOT)}


if __name__ == "__main__":
    main()
