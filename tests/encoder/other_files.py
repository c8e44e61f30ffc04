"""Files of weights as others write them: PyTorch's transformers, and its former TensorFlow classes."""

import re

import h5py
import numpy as np
from safetensors.numpy import save_file

from xmc_tf.encoder.weight_files import in_files

_NORM = re.compile(r"(layernorm|layer_norm)$", re.IGNORECASE)


def torch_weights(encoder, without="", prefix=True):
    """Return the weights with PyTorch's names, and with those of a head beside the encoder if asked for."""
    values = {name: variable.numpy() for name, variable in encoder.weights.items()}
    found = in_files(encoder.listed_weights, values)
    start = encoder.config.architecture.prefix if prefix else ""
    return {start + name: array for name, array in found.items() if not without or without not in name}


def save_as_torch_does(encoder, folder, without="", prefix=True, write=None):
    """Write the encoder with the names of PyTorch, as safetensors or with ``write``."""
    encoder.config.write(folder)
    weights = torch_weights(encoder, without, prefix)
    if write is None:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        write(weights)


def tensorflow_weights(encoder):
    """Return the weights with the names and orientations of transformers' former TensorFlow classes."""
    start = encoder.config.architecture.prefix.removesuffix(".")
    found = {}
    for name, array in torch_weights(encoder, prefix=False).items():
        *parts, last = name.split(".")
        owner = parts[-1] if parts else ""
        if _NORM.search(owner):
            last = {"weight": "gamma", "bias": "beta"}[last]
        elif owner == "rel_embeddings":
            last = f"{parts.pop()}.{last}"
        elif last == "weight" and owner in ("word_embeddings", "word_embedding"):
            pass
        elif last == "weight" and (owner.endswith("embeddings") or owner == "relative_attention_bias"):
            last = "embeddings"
        elif last == "weight":
            last, array = "kernel", array.T
        path = re.sub(r"/(\d+)(?=/)", r"_._\1", "/".join([start, *parts, last]))
        path = path.replace("pos_key_proj", "pos_proj").replace("pos_query_proj", "pos_q_proj")
        found[f"{path}:0"] = np.ascontiguousarray(array)
    return found


def save_as_tensorflow_did(encoder, folder, hdf5=False):
    """Write the encoder as versions of xmc_tf up to 0.2 did, or as HDF5."""
    encoder.config.write(folder)
    weights = tensorflow_weights(encoder)
    if not hdf5:
        save_file(weights, folder / "model.safetensors", metadata={"format": "tf"})
        return
    with h5py.File(folder / "tf_model.h5", "w") as file:
        for name, array in weights.items():
            group = name.split("/")[0]
            file[f"{group}/tf_{group}_model/{name}"] = array
