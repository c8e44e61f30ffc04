"""The network of an encoder as an ONNX graph, in float32 or with 8-bit matrices."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from xmc_tf.encoder.network.attention import Layout
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.forward import Forward
from xmc_tf.encoder.network.modules import Modules
from xmc_tf.encoder.onnx.graph import Graph, Node, ScaledRows
from xmc_tf.encoder.onnx.messages import MICROSOFT

PRECISIONS = ("fp32", "int8")
INPUTS = "input_ids", "attention_mask"  # the names that transformers gives them
# A processor without VNNI adds two products of an unsigned and a signed byte in 16 bits; 2 * 255 * 64 fits in them.
_LARGEST = 64
_MIDDLE = 128  # the unsigned byte for 0
_TINY = float(np.finfo(np.float32).tiny)


def network_graph(
    config: EncoderConfig, values: Mapping[str, np.ndarray], modules: Modules, precision: str = "fp32"
) -> tuple[bytes, Graph]:
    """Build the graph from token ids to embeddings; return the content of its file, and the graph with its weights."""
    graph = Graph()
    ids, mask = (graph.input(name, graph.int64, ["documents", "tokens"]) for name in INPUTS)
    weights = GraphWeights(graph, values, precision)
    operations = GraphOperations(graph, config.activation, config.epsilon)
    forward = Forward(config, weights, _TokenRows(graph, mask), operations, graph.float32)
    result = forward.embeddings(ids, modules)
    return graph.file(result, "embeddings", ["documents", modules.width(config)]), graph


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
        out = self._product_of_bytes(x, kernel) if isinstance(kernel, ScaledRows) else self._graph.matmul(x, kernel)
        return out if bias is None else out + bias

    def _product_of_bytes(self, x: Node, kernel: ScaledRows) -> Node:
        """Return the product with an 8-bit matrix; each row of ``x`` gets a scale, so that no row affects others."""
        graph, middle = self._graph, np.uint8(_MIDDLE)
        scale = graph.maximum(graph.add("ReduceMax", graph.abs(x), [-1], keepdims=1) / (_MIDDLE - 1), _TINY)
        rows = graph.squeeze(scale, 1)
        middles = graph.add("Expand", middle, graph.shape(rows))
        whole = graph.add("QuantizeLinear", x, rows, middles, dtype="uint8", axis=0)
        given = whole, kernel, 1.0, kernel.scale, middle
        return graph.add("MatMulIntegerToFloat", *given, dtype=graph.float32, domain=MICROSOFT) * scale

    def normalize(self, x: Node, scale: Node, shift: Node | None) -> Node:
        return self._graph.add("LayerNormalization", x, scale, shift, axis=-1, epsilon=self._epsilon)

    def normalize_size(self, x: Node, scale: Node) -> Node:
        # ONNX Runtime makes one operation of these.
        squares = self._graph.add("ReduceMean", self._graph.add("Pow", x, 2.0), [-1], keepdims=1)
        return x / self._graph.add("Sqrt", squares + self._epsilon) * scale

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


class GraphWeights(Mapping[str, Node]):
    """The weights as constants of a graph, which contains only the weights that the network has read."""

    def __init__(self, graph: Graph, values: Mapping[str, np.ndarray], precision: str) -> None:
        self._graph, self._values, self._precision = graph, values, precision
        self._made: dict[str, Node] = {}

    def __getitem__(self, name: str) -> Node:
        if name not in self._made:
            array = self._values[name]
            matrix = name.endswith(".kernel") and array.ndim == 2
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
    axis, largest = (1, 127) if name == "words" else (0, _LARGEST)
    scale = np.maximum(np.abs(array).max(axis=axis, keepdims=True) / largest, _TINY)
    out = ScaledRows(graph, graph.weight(name, np.rint(array / scale).astype(np.int8)).name, "int8")
    out.scale = graph.weight(f"{name}.scales", np.ascontiguousarray(scale if axis else scale[0], np.float32))
    return out
