"""Reading of an encoder's files: configuration, weights and modules."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json
from xmc_tf.encoder.architectures.registry import parse_config
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.modules import POOLINGS, Modules
from xmc_tf.encoder.network.weights import Weight
from xmc_tf.encoder.sentence_transformers import read_modules
from xmc_tf.encoder.sources import EncoderSource
from xmc_tf.encoder.weight_files import WeightFiles
from xmc_tf.store.checksums import verify
from xmc_tf.store.models import MODULES_FILE

# Initial values of weights that do not start at random.
_CONSTANT = {"scale": 1.0, "shift": 0.0, "bias": 0.0, "excess": 0.0, "r_w_bias": 0.0, "r_r_bias": 0.0, "r_s_bias": 0.0}


def read_encoder(
    name_or_folder: str | Path, pooling: str = "auto", cache_dir: str = ""
) -> tuple[EncoderConfig, dict[str, np.ndarray], Modules]:
    """Return an encoder's configuration, weights and modules. Unused weights that the files lack are left out."""
    check_pooling(pooling)
    source = EncoderSource(name_or_folder, "encoder", cache_dir)
    verify(source.folder)
    config, modules = read_saved(source)
    values = _load_weights(source, config, list(modules.weights()))
    if source.read(MODULES_FILE) is None:
        modules, behind = read_modules(source, pooling)
        values |= behind
    lacks_pooler = config.architecture.has_pooler and "pooler.kernel" not in values
    asked = modules.pooling if pooling == "auto" else pooling
    if asked == "pooler" and lacks_pooler:
        raise InputError(
            f"{source.name} has no weights for a pooler",
            expected="a pooling other than pooler",
            received="pooler",
            fix="choose --pooling mean or --pooling cls",
        )
    if asked == "auto":
        asked = "cls" if lacks_pooler else config.architecture.pooling
    return config, values, dataclasses.replace(modules, pooling=asked).checked(config)


def check_pooling(pooling: str) -> None:
    """Raise an InputError if the pooling is unknown."""
    if pooling not in ("auto", *POOLINGS):
        raise InputError(
            f"unknown pooling {pooling!r}", expected=", ".join(("auto", *POOLINGS)), received=repr(pooling)
        )


def random_weights(
    config: EncoderConfig, seed: int, known: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Return all weights of an encoder: the known ones unchanged, the others initialized from the seed."""
    known = known or {}
    return {
        weight.name: _random(weight, config, seed, number)
        for number, weight in enumerate(config.architecture.weights(config))
        if weight.name not in known
    } | dict(known)


def _random(weight: Weight, config: EncoderConfig, seed: int, number: int) -> np.ndarray:
    if (constant := _CONSTANT.get(weight.name.rpartition(".")[2])) is not None:
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
    return parse_config(parse_json(content, of=where, foreign=True), where)


def _load_weights(source: EncoderSource, config: EncoderConfig, behind: list[Weight]) -> dict[str, np.ndarray]:
    """Return the weights by name. A pooler or mask embedding that the files lack is left out."""
    paths = source.weight_paths()
    source.check_claims(config)
    listed = [*config.architecture.weights(config), *behind]
    try:
        files = WeightFiles(paths, config, source.adapters)
        missing = [weight for weight in listed if not all(name in files for name in weight.files)]
        if needed := [weight for weight in missing if not weight.unused]:
            raise InputError(
                f"{source.name} lacks weights of the encoder",
                expected=f"all {len(listed)} weights of {config.architecture.name}",
                received=f"no {', '.join(one.files[0] for one in needed[:3])}{'…' if len(needed) > 3 else ''} "
                f"({len(needed)} in all)",
                fix="check that config.json and the weights belong together",
            )
        if unused := files.unused(listed):
            raise InputError(
                f"{source.name} has weights that its config.json does not use",
                expected="the configuration that was saved with the weights",
                received=f"{', '.join(unused[:3])}{'…' if len(unused) > 3 else ''} ({len(unused)} in all)",
                fix="copy the whole folder again",
            )
        return {weight.name: files.own(weight) for weight in listed if weight not in missing}
    except (InputError, MemoryError, ModuleNotFoundError):
        raise
    except Exception as error:  # noqa: BLE001  h5py and safetensors each raise their own errors
        raise source.not_found(error) from None


def read_saved(source: EncoderSource) -> tuple[EncoderConfig, Modules]:
    """Return the configuration, and the modules that ``write_modules`` wrote; without its file, pooling "auto"."""
    config, content = read_config(source), source.read(MODULES_FILE)
    if content is None:
        return config, Modules("auto")
    saved = parse_json(content, of=f"the encoder's {MODULES_FILE}", top=None)
    try:
        modules = Modules.from_json(saved)
        if not set(modules.poolings) <= set(POOLINGS):
            raise ValueError(modules.pooling)
    except (TypeError, KeyError, AttributeError, ValueError):
        raise InputError(
            f"the encoder's {MODULES_FILE} names no known pooling", expected=", ".join(POOLINGS), received=str(saved)
        ) from None
    if saved.get("config") != config.digest:
        raise InputError(
            f"{source.name}: config.json has changed since the encoder was saved",
            expected=f"the configuration with the digest {saved.get('config')}, as {MODULES_FILE} says",
            received=f"one with the digest {config.digest}",
            fix="copy the whole folder again",
        )
    return config, modules


def write_modules(folder: Path, modules: Modules, config: EncoderConfig) -> None:
    content = {**modules.to_json(), "config": config.digest}
    (folder / MODULES_FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")
