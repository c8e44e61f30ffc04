import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.extras import pip_install, require
from xmc_tf.common.threads import thread_count
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.modules import Modules
from xmc_tf.encoder.onnx.graph import DATA, Graph
from xmc_tf.encoder.onnx.network import INPUTS, network_graph
from xmc_tf.encoder.reading import read_encoder, read_saved, write_modules
from xmc_tf.encoder.sources import EncoderSource
from xmc_tf.params.choices import ONNX, RUNTIMES, TENSORFLOW
from xmc_tf.store.checksums import verify

GRAPH = "model.onnx"


class OnnxEncoder:
    """A pre-trained transformer with pooling, which runs in ONNX Runtime without TensorFlow."""

    batch_tokens = 4096  # intermediate values of larger batches do not fit the cache

    def __init__(self, config: EncoderConfig, modules: Modules, session: Any, kept: Any = None) -> None:
        self.dim, self.max_length = modules.width(config), config.max_length
        self._session, self._kept, self._process = session, kept, os.getpid()  # the session uses the arrays in `kept`

    @classmethod
    def load(cls, folder: str | Path, *, pooling: str = "auto", threads: int = -1) -> Self:
        """Load the graph that ``write_encoder`` wrote, or build it from the weights of any encoder."""
        require("onnxruntime")
        path = Path(folder) / GRAPH
        if not path.is_file():
            config, values, modules = read_encoder(folder, pooling)
            file, graph = network_graph(config, values, modules)
            return cls(config, modules, *open_session(file, threads, graph))
        source = EncoderSource(folder, "encoder")
        verify(source.folder)
        return cls(*read_saved(source), *open_session(str(path), threads))

    def embed(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the unnormalized embeddings of documents: float32 [documents, dim]."""
        if os.getpid() != self._process:
            raise InputError(
                "embeddings of texts: ONNX Runtime does not work in a fork of the process that loaded the encoder",
                expected="a process that loads the model itself",
                received=f"process {os.getpid()}, a fork",
                fix="load the model in the child only (gunicorn without --preload)",
            )
        given = dict(zip(INPUTS, (ids.astype(np.int64), mask.astype(np.int64)), strict=True))
        return self._session.run(None, given)[0]


def write_encoder(source: str | Path, folder: Path, *, pooling: str = "auto", precision: str = "fp32") -> None:
    """Write the encoder in ``source`` as an ONNX graph with precision "fp32" or "int8"."""
    config, values, modules = read_encoder(source, pooling)
    file, graph = network_graph(config, values, modules, precision)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / GRAPH).write_bytes(file)
    with (folder / DATA).open("wb") as data:
        for offset, array in zip(graph.offsets(), graph.weights.values(), strict=True):
            data.write(bytes(offset - data.tell()))
            data.write(np.ascontiguousarray(array).data)
    config.write(folder)
    write_modules(folder, modules, config)


def choose_runtime(asked: str, folder: Path) -> str:
    """Return "tensorflow" or "onnx". "auto" means ONNX if the encoder was exported for it or TensorFlow is missing."""
    if asked not in RUNTIMES:
        raise InputError(f"unknown runtime {asked!r}", expected=", ".join(RUNTIMES))
    exported = (folder / GRAPH).is_file()
    if asked == TENSORFLOW and exported:
        raise InputError(
            f"{folder} was exported for ONNX Runtime", expected="--runtime onnx", received="--runtime tensorflow",
            fix="use --runtime onnx, or the model that this one was exported from",
        )  # fmt: skip
    if asked == "auto":
        asked = ONNX if exported or find_spec("tensorflow") is None else TENSORFLOW
        if asked == ONNX and find_spec("onnxruntime") is None:
            raise InputError(
                "neither ONNX Runtime nor TensorFlow is installed" if not exported
                else f"{folder} was exported for ONNX Runtime, which is not installed",
                expected="the extra 'onnx' of xmc_tf" + ("" if exported else ", or 'tf'"), fix=pip_install("onnx"),
            )  # fmt: skip
    require("onnxruntime" if asked == ONNX else "tensorflow")
    return asked


def open_session(file: str | bytes, threads: int, graph: Graph | None = None) -> tuple[Any, Any]:
    """Return a session for a file or for a graph in memory, and the arrays that must live as long as the session."""
    import onnxruntime  # takes a tenth of a second

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # no warnings: there is one for each weight that it moves
    options.intra_op_num_threads = thread_count(threads)
    kept = None
    if graph is not None:
        kept = [onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(one)) for one in graph.weights.values()]
        options.add_external_initializers(list(graph.weights), kept)
    try:
        return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"]), kept
    except Exception as error:  # noqa: BLE001  each of ONNX Runtime's errors is of a type of its own
        where = file if isinstance(file, str) else "the encoder"
        raise InputError(
            f"{where} cannot be loaded by ONNX Runtime {onnxruntime.__version__}",
            received=str(error).strip().splitlines()[0][:300],
            fix="export the model again, or install a newer onnxruntime",
        ) from None
