"""Exported models for the figures of serving: made, and asked in a process that has what a server has."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format
from scipy.sparse import csr_matrix

from benchmarks.sides.in_turns import Side
from xmc_tf.common.folders.model_parts import ABOUT
from xmc_tf.common.process.quiet import muted_stderr
from xmc_tf.data import TextFile
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import HierarchicalKMeansParams, XRLinearParams

with muted_stderr():
    from tensorflow.core.protobuf.config_pb2 import ConfigProto
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

_ROOT = Path(__file__).resolve().parents[1]
_SIDES = Path(__file__).parent / "sides"
_OUTPUTS = ("labels", "scores", "names")


def export(model: Path | str, folder: Path, weights: str, k: int, beam: int) -> dict[str, Any]:
    """Export with the command and return what the export reports."""
    run("xmc_tf.export", "-m", model, "-o", folder, "-k", k, "-b", beam, "--weights", weights)
    return json.loads((folder / ABOUT).read_text())


def run(module: str, *arguments: Any) -> None:
    """Run one of our commands and return the figure, its only line of output."""
    subprocess.run([sys.executable, "-m", module, *map(str, arguments)], check=True, stdout=sys.stderr)


def small_model(texts: Path, folder: Path) -> Path:
    """Export a model of twenty labels, to measure TensorFlow's own memory for a model."""
    lines = list(TextFile(texts).lines(0, 300))
    places = np.arange(len(lines))
    Y = csr_matrix((np.ones(len(lines), np.float32), (places, places % 20)), shape=(len(lines), 20))
    params = XRLinearParams(tree=HierarchicalKMeansParams(nr_splits=4, max_leaf_size=3))
    XRLinear.train(lines, Y, params=params).export(folder)
    return folder


def side(texts: Path) -> Side:
    """Return a process with a session as launch/serving sets it, still without a model."""
    settings = text_format.Parse((_ROOT / "launch" / "serving" / "session.config").read_text(), ConfigProto())
    given = {"texts": str(texts.resolve()), "config": settings.SerializeToString().hex()}
    threads = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "1")}
    return Side([sys.executable, str(_SIDES / "served_side.py"), json.dumps(given)], threads)


def load(one: Side, folder: Path, asked: int = 50) -> int:
    """Load a model and ask the first texts; return the memory used."""
    content = SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    definition = content.meta_graphs[0].signature_def["serving_default"]
    outputs = [definition.outputs[name].name for name in _OUTPUTS]
    inputs = [definition.inputs["text"].name]
    return int(one.ask(do="load", folder=str(folder), inputs=inputs, outputs=outputs, asked=asked))
