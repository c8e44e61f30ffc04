"""Run on its own, by a Python that finds TensorFlow and its texts but nothing of this package: asks a SavedModel.

    python plain_tensorflow.py MODEL REQUESTS ANSWERS

REQUESTS is an .npz of texts (as bytes, by their lengths) and the batch sizes; ANSWERS gets labels, scores and names by
loader and batch size, and what operations there are.
"""

import json
import sys

FOREIGN = {"xmc_tf", "transformers", "tokenizers", "horovod", "numba", "tensorflow_serving"}


class Absent:
    """Make installed packages impossible to import."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in FOREIGN:
            raise ModuleNotFoundError(f"{name} is not here")


if __name__ == "__main__":
    sys.meta_path.insert(0, Absent())

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.python.framework import op_def_registry  # noqa: E402


def operations(folder):
    """Return all operations in the graph and in the functions of a SavedModel."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    with open(folder + "/saved_model.pb", "rb") as file:
        content = SavedModel.FromString(file.read())
    found = set()
    for meta in content.meta_graphs:
        found |= {node.op for node in meta.graph_def.node}
        for function in meta.graph_def.library.function:
            found |= {node.op for node in function.node_def}
    functions = {f.signature.name for meta in content.meta_graphs for f in meta.graph_def.library.function}
    return found - functions


def plain(array):
    """Return an array without Python's objects, which would be pickled."""
    return array.astype("S") if array.dtype == object else array


def main(folder, requests, answers):
    used = operations(folder)
    # Before tensorflow_text is there: what is known is TensorFlow's own.
    foreign = sorted(name for name in used if op_def_registry.get(name) is None)

    import tensorflow_text  # noqa: F401

    given = np.load(requests)
    texts, at = [], 0
    for length in given["lengths"]:
        texts.append(given["bytes"][at : at + length].tobytes())
        at += length
    out = {}

    signature = tf.saved_model.load(folder).signatures["serving_default"]
    for size in given["batches"]:
        parts = [signature(text=tf.constant(texts[i : i + size], tf.string)) for i in range(0, len(texts), int(size))]
        for name in ("labels", "scores", "names"):
            out[f"load-{size}-{name}"] = plain(np.concatenate([part[name].numpy() for part in parts]))

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        meta = v1.saved_model.loader.load(session, ["serve"], folder)
        definition = meta.signature_def["serving_default"]
        fetches = {name: definition.outputs[name].name for name in ("labels", "scores", "names")}
        for size in given["batches"]:
            parts = [
                session.run(fetches, {definition.inputs["text"].name: texts[i : i + size]})
                for i in range(0, len(texts), int(size))
            ]
            for name in fetches:
                out[f"session-{size}-{name}"] = plain(np.concatenate([part[name] for part in parts]))
    assert not FOREIGN & {name.split(".")[0] for name in sys.modules}
    np.savez(answers, **out)
    print(json.dumps({"foreign": foreign, "used": len(used), "python": sorted(n for n in used if "PyFunc" in n)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
