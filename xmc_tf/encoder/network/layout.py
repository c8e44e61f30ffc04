"""The rows of a batch's tokens in one matrix, and their places by document, as attention needs them."""

from typing import Any

Tensor = Any  # of TensorFlow, or of an ONNX graph


class Layout:
    """A layout in which padding has rows too, so that no row moves."""

    def __init__(self, ops: Any, mask: Tensor) -> None:
        self.ops, self.mask = ops, mask
        shape = ops.shape(mask)
        self.documents, self.width = shape[0], shape[1]
        self.flat = ops.range(ops.size(mask))  # the place of each row in the flattened mask
        self.positions = self.flat % self.width

    def pack(self, places: Tensor) -> Tensor:
        """Return the rows of tokens, from ``[documents * tokens, …]``."""
        return places

    def unpack(self, rows: Tensor) -> Tensor:
        """Return ``[documents * tokens, …]`` of the rows; the content at padding must be ignored."""
        return rows
