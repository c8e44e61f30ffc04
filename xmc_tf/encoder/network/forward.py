"""The forward pass of an encoder's network, shared by all architectures and runtimes."""

from xmc_tf.encoder.network.architecture import Architecture
from xmc_tf.encoder.network.attention import Tensor
from xmc_tf.encoder.network.modules import Modules, embed
from xmc_tf.encoder.network.parts import Parts


class Forward(Parts):
    """The network for one batch: the parts, as its architecture arranges them."""

    def states(self, ids: Tensor) -> Tensor:
        """Return the hidden states of tokens, float32 [rows, width], given int32 ids [documents, tokens]."""
        return self.upper_states(self.lower_states(ids, 0), 0)

    def lower_states(self, ids: Tensor, layers: int) -> Tensor:
        """Return the input of the layer with the number ``layers``: embeddings, after that many layers."""
        architecture: Architecture = self.config.architecture
        return self._apply(architecture.embed(self, ids), 0, layers)

    def upper_states(self, x: Tensor, first: int) -> Tensor:
        """Return the hidden states, given the input of the layer with the number ``first``."""
        architecture: Architecture = self.config.architecture
        return architecture.finish(self, self._apply(x, first, None))

    def _apply(self, x: Tensor, first: int, last: int | None) -> Tensor:
        architecture: Architecture = self.config.architecture
        if first == 0:
            self.embedded = x
        for number, shared in list(enumerate(architecture.layer_order(self.config)))[first:last]:
            x = architecture.layer(self, x, f"layer.{shared}.", number)
        return x

    def embeddings(self, ids: Tensor, modules: Modules) -> Tensor:
        """Return the embeddings of documents, float32 [documents, dim]; ids at padding are ignored."""
        return self.pooled(self.states(self.without_padding(ids)), modules)

    def without_padding(self, ids: Tensor) -> Tensor:
        """Return ids with the padding id at padding."""
        return self.ops.where(self.layout.mask > 0, ids, self.config.pad_id)

    def pooled(self, rows: Tensor, modules: Modules) -> Tensor:
        """Return the embeddings of documents, given the hidden states of tokens."""
        layout = self.layout
        states = self.ops.reshape(layout.unpack(rows), [layout.documents, layout.width, self.config.width])
        return embed(self, modules, states)

    def pooler(self, first: Tensor) -> Tensor:
        return self.ops.tanh(self.ops.cast(self.dense(first, "pooler"), self.ops.float32))
