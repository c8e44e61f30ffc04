"""The table of parts of model folders, exports and their parts. Loading, saving, checks and the docs rely on it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json, read_unchanged_json
from xmc_tf.store.checksums import MODEL_FORMAT, MODEL_HEADER
from xmc_tf.store.kinds import FolderKind

FINE_TUNED, LINEAR = "XTransformer", "XLinear"  # classes of models
_LARGEST = 1 << 24  # bytes of a parameter file of PECOS
TREE, FEATURES, ENCODER, HEAD, RANKER = "tree", "features", "encoder", "head", "ranker"
ENSEMBLE, NAMES, FUSION, TRAINING = "ensemble", "label_names", "fusion", "training"
HIERARCHY, DOCUMENTS = "hierarchy", "documents"
LABELS = "labels.txt"
FUSION_HEADER = "fusion.json"  # in FUSION
MODULES_FILE, PROMPTS_FILE = "pooling.json", "config_sentence_transformers.json"  # of encoders
NO_PROBABILITIES = "no_probabilities"  # in MODEL_HEADER: why scores are not probabilities

_PECOS_MODEL = "pecos.xmc.xlinear.model###XLinearModel"


class ModelPart(NamedTuple):
    name: str
    about: str
    written_by: str  # the function or class that writes and reads it


PARTS = (
    ModelPart(MODEL_HEADER, "all parameters, versions, shapes, seed, and the checksums of all other files",
              "models.folder"),
    ModelPart(LABELS, "label names, if given", "models.folder"),
    ModelPart(TREE, "the label tree of the rankers, as PECOS's ClusterChain", "tree.chain_io"),
    ModelPart(FEATURES, "the fitted TF-IDF, if the model computes its own features", "features.Tfidf"),
    ModelPart(ENCODER, "the transformer and its tokenizer, as a Hugging Face folder or an ONNX graph",
              "encoder.Encoder"),
    ModelPart(HEAD, "the label heads of the levels used in fine-tuning, one file per shard", "matcher.Matcher"),
    ModelPart(RANKER, "the rankers, in PECOS's XLinear format", "linear.XLinear"),
    ModelPart(ENSEMBLE, "further trees and their rankers, if there are several: 1/tree, 1/ranker, …", "tree, linear"),
    ModelPart(NAMES, "if label names are evidence: the names, and the precision of their matches",
              "label_names.LabelNames"),
    ModelPart(FUSION, "if scores are probabilities: the fusion of all scores into one probability", "fusion.Fusion"),
    ModelPart(HIERARCHY, "the broader terms of labels, if a vocabulary has them", "data.vocabularies.LabelHierarchy"),
    ModelPart(DOCUMENTS, "digests of the texts of the training documents", "models.growing"),
    ModelPart(TRAINING, "features and labels of training documents and names, for growing",
              "models.growing.TrainingData"),
)  # fmt: skip
FOLDERS = tuple(part.name for part in PARTS if part.name not in (MODEL_HEADER, LABELS))


def _is_rankers(header: Mapping[str, Any]) -> bool:
    meta = header.get("__meta__")
    return isinstance(meta, dict) and meta.get("class_fullname") == _PECOS_MODEL


MODEL = FolderKind(
    "a model of xmc_tf", header=MODEL_HEADER, recognises=lambda header: header.get("format") == MODEL_FORMAT,
    parts="|".join(re.escape(part.name) for part in PARTS),
)  # fmt: skip
RANKERS = FolderKind(
    "a folder of linear rankers", header="param.json", recognises=_is_rankers, parts=r"param\.json|ranker|search"
)
PECOS = FolderKind(
    "a model of PECOS",
    header="param.json",
    recognises=lambda header: "__meta__" in header,
    parts=r"param\.json|[wc]\.npz|ranker|search|\d+\.model|text_encoder|text_tokenizer|text_model|concat_model",
)
CHAIN = FolderKind(
    "a label tree", header="config.json", recognises=lambda config: isinstance(config.get("len"), int),
    parts=r"config\.json|C\d+\.npz", is_model=False,
)  # fmt: skip
TFIDF_FORMAT = "xmc_tf.features.Tfidf"
TFIDF = FolderKind(
    "a fitted TF-IDF", header="params.json", recognises=lambda header: header.get("format") == TFIDF_FORMAT,
    parts=r"params\.json|vocabulary\.txt|\w+\.npy", is_model=False,
)  # fmt: skip
ABOUT = "assets.extra/xmc_tf.json"  # what was exported, and how
SERVING, PLAIN = "xmc_tf.serving", "xmc_tf.saved_model"  # a model of ours, and any other
EXPORT = FolderKind(
    "an export of xmc_tf", header=ABOUT, recognises=lambda about: about.get("format") in (SERVING, PLAIN),
    parts=r"saved_model\.pb|fingerprint\.pb|keras_metadata\.pb|variables|assets|assets\.extra",
)  # fmt: skip


def kind_at(folder: Path) -> FolderKind | None:
    """Return the kind of a folder, or None. The name ``params.json`` is not enough: parameter files have it, too."""
    if (folder / "saved_model.pb").is_file():
        return EXPORT
    if (folder / MODEL_HEADER).is_file():
        try:
            content = read_json(folder / MODEL_HEADER)
        except InputError:  # damaged, or no permission
            return MODEL if any((folder / part).is_dir() for part in (RANKER, TREE)) else None
        if MODEL.recognises(content):
            return MODEL
        if (folder / "vocabulary.txt").is_file() and str(content.get("format", "")).startswith("xmc_tf."):
            return TFIDF
    if (folder / "param.json").is_file():
        is_whole = any((folder / name).exists() for name in ("ranker", "text_encoder", "concat_model", "0.model"))
        if is_whole or ((folder / "W.npz").exists() and (folder / "C.npz").exists()):
            return PECOS
    if (folder / "config.json").is_file() and (folder / "C0.npz").is_file():
        return CHAIN
    return None


def model_kind(folder: Path) -> str:
    """Return "XTransformer" or "XLinear", or "" if params.json is damaged or neither it nor param.json exists."""
    try:
        if (folder / "params.json").exists():
            return str(read_unchanged_json(folder / "params.json").get("model", ""))
        if (folder / "param.json").exists():
            return FINE_TUNED if pecos_class(folder) == FINE_TUNED else LINEAR  # also if param.json is damaged
    except (InputError, OSError):
        pass  # loading the model reports it
    return ""


def pecos_class(folder: Path) -> str:
    """Return the name of the PECOS class that wrote a folder, such as "XTransformer", or "" for any other folder."""
    path = folder / "param.json"
    if (folder / "params.json").exists() or not path.is_file():
        return ""
    try:
        about = read_json(path, limit=_LARGEST, foreign=True)
    except InputError:
        return ""  # loading the model reports it
    meta = about.get("__meta__")
    name = meta.get("class_fullname") if isinstance(meta, dict) else None
    return name.rpartition("###")[2] if isinstance(name, str) and name.startswith("pecos.") else ""
