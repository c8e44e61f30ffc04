"""Model folders of ``pecos.xmc.xtransformer``: read without conversion, and converted when the model is saved.

param.json                     the class, the number of labels
text_encoder/param.json        parameters of the encoder's last level
text_encoder/text_encoder/     the transformer, as a Hugging Face folder
text_encoder/text_tokenizer/   its tokenizer
text_encoder/text_model        the label head of the last fine-tuned level, as torch.save wrote it
concat_model/                  the rankers on [features ; embedding], as a folder of XLinear; absent with only_encoder

If there are rankers, PECOS predicts with the rankers alone. A model loaded from such a folder does the same.
``text_encoder/concat_model``, which PECOS uses only during training, is not read.
"""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.common.process.versions import package_versions
from xmc_tf.encoder.architectures.registry import parse_config
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.params import MatcherParams, MatcherPredParams
from xmc_tf.store.models import ENCODER, HEAD, RANKER, TREE
from xmc_tf.tree import save_chain

if TYPE_CHECKING:
    from xmc_tf.models.parts import LazyModelFolder

_LARGEST = 1 << 24  # bytes of a parameter file
_FOLDERS = ("checkpoint_dir", "cache_dir", "init_model_dir", "model_shortcut")  # of the machine that trained


def read_pecos_folder(folder: Path) -> tuple[dict[str, Path], ModelMetadata]:
    """Return the paths of the parts of a PECOS model, and its metadata in the format of our ``params.json``."""
    inner = folder / "text_encoder"
    if not (inner / "text_encoder" / "config.json").is_file():
        raise InputError(
            f"{inner / 'text_encoder' / 'config.json'} is missing", fix="the folder is incomplete: copy it again"
        )
    parts = {"encoder": inner}
    if (inner / "text_model").exists():
        parts["head"] = inner / "text_model"
    if (folder / "concat_model").is_dir():
        parts |= {"tree": folder / "concat_model", "ranker": folder / "concat_model"}
    pooling, dim = _pooling_and_size(inner / "text_encoder" / "config.json")
    matcher_file = inner / "param.json"
    matcher = _read(matcher_file) if matcher_file.exists() else {}
    try:
        predicting = MatcherPredParams.from_json(matcher.get("pred_params") or {})
    except InputError as error:
        raise error.found_in(f"{matcher_file}: pred_params") from None
    trained = matcher.get("train_params")
    names = {field.name for field in dataclasses.fields(MatcherParams)} - set(_FOLDERS)
    metadata: dict[str, Any] = {
        "model": "XTransformer",
        "trained_by": "PECOS",
        "train_params": {
            "matcher_params_chain": {
                "loss_function": "squared-hinge",
                **{key: value for key, value in (trained if isinstance(trained, dict) else {}).items() if key in names},
            }
        },
        "pred_params": {"matcher_params_chain": predicting.to_json()},
        "beam_size": predicting.only_topk,
        "only_topk": predicting.only_topk,
        "truncate_length": predicting.truncate_length,
        "ensemble_method": "concat-only" if "ranker" in parts else "transformer-only",
        "pooling": pooling,
        "embedding_dim": dim,
        "embedding_weight": 1.0,
        "nr_labels": _count(_read(folder / "param.json"), "nr_labels", folder / "param.json"),
    }
    if "ranker" in parts:
        place = folder / "concat_model" / "ranker" / "param.json"
        nr_features = _count(_read(place), "nr_features", place)
        if nr_features < dim:
            raise InputError(
                f"{place} does not fit the encoder", expected=f"at least {dim} features, the width of the embedding",
                received=f"{nr_features:,}", fix="the folder contains files of two models: copy the model again",
            )  # fmt: skip
        metadata |= {"nr_features": nr_features, "nr_dense": dim}
    return parts, ModelMetadata(metadata)


def converted_parts(model: "LazyModelFolder") -> dict[str, Callable[[Path], object]]:
    """Return a dictionary from part names to functions that write these parts of a PECOS model in our format."""

    def write_encoder(place: Path) -> None:
        model.tensorflow_encoder.save(place)
        model.tokenizer.save(place)

    parts: dict[str, Callable[[Path], object]] = {ENCODER: write_encoder}
    if RANKER in model.parts:
        parts[TREE] = lambda place: save_chain(place, model.tree)
        # A copy and never a link, because PECOS writes into its files in place.
        parts[RANKER] = lambda place: shutil.copytree(model.parts[RANKER], place, copy_function=shutil.copy2)
    if HEAD in model.parts:
        parts[HEAD] = lambda place: model.matcher.save(place)
    return parts


def converted_metadata(model: "LazyModelFolder") -> ModelMetadata:
    # The encoder's own file has the pooling.
    metadata = {key: value for key, value in model.metadata.content.items() if key != "pooling"}
    return ModelMetadata({**metadata, "versions": package_versions("tensorflow", "transformers")})


def _pooling_and_size(path: Path) -> tuple[str, int]:
    """Return the pooling that PECOS uses for the encoder with this configuration file, and the embedding size."""
    config = parse_config(_read(path), str(path))
    try:
        pooling = config.architecture.pecos_pooling(config)
    except InputError as error:
        raise error.found_in(str(path)) from None
    if pooling is None:
        raise InputError(
            f"{path}: PECOS has no encoder {config.architecture.name!r}",
            expected="BERT, RoBERTa, XLM-RoBERTa, DistilBERT or XLNet",
            fix="load the encoder alone with Encoder.load, which knows more architectures",
        )
    return pooling, config.width


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"{path} is missing", fix="the folder is incomplete: copy it again")
    return dict(read_json(path, limit=_LARGEST, foreign=True, fix="copy the model again"))


def _count(content: dict[str, Any], key: str, path: Path) -> int:
    value = content.get(key)
    if type(value) is not int or not 0 < value < 1 << 31:
        raise InputError(
            f"{path}: {key} is {str(value)[:40]}", expected="a whole number of at least 1", fix="copy the model again"
        )
    return value
