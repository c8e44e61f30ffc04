"""The places of a batch's tokens: as rows of one matrix, and by document, as attention needs them."""

from typing import Any

Tensor = Any  # of TensorFlow, or of an ONNX graph


class Layout:
    """The places of tokens, of which padding has rows too; no row is moved.

    Args:
        ops: TensorFlow, or what writes the same operations into an ONNX graph.
        mask: int32 [documents, tokens], 1 for a token.

    Attributes:
        documents: number of documents.
        width: number of places of each.
        flat: the place of each row.
        positions: the position of each row in its document.
    """

    def __init__(self, ops: Any, mask: Tensor) -> None:
        self.ops, self.mask = ops, mask
        shape = ops.shape(mask)
        self.documents, self.width = shape[0], shape[1]
        self.flat = ops.range(ops.size(mask))
        self.positions = self.flat % self.width

    def pack(self, places: Tensor) -> Tensor:
        """Return the rows of tokens, from ``[documents * tokens, …]``."""
        return places

    def unpack(self, rows: Tensor) -> Tensor:
        """Return ``[documents * tokens, …]`` of the rows; what stands in the places of padding must be ignored."""
        return rows
