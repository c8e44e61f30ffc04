"""Adapters of low rank (LoRA): two narrow matrices beside each matrix of a layer, which are trained in its place.

Saved encoders have no adapters: their products are added to the matrices. The same holds for published adapters of
peft, which are added as they are read.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json
from xmc_tf.encoder.network.parts import DOWN, UP
from xmc_tf.encoder.network.weights import Weight

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_KERNEL = ".kernel"
_BEFORE = "base_model.model."
# Options of peft that do not change what is added, and the values of others with which it is the plain product. Any
# other option must be empty.
_NO_MATTER = {
    "auto_mapping", "base_model_name_or_path", "corda_config", "eva_config", "exclude_modules", "inference_mode",
    "layers_pattern", "layers_to_transform", "lora_alpha", "lora_dropout", "megatron_core", "peft_version",
    "qalora_group_size", "r", "rank_pattern", "target_modules", "task_type", "use_rslora",
}  # fmt: skip
_PLAIN = {
    "peft_type": ("LORA",), "bias": ("none",), "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),
    "revision": (None, "main"),
}  # fmt: skip


def is_adapter(name: str) -> bool:
    return name.endswith((DOWN, UP))


def new_adapters(weights: Sequence[Weight], rank: int, seed: int) -> dict[str, np.ndarray]:
    """Return adapters for the matrices of layers in ``weights``, whose products are zero at first."""
    found: dict[str, np.ndarray] = {}
    for number, weight in enumerate(weights):
        if weight.name.startswith("layer.") and weight.name.endswith(_KERNEL) and len(weight.shape) == 2:
            inputs, outputs = weight.shape
            if rank > min(weight.shape):
                raise InputError(
                    f"--lora-rank {rank} is larger than the matrix {weight.name}",
                    expected=f"at most {min(weight.shape)}", received=str(rank),
                )  # fmt: skip
            draw = np.random.default_rng([seed, number, 0x6C6F7261])
            name = weight.name.removesuffix(_KERNEL)
            found[name + DOWN] = draw.uniform(-1, 1, (inputs, rank)).astype(np.float32) / np.sqrt(inputs).astype("f4")
            found[name + UP] = np.zeros((rank, outputs), np.float32)
    return found


def with_adapters_added(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return weights in which the products of adapters are added to the matrices, and the adapters are left out."""
    found = {name: value for name, value in values.items() if not is_adapter(name)}
    for name, down in values.items():
        if name.endswith(DOWN):
            own = name.removesuffix(DOWN)
            found[own + _KERNEL] = found[own + _KERNEL] + down @ values[own + UP]
    return found


class PublishedAdapters:
    """LoRA adapters in a folder of peft, for an encoder whose name or folder is in the same folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, path = folder, folder / CONFIG
        self._config = parse_json(path.read_bytes(), of=str(path), foreign=True)
        base = self._config.get("base_model_name_or_path")
        if not isinstance(base, str) or not base:
            raise self._refused("names no encoder", "base_model_name_or_path", base)
        self.base = base
        for name, value in self._config.items():
            plain = value in _PLAIN[name] if name in _PLAIN else name in _NO_MATTER or not value
            if not plain:
                raise self._refused("has an option that is not supported", name, value)

    def added_to(
        self, readers: dict[str, Callable[[], np.ndarray]], prefix: str
    ) -> dict[str, Callable[[], np.ndarray]]:
        """Return functions that read the matrices of an encoder with the adapters added to them."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        path = self._folder / WEIGHTS
        try:
            found, arrays = dict(readers), load_file(path)
        except (OSError, SafetensorError) as error:
            raise InputError(
                f"the adapters {path} cannot be read", expected="the file as peft saved it, in safetensors",
                received=str(error), fix="copy the whole folder again, or save the adapters again with peft",
            ) from None  # fmt: skip
        for name in list(arrays):
            module, _, part = name.removeprefix(_BEFORE).removeprefix(prefix).partition(".lora_")
            own = f"{module}.weight"
            if part not in ("A.weight", "B.weight") or own not in readers:
                raise self._refused("has weights that are not those of a matrix of the encoder", name, part or "none")
            if part == "A.weight":
                up = arrays.get(name.replace(".lora_A.", ".lora_B."))
                if up is None or up.ndim != 2 or arrays[name].ndim != 2 or up.shape[1] != arrays[name].shape[0]:
                    raise self._refused("lacks the second matrix of an adapter", name, "none")
                found[own] = self._sum(readers[own], arrays[name], up, own)
        return found

    def _sum(
        self, read: Callable[[], np.ndarray], down: np.ndarray, up: np.ndarray, name: str
    ) -> Callable[[], np.ndarray]:
        alpha, rank = self._config.get("lora_alpha", 8), down.shape[0]
        if not isinstance(alpha, int | float):
            raise self._refused("has an option that is not a number", "lora_alpha", alpha)
        scale = float(alpha) / (np.sqrt(rank) if self._config.get("use_rslora") else rank)

        def added() -> np.ndarray:
            matrix, product = np.asarray(read(), np.float32), up.astype(np.float32) @ down.astype(np.float32)
            if matrix.shape != product.shape:
                raise self._refused("does not fit the encoder", name, f"{product.shape}", f"{matrix.shape}")
            return matrix + np.float32(scale) * product

        return added

    def _refused(self, problem: str, name: str, received: Any, expected: str = "") -> InputError:
        return InputError(
            f"{self._folder / CONFIG} {problem}: {name}", expected=expected, received=str(received)[:80],
            fix="merge the adapters with peft (merge_and_unload), save the encoder, and use that folder",
        )  # fmt: skip
