"""Reading of an encoder's files: configuration, weights and pooling."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json
from xmc_tf.encoder.architectures.registry import parse_config
from xmc_tf.encoder.network.config import EncoderConfig
from xmc_tf.encoder.network.weights import Weight
from xmc_tf.encoder.sources import EncoderSource
from xmc_tf.encoder.weight_files import WeightFiles
from xmc_tf.store.checksums import verify

# Initial values of weights that do not start at random.
_CONSTANT = {"scale": 1.0, "shift": 0.0, "bias": 0.0, "r_w_bias": 0.0, "r_r_bias": 0.0, "r_s_bias": 0.0}
POOLINGS = ("mean", "cls", "pooler", "max", "last", "last_tanh")  # last_tanh: PECOS's for XLNet
_POOLING_FILE = "pooling.json"
# Fields of sentence-transformers' file, and our names for their poolings.
_SENTENCE_TRANSFORMERS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}


def read_encoder(
    name_or_folder: str | Path, pooling: str = "auto", cache_dir: str = ""
) -> tuple[EncoderConfig, dict[str, np.ndarray], str]:
    """Return an encoder's configuration, weights and pooling. Unused weights that the files lack are left out."""
    check_pooling(pooling)
    source = EncoderSource(name_or_folder, "encoder", cache_dir)
    verify(source.folder)
    config = read_config(source)
    _check_digest(source, config)
    values = _load_weights(source, config)
    if pooling == "auto":
        pooling = _named_pooling(source) or "auto"
    lacks_pooler = config.architecture.has_pooler and "pooler.kernel" not in values
    if pooling == "pooler" and lacks_pooler:
        raise InputError(
            f"{source.name} has no weights for a pooler",
            expected="a pooling other than pooler",
            received="pooler",
            fix="choose --pooling mean or --pooling cls",
        )
    if pooling == "auto":
        pooling = "cls" if lacks_pooler else config.architecture.pooling
    return config, values, checked_pooling(pooling, config)


def check_pooling(pooling: str) -> None:
    """Raise an InputError if the pooling is unknown."""
    if pooling not in ("auto", *POOLINGS):
        raise InputError(
            f"unknown pooling {pooling!r}", expected=", ".join(("auto", *POOLINGS)), received=repr(pooling)
        )


def checked_pooling(pooling: str, config: EncoderConfig) -> str:
    """Return the pooling, or raise an InputError if the architecture does not support it."""
    if pooling == "pooler" and not config.architecture.has_pooler:
        raise InputError(
            f"{config.architecture.name} has no pooler", expected="mean, cls, max or last", received="pooler"
        )
    return pooling


def random_weights(
    config: EncoderConfig, seed: int, known: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Return all weights of an encoder: the known ones unchanged, the others initialized from the seed."""
    known = known or {}
    return {
        weight.name: known[weight.name] if weight.name in known else _random(weight, config, seed, number)
        for number, weight in enumerate(config.architecture.weights(config))
    }


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


def _load_weights(source: EncoderSource, config: EncoderConfig) -> dict[str, np.ndarray]:
    """Return the weights by name. A pooler or mask embedding that the files lack is left out."""
    paths = source.weight_paths()
    source.check_claims(config)
    listed = config.architecture.weights(config)
    try:
        files = WeightFiles(paths, config)
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


def _check_digest(source: EncoderSource, config: EncoderConfig) -> None:
    """Refuse a configuration that differs from the one with which ``write_pooling`` was called."""
    content = source.read(_POOLING_FILE)
    saved = parse_json(content, of=f"the encoder's {_POOLING_FILE}", top=None) if content is not None else None
    if isinstance(saved, dict) and saved.get("config") != config.digest:
        raise InputError(
            f"{source.name}: config.json has changed since the encoder was saved",
            expected=f"the configuration with the digest {saved.get('config')}, as {_POOLING_FILE} says",
            received=f"one with the digest {config.digest}",
            fix="copy the whole folder again",
        )


def _named_pooling(source: EncoderSource) -> str | None:
    """Return the pooling in pooling.json, else in sentence-transformers' configuration; None if neither exists."""
    if (content := source.read(_POOLING_FILE)) is not None:
        own = parse_json(content, of=f"the encoder's {_POOLING_FILE}", top=None)
        if not isinstance(own, dict) or own.get("pooling") not in POOLINGS:
            raise InputError(
                f"the encoder's {_POOLING_FILE} names no known pooling", expected=", ".join(POOLINGS), received=str(own)
            )
        return own["pooling"]
    if (content := source.read("modules.json")) is None:
        return None
    modules = parse_json(content, of="the encoder's modules.json", top=list, foreign=True)
    found = [one for one in modules if isinstance(one, dict) and str(one.get("type", "")).endswith(".Pooling")]
    file = f"{found[0].get('path', '')}/config.json" if found else ""
    if not found or (content := source.read(file)) is None:
        return None
    fields = parse_json(content, of=f"the encoder's {file}", foreign=True)
    modes = [key for key, value in fields.items() if key.startswith("pooling_mode") and value is True]
    if len(modes) == 1 and modes[0] in _SENTENCE_TRANSFORMERS:
        return _SENTENCE_TRANSFORMERS[modes[0]]
    raise InputError(
        f"the encoder's {file} has an unsupported pooling",
        expected=f"one of {', '.join(_SENTENCE_TRANSFORMERS)}",
        received=" and ".join(modes) or "none",
        fix=f"choose one (--pooling {' | '.join(POOLINGS)})",
    )


def write_pooling(folder: Path, pooling: str, config: EncoderConfig) -> None:
    content = {"pooling": pooling, "config": config.digest}
    (folder / _POOLING_FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")
