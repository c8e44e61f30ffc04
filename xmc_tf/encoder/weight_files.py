"""Files of an encoder's weights: safetensors, TensorFlow's HDF5, and PyTorch's format (read without PyTorch)."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.data.torch_file import read_torch
from xmc_tf.encoder.adapters import PublishedAdapters
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.weights import Weight

SAFETENSORS, HDF5, TORCH = "model.safetensors", "tf_model.h5", "pytorch_model.bin"
INDEX = ".index.json"  # such a file lists several files of weights
_FIX = "copy the folder again"
_BUFFERS = ("inv_freq", "position_ids", "token_type_ids")  # computed, but saved by some versions of transformers

# The last part of names in TensorFlow's files, and in PyTorch's.
_LAST_PARTS = {"kernel": "weight", "gamma": "weight", "beta": "bias", "embeddings": "weight"}
_DEBERTA_PARTS = {"pos_proj": "pos_key_proj", "pos_q_proj": "pos_query_proj"}


class WeightFiles:
    """The arrays of one or more files in one format, under PyTorch's names without the architecture's prefix."""

    def __init__(self, paths: list[Path], config: EncoderConfig, adapters: PublishedAdapters | None = None) -> None:
        prefix = config.architecture.prefix
        self._layers = config.architecture.names_of(config).layer.partition("{n}")[0]
        arrays = (array for path in paths for array in arrays_of(path))
        self._read = {name.removeprefix(prefix): read for name, read in arrays}
        if adapters is not None:
            self._read = adapters.added_to(self._read, prefix)

    def __contains__(self, name: str) -> bool:
        return name in self._read or _older(name) in self._read

    def unused(self, weights: list[Weight]) -> list[str]:
        """Return the names of weights in the encoder's layers that are not among ``weights``."""
        known = {name for weight in weights for name in weight.files}
        known |= {_older(name) for name in known}
        found = (
            name for name in self._read if name.startswith(self._layers) and name.rpartition(".")[2] not in _BUFFERS
        )
        return sorted(name for name in found if name not in known)

    def own(self, weight: Weight) -> np.ndarray:
        """Return a weight as float32 in the layout that the network uses."""
        parts = []
        for name in weight.files:
            found = self._read[name if name in self._read else _older(name)]()
            try:
                parts.append(weight.to_own(np.asarray(found, np.float32)))
            except ValueError:  # the number of dimensions differs
                raise _misfit(name, weight, found.shape) from None
        try:
            joined = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
        except ValueError:
            joined = parts[0]
        widths = tuple(part.shape[-1] for part in parts)
        if joined.shape != weight.shape or widths != (weight.sizes or widths):
            raise _misfit(" and ".join(weight.files), weight, joined.shape)
        return joined


def in_files(weights: list[Weight], values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return weights, or their gradients, under PyTorch's names and in PyTorch's orientation."""
    arrays = {}
    for weight in weights:
        cuts = np.cumsum(weight.sizes)[:-1] if weight.sizes else len(weight.files)
        for name, part in zip(weight.files, np.split(values[weight.name], cuts, axis=-1), strict=True):
            arrays[name] = np.ascontiguousarray(weight.to_file(part))
    return arrays


def save_weights(path: Path, weights: list[Weight], values: dict[str, np.ndarray]) -> None:
    """Write weights to a safetensors file that transformers can read."""
    from safetensors import SafetensorError  # linear models import this module too, and are installed without it
    from safetensors.numpy import save_file

    try:
        save_file(in_files(weights, values), path, metadata={"format": "pt"})
    except SafetensorError as error:  # safetensors' own error for a full disk
        raise OSError(f"{path.parent}: the weights could not be written: {error}") from error


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files in a folder: one file, or the files listed in an index; empty if there are none."""
    for name in (SAFETENSORS, HDF5, TORCH):
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}{INDEX}"
        if index.is_file():
            names = listed_files(index)
            for one in names:
                if Path(one).name != one or not (folder / one).is_file():
                    raise InputError(
                        f"{index} names a weight file that is not in the folder",
                        expected="files beside the index",
                        received=repr(one)[:80],
                        fix="copy the whole folder",
                    )
            return [folder / one for one in names]
    return []


def listed_files(index: Path) -> list[str]:
    """Return the names of the weight files listed in an index."""
    listed = read_json(index, expected="a list of the weight files", fix=_FIX, foreign=True).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(name, str) for name in listed.values()):
        raise InputError(f"{index} does not list the weight files", expected='"weight_map": {...}', fix=_FIX)
    return sorted(set(listed.values()))


def arrays_of(path: Path) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
    """Yield PyTorch's name for each array in a file, with a function that reads the array."""
    if path.suffix == ".bin":
        yield from _of_torch(path)
    elif path.suffix == ".h5":
        import h5py  # few encoders are in this format

        names: list[str] = []
        with h5py.File(path, "r") as file:
            file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        for name in names:
            # The name consists of the group, the model, and the name in a safetensors file.
            parts = name.split("/")
            whole = "/".join(parts[2:] if len(parts) > 2 and parts[1].startswith("tf") else parts)
            yield _torch_name(whole), partial(_from_hdf5, path, name)
    else:
        from safetensors import safe_open

        with safe_open(path, framework="np") as archive:
            of_tensorflow = (archive.metadata() or {}).get("format") == "tf"
            names = list(archive.keys())
        for name in names:
            yield _torch_name(name) if of_tensorflow else name, partial(_from_safetensors, path, name, of_tensorflow)


def _of_torch(path: Path) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
    content = read_torch(path)
    if not isinstance(content, dict):
        raise InputError(
            f"{path} contains no model weights",
            expected="a dictionary of tensors (a state_dict)",
            received=type(content).__name__,
            fix="save the encoder with save_pretrained",
        )
    for name, one in content.items():
        if isinstance(name, str) and isinstance(one, np.ndarray):
            yield name, partial(np.asarray, one)


def _from_hdf5(path: Path, name: str) -> np.ndarray:
    import h5py

    with h5py.File(path, "r") as file:
        return _turned(name, np.asarray(file[name]))


def _from_safetensors(path: Path, name: str, of_tensorflow: bool) -> np.ndarray:
    from safetensors import safe_open

    with safe_open(path, framework="np") as archive:
        array = archive.get_tensor(name)
    return _turned(name, array) if of_tensorflow else array


def _torch_name(name: str) -> str:
    """Convert a TensorFlow name, such as "bert/encoder/layer_._0/output/dense/kernel:0", to PyTorch's name."""
    parts = name.removesuffix(":0").replace("_._", "/").split("/")
    parts = [_DEBERTA_PARTS.get(part, part) for part in parts]
    return ".".join([*parts[:-1], _LAST_PARTS.get(parts[-1], parts[-1])])


def _turned(name: str, array: np.ndarray) -> np.ndarray:
    """Return an array from TensorFlow in PyTorch's orientation."""
    return array.T if name.removesuffix(":0").endswith("/kernel") else array


def _older(name: str) -> str:
    """Return the name that a normalization weight had in the first versions of transformers."""
    parts = name.rsplit(".", 1)
    return f"{parts[0]}.{ {'weight': 'gamma', 'bias': 'beta'}.get(parts[-1], parts[-1]) }"


def _misfit(name: str, weight: Weight, shape: tuple[int, ...]) -> InputError:
    return InputError(
        f"the weight {name} does not fit config.json",
        expected=f"{weight.shape} ({weight.name})",
        received=str(tuple(shape)),
        fix=_FIX,
    )
