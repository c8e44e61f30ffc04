"""A SavedModel in a process without Python's TensorFlow: loaded and run by TensorFlow's C functions, as servers do it.

What the process takes is then the model's and TensorFlow's, and no Python objects of a graph. Needs numpy only.
"""

import ctypes
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

_STRING, _TYPES = 7, {1: np.float32, 3: np.int32, 7: np.bytes_, 9: np.int64}
_TSTRING_BYTES = 24


class _Output(ctypes.Structure):
    _fields_ = (("operation", ctypes.c_void_p), ("index", ctypes.c_int))


class _Buffer(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("length", ctypes.c_size_t), ("free", ctypes.c_void_p))


class CSession:
    """One exported model.

    Args:
        folder: the version's folder.
        inputs: the graph's names of what is given, such as "serving_default_text:0".
        outputs: and of what is asked for.
        config: the session's settings, a ConfigProto in bytes.
    """

    def __init__(self, folder: str, inputs: Sequence[str], outputs: Sequence[str], config: bytes) -> None:
        self._tf = tf = library()
        self._status = ctypes.c_void_p(tf.TF_NewStatus())
        options = ctypes.c_void_p(tf.TF_NewSessionOptions())
        tf.TF_SetConfig(options, config, ctypes.c_size_t(len(config)), self._status)
        self._check()
        self._graph = ctypes.c_void_p(tf.TF_NewGraph())
        tags = (ctypes.c_char_p * 1)(b"serve")
        self._session = ctypes.c_void_p(
            tf.TF_LoadSessionFromSavedModel(options, None, folder.encode(), tags, 1, self._graph, None, self._status)
        )
        self._check()
        self._inputs, self._outputs = self._places(inputs), self._places(outputs)

    def run(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Return the outputs; strings as objects."""
        tf = self._tf
        given = [self._tensor(array) for array in arrays]
        values = (ctypes.c_void_p * len(given))(*given)
        found = (ctypes.c_void_p * len(self._outputs))()
        tf.TF_SessionRun(
            self._session, None, self._inputs, values, len(given), self._outputs, found, len(found), None, 0, None,
            self._status,
        )  # fmt: skip
        for one, array in zip(given, arrays, strict=True):
            self._delete(one, array.size if array.dtype == object else 0)
        self._check()
        return [self._array(one) for one in found]

    def _places(self, names: Sequence[str]) -> Any:
        places = (_Output * len(names))()
        for place, name in zip(places, names, strict=True):
            operation, index = name.split(":")
            place.operation = self._tf.TF_GraphOperationByName(self._graph, operation.encode())
            place.index = int(index)
            if not place.operation:
                raise ValueError(f"there is no operation {operation!r} in the graph")
        return places

    def _tensor(self, array: np.ndarray) -> int:
        tf = self._tf
        strings = array.dtype == object
        kind = _STRING if strings else next(code for code, made in _TYPES.items() if array.dtype == made)
        sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
        nr_bytes = array.size * _TSTRING_BYTES if strings else array.nbytes
        made = tf.TF_AllocateTensor(kind, sizes, array.ndim, ctypes.c_size_t(nr_bytes))
        data = tf.TF_TensorData(ctypes.c_void_p(made))
        if not strings:
            ctypes.memmove(data, np.ascontiguousarray(array).ctypes.data, array.nbytes)
            return made
        for place, text in enumerate(array.ravel()):
            at = ctypes.c_void_p(data + place * _TSTRING_BYTES)
            tf.TF_StringInit(at)
            tf.TF_StringCopy(at, text, ctypes.c_size_t(len(text)))
        return made

    def _delete(self, made: int, nr_strings: int) -> None:
        tf, tensor = self._tf, ctypes.c_void_p(made)
        data = tf.TF_TensorData(tensor)
        for place in range(nr_strings):
            tf.TF_StringDealloc(ctypes.c_void_p(data + place * _TSTRING_BYTES))
        tf.TF_DeleteTensor(tensor)

    def _array(self, made: int) -> np.ndarray:
        tf, tensor = self._tf, ctypes.c_void_p(made)
        shape = [tf.TF_Dim(tensor, axis) for axis in range(tf.TF_NumDims(tensor))]
        kind, data, count = tf.TF_TensorType(tensor), tf.TF_TensorData(tensor), int(np.prod(shape))
        if kind == _STRING:
            out = np.empty(count, object)
            for place in range(count):
                at = ctypes.c_void_p(data + place * _TSTRING_BYTES)
                out[place] = ctypes.string_at(tf.TF_StringGetDataPointer(at), tf.TF_StringGetSize(at))
        else:
            nr_bytes = count * np.dtype(_TYPES[kind]).itemsize
            out = np.frombuffer(ctypes.string_at(data, nr_bytes) if count else b"", _TYPES[kind])
        tf.TF_DeleteTensor(tensor)
        return out.reshape(shape)

    def _check(self) -> None:
        if self._tf.TF_GetCode(self._status):
            raise RuntimeError(self._tf.TF_Message(self._status).decode())


def library() -> Any:
    """TensorFlow's own, with the operations of tensorflow_text."""
    # Found without being imported: an import would bring all of Python's TensorFlow.
    folder, texts = (
        Path(importlib.util.find_spec(name).origin).parent  # type: ignore[union-attr, arg-type]
        for name in ("tensorflow", "tensorflow_text")
    )
    for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
        tf = ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
    for name in (
        "TF_NewStatus", "TF_NewSessionOptions", "TF_NewGraph", "TF_LoadSessionFromSavedModel", "TF_AllocateTensor",
        "TF_TensorData", "TF_GraphOperationByName", "TF_LoadLibrary", "TF_StringGetDataPointer",
    ):  # fmt: skip
        getattr(tf, name).restype = ctypes.c_void_p
    tf.TF_Message.restype = ctypes.c_char_p
    for name in ("TF_StringGetSize", "TF_Dim"):
        getattr(tf, name).restype = ctypes.c_int64
    status = ctypes.c_void_p(tf.TF_NewStatus())
    for ops in sorted(texts.glob("python/ops/_*.so")) + sorted(texts.glob("core/pybinds/x*.so")):
        tf.TF_LoadLibrary(str(ops).encode(), status)
        if tf.TF_GetCode(status):
            raise RuntimeError(tf.TF_Message(status).decode())
    return tf
