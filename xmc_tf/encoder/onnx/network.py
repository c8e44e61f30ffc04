"""The network of an encoder as an ONNX graph, in float32 or with 8-bit matrices."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from xmc_tf.encoder.network.attention import Layout
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.forward import Forward
from xmc_tf.encoder.onnx.graph import Graph, Node, ScaledRows
from xmc_tf.encoder.onnx.messages import MICROSOFT

PRECISIONS = ("fp32", "int8")
INPUTS = "input_ids", "attention_mask"  # the names that transformers gives them
_MIDDLE = 128  # the byte for 0


def network_graph(
    config: EncoderConfig, values: Mapping[str, np.ndarray], pooling: str, precision: str = "fp32"
) -> tuple[bytes, Graph]:
    """Build the graph from token ids to embeddings; return the content of its file, and the graph with its weights."""
    graph = Graph()
    ids, mask = (graph.input(name, graph.int64, ["documents", "tokens"]) for name in INPUTS)
    weights = _Weights(graph, values, precision)
    operations = GraphOperations(graph, config.activation, config.epsilon)
    forward = Forward(config, weights, _TokenRows(graph, mask), operations, graph.float32)
    result = forward.embeddings(ids, pooling)
    return graph.file(result, "embeddings", ["documents", config.width]), graph


class GraphOperations:
    """The operations of a layer as ONNX nodes, like ``network.operations`` in TensorFlow."""

    def __init__(self, graph: Graph, activation: str, epsilon: float) -> None:
        self._graph, self._epsilon = graph, epsilon
        self.activate = self.named_activation(activation)

    def named_activation(self, name: str) -> Callable[[Node], Node]:
        add = self._graph.add
        if name == "gelu":
            return lambda x: add("Gelu", x)
        if name.startswith("gelu_"):
            return lambda x: add("Gelu", x, approximate="tanh")
        if name in ("silu", "swish"):
            return lambda x: x * add("Sigmoid", x)
        return lambda x: add({"relu": "Relu", "tanh": "Tanh"}[name], x)

    def dense(self, x: Node, kernel: Node, bias: Node | None, dtype: str) -> Node:
        graph = self._graph
        if isinstance(kernel, ScaledRows):
            zero = graph.constant(np.uint8(_MIDDLE))
            return graph.add("DynamicQuantizeMatMul", x, kernel, kernel.scale, zero, bias, domain=MICROSOFT)
        out = graph.matmul(x, kernel)
        return out if bias is None else out + bias

    def normalize(self, x: Node, scale: Node, shift: Node | None) -> Node:
        return self._graph.add("LayerNormalization", x, scale, shift, axis=-1, epsilon=self._epsilon)

    def add_and_normalize(self, x: Node, y: Node, scale: Node, shift: Node | None) -> Node:
        return self.normalize(x + y, scale, shift)

    def drop(self, x: Node, rate: float) -> Node:
        return x


class _TokenRows(Layout):
    """A layout without rows for padding, like ``PackedLayout`` in TensorFlow."""

    def __init__(self, graph: Graph, mask: Node) -> None:
        super().__init__(graph, mask)
        # The first token always counts, so that there is something to compute.
        first = graph.cast(graph.range(self.width) == 0, graph.int64)[None]
        here = graph.reshape(graph.maximum(mask, first), [-1])
        self.flat = graph.squeeze(graph.add("NonZero", here), axis=0)
        self.positions = self.flat % self.width
        self._rows = graph.add("CumSum", here, 0) - 1

    def pack(self, places: Node) -> Node:
        return self.ops.gather(places, self.flat)

    def unpack(self, rows: Node) -> Node:
        return self.ops.gather(rows, self._rows)


class _Weights(Mapping[str, Node]):
    """The weights as constants of a graph, which contains only the weights that the network has read."""

    def __init__(self, graph: Graph, values: Mapping[str, np.ndarray], precision: str) -> None:
        self._graph, self._values, self._precision = graph, values, precision
        self._made: dict[str, Node] = {}

    def __getitem__(self, name: str) -> Node:
        if name not in self._made:
            array = self._values[name]
            # Values after an activation function differ most in size, so a single scale would lose most precision.
            matrix = name.endswith(".kernel") and array.ndim == 2 and not name.endswith(".outer.kernel")
            whole = self._precision == "int8" and (matrix or name == "words")
            self._made[name] = _of_8_bits(self._graph, name, array) if whole else self._graph.weight(name, array)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values


def _of_8_bits(graph: Graph, name: str, array: np.ndarray) -> Node:
    """Return a weight as 8-bit integers with a scale for each output, or for each row of the word embeddings."""
    axis = 1 if name == "words" else 0
    scale = np.maximum(np.abs(array).max(axis=axis, keepdims=True) / (_MIDDLE - 1), np.finfo(np.float32).tiny)
    whole = np.rint(array / scale).astype(np.int16)
    # A processor without VNNI adds products of signed and unsigned numbers in 16 bits, which overflow; those of two
    # unsigned numbers are exact everywhere.
    stored = whole.astype(np.int8) if axis else (whole + _MIDDLE).astype(np.uint8)
    out = ScaledRows(graph, graph.weight(name, stored).name, stored.dtype.name)
    out.scale = graph.weight(f"{name}.scales", np.ascontiguousarray(scale if axis else scale[0], np.float32))
    return out
