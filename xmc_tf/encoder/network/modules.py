"""The modules after an encoder's last layer, which turn the hidden states of a document into its embedding.

They are read from a folder of sentence-transformers (``encoder/sentence_transformers.py``) or from the encoder's own
``pooling.json``. Their weights are among the encoder's, so that training, files and ONNX treat them alike.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.weights import Weight, dense

# last_tanh: PECOS's for XLNet. weighted_mean: the first token counts once, the second twice, and so on.
POOLINGS = ("mean", "cls", "pooler", "max", "last", "last_tanh", "mean_sqrt_len", "weighted_mean")
LAYER = "after."  # begins the names of the weights
_LOWEST = float(np.finfo(np.float32).min)
_LEAST_NORM = 1e-12  # as in PyTorch's normalize


@dataclass(frozen=True)
class Layer:
    """A layer after the pooling: a dense one with its activation, or, without outputs, scaling to length 1."""

    inputs: int = 0
    outputs: int = 0
    activation: str | None = None
    biased: bool = True


@dataclass(frozen=True)
class Modules:
    pooling: str  # or several joined by "+", whose results stand side by side
    layers: tuple[Layer, ...] = ()
    pools_prompt: bool = True
    nr_left_out: int = 0  # tokens at the start that are not pooled: those of the prompt, unless `pools_prompt`

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        layers = tuple(Layer(**one) for one in content.get("layers", ()))
        rest = {name: content[name] for name in ("pools_prompt", "nr_left_out") if name in content}
        return cls(str(content["pooling"]), layers, **rest)

    def to_json(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults."""
        return {
            field.name: value for field in dataclasses.fields(self)
            if (value := dataclasses.asdict(self)[field.name]) != field.default
        }  # fmt: skip

    def __str__(self) -> str:
        dense = "".join(f", dense {one.inputs} > {one.outputs}" for one in self.layers if one.outputs)
        return f"pooling {self.pooling}{dense}"

    @property
    def poolings(self) -> list[str]:
        return self.pooling.split("+")

    def width(self, config: EncoderConfig) -> int:
        """Return the number of dimensions of the embeddings."""
        return next((one.outputs for one in reversed(self.layers) if one.outputs), len(self.poolings) * config.width)

    def weights(self) -> Iterator[Weight]:
        for number, one in enumerate(self.layers):
            if one.outputs:
                name = f"{LAYER}{number}"
                yield from dense(name, (name,), one.inputs, one.outputs, one.biased)

    def checked(self, config: EncoderConfig) -> Self:
        """Return the modules, or raise an InputError if they do not fit the encoder."""
        if "pooler" in self.poolings and not config.architecture.has_pooler:
            raise InputError(
                f"{config.architecture.name} has no pooler", expected="mean, cls, max or last", received="pooler"
            )
        width = len(self.poolings) * config.width
        for one in self.layers:
            if one.outputs and one.inputs != width:
                raise InputError(
                    f"a Dense module behind pooling {self.pooling} has a wrong number of inputs",
                    expected=f"{width:,}", received=f"{one.inputs:,}",
                    fix="leave --pooling out, so that the folder's own is used, or copy the whole folder again",
                )  # fmt: skip
            width = one.outputs or width
        return self


def embed(net: Any, modules: Modules, states: Any) -> Any:
    """Return the embeddings of documents, float32 [documents, dim], given the hidden states [documents, tokens, …]."""
    ops, mask = net.ops, net.layout.mask
    if modules.nr_left_out:
        mask = ops.where(ops.cumsum(mask, axis=1) > modules.nr_left_out, mask, ops.zeros_like(mask))
    cls_is_last = net.config.architecture.cls_is_last
    parts = [
        net.pooler(states[:, 0]) if one == "pooler" else _pool(ops, one, states, mask, cls_is_last, modules.nr_left_out)
        for one in modules.poolings
    ]
    x = parts[0] if len(parts) == 1 else ops.concat(parts, axis=1)
    for number, layer in enumerate(modules.layers):
        if layer.outputs:
            x = ops.cast(net.dense(x, f"{LAYER}{number}"), ops.float32)
            x = x if layer.activation is None else net.operations.named_activation(layer.activation)(x)
        else:
            squares = ops.reduce_sum(x * x, axis=1, keepdims=True)
            x = x / ops.sqrt(ops.maximum(squares, _LEAST_NORM**2))
    return x


def _pool(ops: Any, pooling: str, states: Any, mask: Any, cls_is_last: bool, first: int) -> Any:
    """Apply a pooling without weights: float32 [documents, dim]. The mean or maximum of an empty document is 0.

    The mask excludes the ``first`` tokens.
    """
    if pooling in ("last", "last_tanh") or (pooling == "cls" and cls_is_last):
        # By the mask, so that padding may be on either side.
        places = ops.range(1, ops.shape(mask)[1] + 1)
        last = ops.reduce_max(mask * places, axis=1) - 1
        found = ops.gather(states, ops.maximum(last, 0), axis=1, batch_dims=1)
        return ops.tanh(found) if pooling == "last_tanh" else found
    if pooling == "cls":
        if not first:
            return states[:, 0]
        # A document without tokens behind the prompt has its first one, as in sentence-transformers.
        place = ops.where(ops.reduce_max(mask, axis=1) > 0, first, 0)
        return ops.gather(states, ops.cast(place, mask.dtype), axis=1, batch_dims=1)
    if pooling == "max":
        count = ops.reduce_sum(mask, axis=1, keepdims=True)
        highest = ops.reduce_max(ops.where(mask[:, :, None] > 0, states, _LOWEST), axis=1)
        return ops.where(count > 0, highest, ops.zeros_like(highest))
    weights = ops.cast(mask * (first + ops.cumsum(mask, axis=1)) if pooling == "weighted_mean" else mask, ops.float32)
    total = ops.maximum(ops.reduce_sum(weights, axis=1, keepdims=True), 1.0)
    total = ops.sqrt(total) if pooling == "mean_sqrt_len" else total
    return ops.squeeze(weights[:, None, :] @ states, axis=1) / total
