"""SavedModels asked in a process that has TensorFlow, and tensorflow_text if their operations need it, but nothing of
this package, as a server has it.

One such process answers for all tests of a session, and one for those that need tensorflow_text.
"""

import atexit
import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import traceback
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

_TEXT = "tensorflow_text"
FOREIGN = {"xmc_tf", "transformers", "tokenizers", "horovod", "numba", "tensorflow_serving", _TEXT}
# What tensorflow_text puts into a stock tensorflow_model_server beside TensorFlow's own operations.
TEXT_OPERATIONS = {
    "CaseFoldUTF8", "NormalizeUTF8", "FastBertNormalize", "FastWordpieceTokenizeWithOffsets",
    "WordpieceTokenizeWithOffsets", "SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceTokenizeWithOffsetsOp",
    "WhitespaceTokenizeWithOffsetsV2",
}  # fmt: skip


def ask(folder: Path, name: str = "serving_default", *, session: bool = False, **inputs: Any) -> dict[str, Any]:
    """Return the arrays that a signature of a SavedModel, or a method, answers with.

    Args:
        folder: the SavedModel.
        name: of the signature; ``.method`` for a method, whose outputs are named by their places.
        session: load the model as TensorFlow 1 and its servers do.
        inputs: arrays, by the names of the arguments.
    """
    send, receive = _process(_needs_text_operations(folder, folder.joinpath("saved_model.pb").stat().st_mtime_ns))
    pickle.dump((str(folder), name, session, inputs), send)
    send.flush()
    answer = pickle.load(receive)
    assert isinstance(answer, dict), answer
    return answer


def ask_in_batches(folder: Path, texts: list[bytes], size: int, *, session: bool = False) -> dict[str, np.ndarray]:
    """Return the answers to texts that are asked in batches of a size."""
    parts = [ask(folder, session=session, text=texts[at : at + size]) for at in range(0, len(texts), size)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def nodes(folder: Path) -> list[Any]:
    """Return the nodes of the graph of a SavedModel and of its functions, without calls of these."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    graphs = [meta.graph_def for meta in SavedModel.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs]
    functions = {one.signature.name: one for graph in graphs for one in graph.library.function}
    found = [node for one in graphs for node in one.node]
    found += [node for one in functions.values() for node in one.node_def]
    return [node for node in found if node.op not in functions]


def foreign_operations(folder: Path) -> set[str]:
    """Return the operations of a SavedModel that are not TensorFlow's own."""
    import tensorflow as tf

    core = {name.lower() for name in dir(tf.raw_ops)}
    return {node.op for node in nodes(folder) if node.op.lower() not in core}


@cache
def _needs_text_operations(folder: Path, changed: int) -> bool:
    return bool(foreign_operations(folder))


@cache
def _process(with_text_operations: bool) -> tuple[BinaryIO, BinaryIO]:
    """Start the process; return its ends."""
    folder = tempfile.TemporaryDirectory(prefix="plain-tensorflow-")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, __file__, *([_TEXT] if with_text_operations else [])]
    process = subprocess.Popen(command, cwd=folder.name, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None

    def end() -> None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
        folder.cleanup()

    atexit.register(end)
    return process.stdin, process.stdout


class Absent:
    """Make installed packages impossible to import."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Refuse a package of ``FOREIGN``."""
        if name.split(".")[0] in FOREIGN - set(sys.argv[1:]):
            raise ModuleNotFoundError(f"{name} is not here")


@lru_cache(1)
def _loaded(folder: str, session: bool, changed: int) -> Any:
    import tensorflow as tf

    if not session:
        return tf.saved_model.load(folder)
    graph = tf.Graph()
    with graph.as_default():
        opened = tf.compat.v1.Session()
        return opened, tf.compat.v1.saved_model.loader.load(opened, ["serve"], folder)


def _answer(folder: str, name: str, session: bool, inputs: dict[str, Any]) -> dict[str, Any]:
    import tensorflow as tf

    loaded = _loaded(folder, session, Path(folder, "saved_model.pb").stat().st_mtime_ns)
    if session:
        opened, meta = loaded
        definition = meta.signature_def[name]
        fetches = {key: tensor.name for key, tensor in definition.outputs.items()}
        return opened.run(fetches, {definition.inputs[key].name: value for key, value in inputs.items()})
    given = {key: tf.constant(value) for key, value in inputs.items()}
    if name.startswith("."):
        return {str(place): value.numpy() for place, value in enumerate(getattr(loaded, name[1:])(**given))}
    return {key: value.numpy() for key, value in loaded.signatures[name](**given).items()}


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that is printed gets between the answers
    sys.meta_path.insert(0, Absent())  # type: ignore[arg-type]
    if _TEXT in sys.argv:
        import tensorflow_text  # noqa: F401

    while True:
        try:
            asked = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: Any = _answer(*asked)
            assert not (FOREIGN - set(sys.argv[1:])) & {name.split(".")[0] for name in sys.modules}
        except Exception:  # noqa: BLE001  shown by the test
            answer = traceback.format_exc()
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
