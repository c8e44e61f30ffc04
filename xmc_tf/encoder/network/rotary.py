"""Attention that rotates queries and keys by their positions (Su et al. 2021, https://arxiv.org/abs/2104.09864)."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from xmc_tf.encoder.network.attention import ABSENT, Attention, Tensor
from xmc_tf.encoder.network.config import Fields
from xmc_tf.encoder.network.weights import scale_of

# The types of layers, as transformers 5 names them.
ALL, NEAR = "full_attention", "sliding_attention"

Rotation = tuple[Tensor, Tensor]  # the cosine and the sine of each angle: [1, 1, tokens, head_width]


class RotaryAttention(Attention):
    """Scaled dot-product attention with rotated queries and keys; a subclass chooses the rotation of each layer."""

    def rotation_of(self, number: int) -> Rotation:
        """Return the rotation of a layer."""
        raise NotImplementedError

    def scores(self, query: Tensor, key: Tensor, layer: str, number: int) -> Tensor:
        cosine, sine = self.rotation_of(number)
        query, key = (one * cosine + self._half_turned(one) * sine for one in (query, key))
        return super().scores(query, key, layer, number)

    def rotation(self, theta: float) -> Rotation:
        """Return the rotation with a base."""
        each = self.config.head_width
        frequencies = 1 / np.float32(theta) ** (np.arange(0, each, 2, dtype=np.float32) / np.float32(each))
        place = self.ops.cast(self.ops.range(self.layout.width), self.ops.float32)[:, None]
        angles = place * self.ops.constant(frequencies, self.ops.float32)[None]
        angles = self.ops.concat([angles, angles], axis=1)[None, None]
        return self.ops.cast(self.ops.cos(angles), self.dtype), self.ops.cast(self.ops.sin(angles), self.dtype)

    def _half_turned(self, x: Tensor) -> Tensor:
        first, second = self.ops.split(x, 2, axis=-1)
        return self.ops.concat([-second, first], axis=-1)


class LocalRotaryAttention(RotaryAttention):
    """Rotary attention of which some layers see only nearby tokens, and have another rotation."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        architecture = self.config.architecture
        self._local: list[bool] = architecture.local_layers(self.config)
        place = self.ops.range(self.layout.width)
        near = self.ops.abs(place[:, None] - place[None, :]) <= architecture.farthest_seen(self.config)
        self._far = self.ops.cast(self.ops.where(near, 0.0, ABSENT), self.dtype)[None, None]
        self._rotations = [self.rotation(theta) for theta in architecture.rotation_bases(self.config)]

    def rotation_of(self, number: int) -> Rotation:
        return self._rotations[self._local[number]]

    def scores(self, query: Tensor, key: Tensor, layer: str, number: int) -> Tensor:
        scores = super().scores(query, key, layer, number)
        return scores + self._far if self._local[number] else scores


class NormalizedHeads(Attention):
    """Attention that normalizes each head's queries and keys by size."""

    def scores(self, query: Tensor, key: Tensor, layer: str, number: int) -> Tensor:
        query = self.operations.normalize_size(query, scale_of(self.weights, f"{layer}query_norm"))
        key = self.operations.normalize_size(key, scale_of(self.weights, f"{layer}key_norm"))
        query, key = (self.ops.cast(one, self.dtype) for one in (query, key))
        return super().scores(query, key, layer, number)


def check_local_layers(fields: Fields) -> None:
    """Raise an InputError if the listed kinds of layers, or the rotation of each kind, are not supported."""
    kinds, ropes = fields.content.get("layer_types"), fields.content.get("rope_parameters")
    listed = isinstance(kinds, list) and len(kinds) == fields.whole("num_hidden_layers")
    if kinds is not None and not (listed and {*map(str, kinds)} <= {ALL, NEAR}):
        raise fields.misfit("layer_types", f"{ALL!r} or {NEAR!r} for each layer", kinds)
    rotates = isinstance(ropes, Mapping) and all(is_rotation(ropes.get(kind)) for kind in (ALL, NEAR))
    if ropes is not None and not rotates:
        raise fields.misfit("rope_parameters", f"a rope_theta for {ALL!r} and {NEAR!r}, without scaling", ropes)


class OneRotation(RotaryAttention):
    """Rotary attention with the same rotation in all layers."""

    base: ClassVar = ("rope_theta", 10_000.0)  # the field in config.json with the rotation's base, and its default

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        rope = self.config.option("rope_parameters", None)  # of transformers 5
        self._rotation = self.rotation(float(rope["rope_theta"] if rope else self.config.option(*self.base)))

    def rotation_of(self, number: int) -> Rotation:
        return self._rotation


def check_rotation(fields: Fields, name: str) -> None:
    """Raise an InputError if the rotation of all layers, or its base in the field ``name``, is not supported."""
    ropes = fields.content.get("rope_parameters")
    if ropes is not None and not is_rotation(ropes):
        raise fields.misfit("rope_parameters", "a rope_theta without scaling", ropes)
    check_base(fields, name)


def check_base(fields: Fields, name: str) -> None:
    theta = fields.content.get(name)
    if theta is not None and not is_rotation({"rope_theta": theta}):
        raise fields.misfit(name, "a number above 0", theta)


def is_rotation(given: Any) -> bool:
    """Return whether an entry of ``rope_parameters`` describes a supported rotation."""
    if not isinstance(given, Mapping) or given.get("rope_type", "default") != "default":
        return False
    theta = given.get("rope_theta")
    return isinstance(theta, int | float) and 0 < theta < 1e30
