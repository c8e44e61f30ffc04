"""Reading an encoder's files into arrays: configuration, weights and pooling."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import parse_json
from xmc_tf.common.folders.checksums import verified
from xmc_tf.encoder import pooling as poolings
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.weight_names import Weight, weights_of
from xmc_tf.encoder.sources import EncoderSource
from xmc_tf.encoder.weight_files import WeightFiles

# Initial values of weights that do not start at random.
_CONSTANT = {"scale": 1.0, "shift": 0.0, "bias": 0.0, "r_w_bias": 0.0, "r_r_bias": 0.0, "r_s_bias": 0.0}


class EncoderFiles(NamedTuple):
    """The content of an encoder's files."""

    config: EncoderConfig
    values: dict[str, np.ndarray]  # by name, without those of an unused pooler or mask that the files lack
    pooling: str


def read_encoder(name_or_folder: str | Path, pooling: str = "auto", cache_dir: str = "") -> EncoderFiles:
    """Read an encoder from a folder or a name on the hub."""
    poolings.check_pooling(pooling)
    source = EncoderSource(name_or_folder, "encoder", cache_dir)
    with verified(source.folder):
        config = read_config(source)
        values = _load_weights(source, config)
        pooling = pooling_of(source, config, pooling, "pooler.kernel" in values)
    return EncoderFiles(config, values, pooling)


def pooling_of(source: EncoderSource, config: EncoderConfig, pooling: str, has_pooler: bool) -> str:
    """Return the given pooling, or that of the files or the architecture if it is "auto"."""
    if pooling == "auto":
        pooling = _named_pooling(source) or "auto"
    listed = any(weight.name == "pooler.kernel" for weight in weights_of(config))
    if pooling == "pooler" and listed and not has_pooler:
        raise InputError(
            f"{source.name} has no weights for its pooler",
            expected="another pooling",
            received="pooling pooler",
            fix="choose mean or cls (--pooling)",
        )
    if pooling == "auto":
        pooling = "cls" if listed and not has_pooler else config.pooling
    return checked_pooling(pooling, config)


def checked_pooling(pooling: str, config: EncoderConfig) -> str:
    """Return the pooling if the architecture supports it."""
    if pooling == "pooler" and all(weight.name != "pooler.kernel" for weight in weights_of(config)):
        raise InputError(
            f"{config.architecture} has no pooler", expected="mean, cls, max or last", received="pooling pooler"
        )
    return pooling


def random_weights(
    config: EncoderConfig, seed: int, known: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Return the known weights, and random ones for the others, which depend only on the seed."""
    known = known or {}
    return {
        weight.name: known[weight.name] if weight.name in known else _random(weight, config, seed, number)
        for number, weight in enumerate(weights_of(config))
    }


def _random(weight: Weight, config: EncoderConfig, seed: int, number: int) -> np.ndarray:
    constant = _CONSTANT.get(weight.name.rpartition(".")[2])
    if constant is not None:
        return np.full(weight.shape, constant, np.float32)
    rng = np.random.default_rng([seed, number])
    values = rng.standard_normal(weight.shape)
    while (far := np.abs(values) > 2).any():
        values[far] = rng.standard_normal(int(far.sum()))
    return (config.deviation * values).astype(np.float32)


def read_config(source: EncoderSource) -> EncoderConfig:
    content = source.read("config.json")
    if content is None:
        raise source.not_found(OSError("no config.json"))
    where = str(source.folder / "config.json") if source.folder else f"config.json of {source.name}"
    return EncoderConfig.of(parse_json(content, of=where, foreign=True), where)


def _load_weights(source: EncoderSource, config: EncoderConfig) -> dict[str, np.ndarray]:
    """Return the weights by name, without those of a pooler or a mask that the files lack."""
    paths = source.weight_paths()
    source.check_claims(config)
    listed = weights_of(config)
    try:
        files = WeightFiles(paths, config)
        missing = [weight for weight in listed if not all(name in files for name in weight.files)]
        if needed := [weight for weight in missing if not weight.unused]:
            raise InputError(
                f"{source.name} lacks weights of the encoder",
                expected=f"all {len(listed)} of {config.architecture}",
                received=f"none for {', '.join(one.files[0] for one in needed[:3])}{'…' if len(needed) > 3 else ''} "
                f"({len(needed)} in all)",
                fix="check that config.json and the weights belong together",
            )
        return {weight.name: files.own(weight) for weight in listed if weight not in missing}
    except (InputError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001  h5py and safetensors each raise their own errors
        raise source.not_found(error) from None


def _named_pooling(source: EncoderSource) -> str | None:
    """Return the pooling named in the encoder's files, or None."""
    own = poolings.own_pooling(source.read(poolings.OWN_FILE))
    if own is not None:
        return own
    module = poolings.pooling_module(source.read("modules.json"))
    if module is None:
        return None
    file = f"{module}/config.json"
    return poolings.sentence_transformers_pooling(source.read(file), file)
