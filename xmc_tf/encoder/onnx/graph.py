"""An ONNX graph with the TensorFlow functions that the network calls. Each call adds nodes to the graph."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from xmc_tf.encoder.onnx import messages

DATA = "model.onnx.data"  # the file of the weights
_PAGE = 4096
# All integers are int64, the only type of shapes and indices in ONNX.
_FLOAT, _INT, _BOOL = "float32", "int64", "bool"
_END = np.iinfo(np.int64).max
_COMPARISONS = {"Less", "LessOrEqual", "Greater", "Equal"}


def _operator(kind: str, swapped: bool = False) -> Callable[["Node", Any], "Node"]:
    def apply(self: "Node", other: Any) -> "Node":
        return self.graph.pair(kind, other, self) if swapped else self.graph.pair(kind, self, other)

    return apply


def _function(kind: str, **fixed: Any) -> Callable[["Graph", "Node"], "Node"]:
    return lambda self, x: self.add(kind, x, **fixed)


class Node:
    def __init__(self, graph: "Graph", name: str, dtype: str) -> None:
        self.graph, self.name, self.dtype = graph, name, dtype

    __add__, __radd__ = _operator("Add"), _operator("Add", True)
    __sub__, __rsub__ = _operator("Sub"), _operator("Sub", True)
    __mul__, __rmul__ = _operator("Mul"), _operator("Mul", True)
    __truediv__, __floordiv__, __mod__ = _operator("Div"), _operator("Div"), _operator("Mod")
    __lt__, __le__, __gt__ = _operator("Less"), _operator("LessOrEqual"), _operator("Greater")

    def __getitem__(self, key: Any) -> "Node":
        return self.graph.item(self, key if isinstance(key, tuple) else (key,))

    def __neg__(self) -> "Node":
        return self.graph.add("Neg", self)

    def __matmul__(self, other: "Node") -> "Node":
        return self.graph.matmul(self, other)

    def __eq__(self, other: object) -> "Node":  # type: ignore[override]
        return self.graph.pair("Equal", self, other)

    def __ne__(self, other: object) -> "Node":  # type: ignore[override]
        return self.graph.add("Not", self == other)

    __hash__ = None  # type: ignore[assignment]


class ScaledRows(Node):
    """A table of 8-bit integers with a scale for each row or for each column."""

    scale: Node


class Graph:
    """An ONNX graph under construction. It mimics TensorFlow's functions, so both runtimes use ``encoder/network``."""

    float32, int32, int64 = _FLOAT, _INT, _INT

    def __init__(self) -> None:
        self.nn = self  # the functions of tf.nn
        self._nodes: list[bytes] = []
        self._inputs: list[bytes] = []
        self._constants: dict[Any, tuple[Node, bytes]] = {}
        self.weights: dict[str, np.ndarray] = {}  # the content of the weight file, in this order

    def input(self, name: str, dtype: str, sizes: Sequence[str | int]) -> Node:
        """Add an input to the graph and return it; dimensions of variable size have names."""
        self._inputs.append(messages.value(name, messages.TYPES[dtype], sizes))
        return Node(self, name, dtype)

    def weight(self, name: str, array: np.ndarray) -> Node:
        """Add a weight to the graph and return it; its content is written to the weight file."""
        self.weights[name] = array
        return Node(self, name, array.dtype.name)

    def file(self, result: Node, name: str, sizes: Sequence[str | int]) -> bytes:
        """Return the content of an ONNX file whose only output is ``result``."""
        self._nodes.append(messages.node("Identity", [result.name], [name], {}, ""))
        constants = [content for _, content in self._constants.values()]
        for offset, (weight, array) in zip(self.offsets(), self.weights.items(), strict=True):
            constants.append(messages.outer_tensor(weight, array, DATA, offset))
        output = messages.value(name, messages.TYPES[result.dtype], sizes)
        return messages.model(self._nodes, constants, self._inputs, [output])

    def offsets(self) -> list[int]:
        """Return the offset of each weight in the weight file, at the start of a page so that it can be mapped."""
        sizes = [-(-array.nbytes // _PAGE) * _PAGE for array in self.weights.values()]
        return [0, *np.cumsum(sizes).tolist()][: len(sizes)]

    def add(self, kind: str, *inputs: Any, dtype: str = "", domain: str = "", **attributes: Any) -> Node:
        """Add an operation and return its result, by default of the first input's type; None omits an input."""
        return self._add(kind, inputs, dtype, domain, attributes, 1)[0]

    def _add(
        self, kind: str, inputs: Sequence[Any], dtype: str, domain: str, attributes: dict[str, Any], count: int
    ) -> list[Node]:
        given = [None if one is None else self.constant(one) for one in inputs]
        while given and given[-1] is None:
            given.pop()
        names = ["" if one is None else one.name for one in given]
        outputs = [f"{kind}_{len(self._nodes)}" + (f"_{place}" if place else "") for place in range(count)]
        self._nodes.append(messages.node(kind, names, outputs, attributes, domain))
        kept = dtype or given[0].dtype  # type: ignore[union-attr]
        return [Node(self, name, kept) for name in outputs]

    def pair(self, kind: str, a: Any, b: Any) -> Node:
        """Add an operation with two inputs; a plain number takes the type of the other input."""
        dtype = a.dtype if isinstance(a, Node) else b.dtype
        a, b = (self.constant(one, dtype) for one in (a, b))
        return self.add(kind, a, b, dtype=_BOOL if kind in _COMPARISONS else dtype)

    # The functions of TensorFlow that the network calls.

    def constant(self, given: Any, dtype: str = "") -> Node:
        """Return a constant; equal constants are written only once."""
        if isinstance(given, Node):
            return given
        array = np.asarray(given)
        dtype = dtype or (array.dtype.name if array.dtype.name in ("uint8", "int8", "bool") else "")
        array = array.astype(dtype or (_FLOAT if array.dtype.kind == "f" else _INT), copy=False)
        key = array.dtype.name, array.shape, array.tobytes()
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._constants[key] = Node(self, name, array.dtype.name), messages.tensor(name, array)
        return self._constants[key][0]

    convert_to_tensor = constant

    def cast(self, x: Any, dtype: str) -> Any:
        """Convert ``x`` to another type. A plain number stays unchanged, because it takes the other input's type."""
        if not isinstance(x, Node) or x.dtype == dtype:
            return x
        return self.add("Cast", x, dtype=dtype, to=messages.TYPES[dtype])

    def range(self, start: Any, limit: Any = None, delta: int = 1) -> Node:
        start, limit = (0, start) if limit is None else (start, limit)
        return self.add("Range", start, limit, delta, dtype=_INT)

    def reshape(self, x: Node, shape: Sequence[Any]) -> Node:
        return self.add("Reshape", x, self._sizes(shape))

    def transpose(self, x: Node, order: Sequence[int]) -> Node:
        return self.add("Transpose", x, perm=order)

    def concat(self, parts: Sequence[Node], axis: int) -> Node:
        return self.add("Concat", *parts, axis=axis)

    def split(self, x: Node, parts: int | list[int], axis: int) -> list[Node]:
        """Split a dimension into equal parts, given their number, or into parts of the given sizes."""
        if isinstance(parts, int):
            return self._add("Split", [x], "", "", {"axis": axis, "num_outputs": parts}, parts)
        return self._add("Split", [x, parts], "", "", {"axis": axis}, len(parts))

    def unstack(self, x: Node, num: int, axis: int = 0) -> list[Node]:
        return [self.squeeze(part, axis) for part in self.split(x, num, axis)]

    def squeeze(self, x: Node, axis: int) -> Node:
        return self.add("Squeeze", x, [axis])

    def gather(self, x: Any, indices: Any, axis: int = 0, batch_dims: int = 0) -> Node:
        if isinstance(x, ScaledRows):
            return self.cast(self.add("Gather", x, indices), _FLOAT) * self.add("Gather", x.scale, indices)
        if batch_dims:
            return self.add("GatherND", x, self.add("Unsqueeze", indices, [-1]), batch_dims=batch_dims)
        return self.add("Gather", x, indices, axis=axis)

    def matmul(self, a: Node, b: Node, transpose_b: bool = False) -> Node:
        """Return the matrix product; with ``transpose_b``, ``b`` must have four dimensions."""
        return self.add("MatMul", a, self.transpose(b, [0, 1, 3, 2]) if transpose_b else b)

    def bias_add(self, x: Node, bias: Node) -> Node:
        return x + bias

    def conv1d(self, x: Node, kernel: Node, stride: int, padding: str) -> Node:
        """Return a convolution over the second dimension."""
        assert padding == "SAME"
        x, kernel = self.transpose(x, [0, 2, 1]), self.transpose(kernel, [2, 1, 0])
        return self.transpose(self.add("Conv", x, kernel, strides=[stride], auto_pad="SAME_UPPER"), [0, 2, 1])

    def where(self, condition: Node, a: Any, b: Any) -> Node:
        dtype = next((one.dtype for one in (a, b) if isinstance(one, Node)), "")
        a = self.constant(a, dtype)
        return self.add("Where", condition, a, self.constant(b, a.dtype), dtype=a.dtype)

    def maximum(self, a: Node, b: Any) -> Node:
        return self.pair("Max", a, b)

    def clip_by_value(self, x: Node, low: float, high: float) -> Node:
        return self.add("Clip", x, self.constant(low, x.dtype), self.constant(high, x.dtype))

    def reduce_sum(self, x: Node, axis: int, keepdims: bool = False) -> Node:
        return self.add("ReduceSum", x, [axis], keepdims=int(keepdims))

    def reduce_max(self, x: Node, axis: int) -> Node:
        return self.add("ReduceMax", x, [axis], keepdims=0)

    def zeros_like(self, x: Node) -> Node:
        return x * 0

    def cumsum(self, x: Node, axis: int) -> Node:
        return self.add("CumSum", x, axis)

    abs, sin, cos, tanh = _function("Abs"), _function("Sin"), _function("Cos"), _function("Tanh")
    sqrt = _function("Sqrt")
    shape, size, softmax = _function("Shape", dtype=_INT), _function("Size", dtype=_INT), _function("Softmax", axis=-1)

    def item(self, x: Node, key: tuple[Any, ...]) -> Node:
        """Return ``x[key]`` for a key of numbers, slices and None; numbers and bounds may be nodes."""
        cuts, numbers, new, axis = list[tuple[int, Any, Any]](), list[tuple[int, Any]](), list[int](), 0
        for part in key:
            if part is None:
                new.append(axis - len(numbers) + len(new))
                continue
            if not isinstance(part, slice):
                numbers.append((axis, part))
            elif part.start is not None or part.stop is not None:
                cuts.append((axis, part.start or 0, _END if part.stop is None else part.stop))
            axis += 1
        if cuts:
            axes, starts, stops = zip(*cuts, strict=True)
            x = self.add("Slice", x, self._sizes(starts), self._sizes(stops), list(axes))
        for place, number in reversed(numbers):
            x = self.add("Gather", x, number, axis=place)
        return self.add("Unsqueeze", x, new) if new else x

    def _sizes(self, sizes: Sequence[Any]) -> Node:
        """Return a sequence of sizes, some of which may be nodes, as one vector."""
        if not any(isinstance(one, Node) for one in sizes):
            return self.constant(np.array(sizes, np.int64))
        parts = [self.add("Unsqueeze", one, [0]) if isinstance(one, Node) else self.constant([one]) for one in sizes]
        return self.concat(parts, axis=0)
