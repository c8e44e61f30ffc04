from itertools import chain
from pathlib import Path

from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

_SHAPES = "_output_shapes"


def remove_shapes(folder: Path) -> None:
    """Remove the output shapes from a SavedModel's graphs, which loading infers again."""
    # A server holds several copies of all graphs, with about a hundred bytes per entry: 8 MB with an encoder. Shapes of
    # functions' arguments stay, as they describe inputs.
    path = folder / "saved_model.pb"
    model = SavedModel.FromString(path.read_bytes())
    for meta in model.meta_graphs:
        library = (function.node_def for function in meta.graph_def.library.function)
        for node in chain(meta.graph_def.node, *library):
            if _SHAPES in node.attr:
                del node.attr[_SHAPES]
    path.write_bytes(model.SerializeToString(deterministic=True))
