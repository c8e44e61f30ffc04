"""Encoder weights in PyTorch's own format (``pytorch_model.bin``), put into TensorFlow's classes without PyTorch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from transformers.modeling_tf_pytorch_utils import load_pytorch_state_dict_in_tf2_model

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import read_json
from xmc_tf.data.torch.file import TorchFile
from xmc_tf.data.torch.pickle import Tensor

INDEX = "pytorch_model.bin.index.json"


class TorchWeights:
    """The tensors of PyTorch files by name, with the interface of a safetensors archive.

    Args:
        paths: the files; each holds a dictionary of tensors.
    """

    def __init__(self, paths: list[Path]) -> None:
        self._tensors: dict[str, tuple[TorchFile, Tensor]] = {}
        for path in paths:
            file = TorchFile(path)
            for name, tensor in _state(file):
                self._tensors[name] = file, tensor

    def keys(self) -> list[str]:
        """Return the names of all tensors."""
        return list(self._tensors)

    def get_tensor(self, name: str) -> np.ndarray:
        """Return one tensor's numbers."""
        file, tensor = self._tensors[name]
        return file.array(tensor)


def torch_files(folder: Path) -> list[Path]:
    """Return the weight files of a folder: one, or those that an index lists.

    Raises:
        InputError: the index names a file that is missing or outside the folder.
    """
    single = folder / "pytorch_model.bin"
    if single.is_file():
        return [single]
    index = folder / INDEX
    names = listed_files(index)
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise InputError(
                f"{index} names a weight file that is not in the folder",
                expected="files beside the index",
                received=repr(name)[:80],
                fix="copy the whole folder",
            )
    return [folder / name for name in names]


def listed_files(index: Path) -> list[str]:
    """Return the names of the weight files that an index lists.

    Raises:
        InputError: the file is not such an index.
    """
    fix = "copy the folder again"
    listed = read_json(index, expected="a list of the weight files", fix=fix, foreign=True).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(name, str) for name in listed.values()):
        raise InputError(f"{index} does not list the weight files", expected='"weight_map": {...}', fix=fix)
    return sorted(set(listed.values()))


def load_torch_weights(paths: list[Path], config: Any, tf_class: Any) -> tuple[Any, dict[str, list[Any]]]:
    """Return a model of a TensorFlow class of transformers with the weights, and transformers' report on them.

    Args:
        paths: the files of weights.
        config: the model's configuration.
        tf_class: its class, such as ``TFBertModel``.
    """
    weights = TorchWeights(paths)
    model = tf_class(config)
    model.build_in_name_scope()
    return load_pytorch_state_dict_in_tf2_model(
        model,
        weights,
        tf_inputs=False,
        allow_missing_keys=True,
        output_loading_info=True,
        tf_to_pt_weight_rename=getattr(model, "tf_to_pt_weight_rename", None),
    )


def _state(file: TorchFile) -> Iterator[tuple[str, Tensor]]:
    """Yield the entries of a state dictionary that are tensors."""
    if not isinstance(file.content, dict):
        raise InputError(
            f"{file.path} contains no weights of a model",
            expected="a dictionary of tensors (a state_dict)",
            received=type(file.content).__name__,
            fix="save the encoder with save_pretrained",
        )
    return ((name, one) for name, one in file.content.items() if isinstance(name, str) and isinstance(one, Tensor))
