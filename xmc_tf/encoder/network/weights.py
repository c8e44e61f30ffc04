"""The weights of an encoder: their names and shapes in this package, and their names in files."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# From a file's array to ours, and back. Files have matrices as PyTorch multiplies them: [outputs, inputs].
Turn = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Weight:
    """A weight of the network. Files store it as one array, or as several to join along the last axis."""

    name: str  # such as "layer.3.out.kernel"
    shape: tuple[int, ...]
    files: tuple[str, ...]  # names of the arrays, without the architecture's prefix
    to_own: Turn = np.asarray
    to_file: Turn = np.asarray
    unused: bool = False  # by embeddings, so that files may lack it
    sizes: tuple[int, ...] = ()  # of the last axis of each array, if they differ


@dataclass(frozen=True)
class WeightNames:
    """The names of an architecture's weights in files; the defaults are BERT's. An empty name: no such weight."""

    layer: str = "encoder.layer.{n}."
    words: str = "embeddings.word_embeddings"
    positions: str = "embeddings.position_embeddings"
    segments: str = "embeddings.token_type_embeddings"
    embedding_norm: str = "embeddings.LayerNorm"
    projection: str = "embeddings_project"
    qkv: tuple[str, ...] = ("attention.self.query", "attention.self.key", "attention.self.value")
    out: str = "attention.output.dense"
    out_norm: str = "attention.output.LayerNorm"
    inner: tuple[str, ...] = ("intermediate.dense",)  # two with a gate: the activated part first
    outer: str = "output.dense"
    outer_norm: str = "output.LayerNorm"
    pooler: str = "pooler.dense"


def table(name: str, file: str, shape: tuple[int, int]) -> Weight:
    return Weight(name, shape, (f"{file}.weight",))


def norm(name: str, file: str, width: int, shift: bool = True) -> Iterator[Weight]:
    """Yield the scale of a normalization, and its shift."""
    yield Weight(f"{name}.scale", (width,), (f"{file}.weight",))
    if shift:
        yield Weight(f"{name}.shift", (width,), (f"{file}.bias",))


def scale_of(weights: Mapping[str, Any], name: str) -> Any:
    """Return the scale of a normalization by size. Some files have what it exceeds 1 by."""
    return weights[f"{name}.scale"] if f"{name}.scale" in weights else 1.0 + weights[f"{name}.excess"]


def dense(
    name: str, files: tuple[str, ...], inputs: int, outputs: int, biased: bool = True, unused: bool = False,
    sizes: tuple[int, ...] = (),
) -> Iterator[Weight]:  # fmt: skip
    """Yield the kernel of a dense layer, and its bias."""
    kernels, biases = (tuple(f"{one}.{part}" for one in files) for part in ("weight", "bias"))
    yield Weight(f"{name}.kernel", (inputs, outputs), kernels, np.transpose, np.transpose, unused, sizes)
    if biased:
        yield Weight(f"{name}.bias", (outputs,), biases, unused=unused, sizes=sizes)
