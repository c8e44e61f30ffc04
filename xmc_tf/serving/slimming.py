"""What a SavedModel's graph need not carry.

TensorFlow notes at every operation the shapes of its outputs, which whoever loads the graph finds out again by itself.
A server holds several copies of all graphs as messages, in which such a note takes some hundred bytes: 8 MB in all for
a model with an encoder.
"""

from itertools import chain
from pathlib import Path

from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

_NOTE = "_output_shapes"


def forget_shapes(folder: Path) -> None:
    """Remove the notes from a SavedModel; those of functions' arguments stay, which say what a caller may give."""
    path = folder / "saved_model.pb"
    model = SavedModel.FromString(path.read_bytes())
    for meta in model.meta_graphs:
        library = (function.node_def for function in meta.graph_def.library.function)
        for node in chain(meta.graph_def.node, *library):
            if _NOTE in node.attr:
                del node.attr[_NOTE]
    path.write_bytes(model.SerializeToString(deterministic=True))
