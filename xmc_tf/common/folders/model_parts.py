"""The table of files in model folders, exports and their parts. Loading, saving, checks and the docs rely on it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import read_json
from xmc_tf.common.folders.checksums import MODEL_FORMAT, MODEL_HEADER
from xmc_tf.common.folders.kinds import FolderKind

TREE, FEATURES, ENCODER, HEAD, RANKER = "tree", "features", "encoder", "head", "ranker"
ENSEMBLE, NAMES, FUSION, TRAINING = "ensemble", "label_names", "fusion", "training"
HIERARCHY, DOCUMENTS = "hierarchy", "documents"
LABELS = "labels.txt"
FUSION_HEADER = "fusion.json"  # in FUSION
NO_PROBABILITIES = "no_probabilities"  # in MODEL_HEADER: why scores are not probabilities
RANKERS_SCORE_NEW = "rankers_score_new"  # in MODEL_HEADER: whether labels without documents have no score of the head

_CHAIN_FILES = r"config\.json|C\d+\.npz"
_TFIDF_FILES = (
    r"params\.json|vocabulary\.txt"
    r"|(keys|columns|idf|forms|lemma_of|lemma_keys|endings|cuts|added|added_ends)\.npy"
)
_LEVEL_FILES = r"param\.json|\d+\.model/(param\.json|[WC]\.npz)"
_SEARCH_FILES = r"search\.json|(chunks|words)\.npy"
_RANKER_FILES = rf"param\.json|ranker/({_LEVEL_FILES})|search/({_SEARCH_FILES})"


class ModelPart(NamedTuple):
    name: str
    inside: str | None  # pattern of the paths inside a folder; None for a file
    about: str
    written_by: str  # the function or class that writes and reads it


PARTS = (
    ModelPart(MODEL_HEADER, None, "all parameters, versions, shapes, seed, and the checksums of all other files",
         "models.folder"),
    ModelPart(LABELS, None, "label names, if given", "models.folder"),
    ModelPart(TREE, _CHAIN_FILES, "the label tree of the rankers, as PECOS's ClusterChain", "tree.chain_io"),
    ModelPart(FEATURES, _TFIDF_FILES, "the fitted TF-IDF, if the model computes its own features", "features.Tfidf"),
    ModelPart(ENCODER, ".+", "the transformer and its tokenizer, as a Hugging Face folder or an ONNX graph",
         "encoder.Encoder"),
    ModelPart(HEAD, ".+", "the label heads of the levels used in fine-tuning, one file per shard", "matcher.Matcher"),
    ModelPart(RANKER, _RANKER_FILES, "the rankers, in PECOS's XLinear format", "linear.XLinear"),
    ModelPart(ENSEMBLE, rf"\d+/(tree/({_CHAIN_FILES})|ranker/({_RANKER_FILES}))",
         "further trees and their rankers, if there are several: 1/tree, 1/ranker, …", "tree, linear"),
    ModelPart(NAMES, r"names\.npz", "if label names are evidence: the names, and the precision of their matches",
         "label_names.LabelNames"),
    ModelPart(FUSION, r"fusion\.json|(documents|centers)\.npy|similarity\.npz",
         "if scores are probabilities: the fusion of all scores into one probability", "fusion.Fusion"),
    ModelPart(HIERARCHY, r"broader\.tsv", "the broader terms of labels, if a vocabulary has them",
         "data.vocabularies.LabelHierarchy"),
    ModelPart(DOCUMENTS, r"keys\.npy", "digests of the texts of the training documents",
         "models.growing"),
    ModelPart(TRAINING, r"[XY]\.npz|is_name\.npy", "features and labels of training documents and names, for growing",
         "models.growing.TrainingData"),
)  # fmt: skip
FOLDERS = tuple(part.name for part in PARTS if part.inside is not None)

_FIRST_VERSIONS = ("XLinear", "XTransformer")  # wrote models without a format
_PECOS_MODEL = "pecos.xmc.xlinear.model###XLinearModel"


def _is_model(content: Mapping[str, Any]) -> bool:
    if content.get("format") == MODEL_FORMAT:
        return True
    trained_by = content.get("versions")
    return content.get("model") in _FIRST_VERSIONS and isinstance(trained_by, dict) and "xmc_tf" in trained_by


def _is_rankers(header: Mapping[str, Any]) -> bool:
    meta = header.get("__meta__")
    return isinstance(meta, dict) and meta.get("class_fullname") == _PECOS_MODEL


MODEL = FolderKind(
    "a model of xmc_tf",
    header=MODEL_HEADER,
    recognises=_is_model,
    # The first is the header of PECOS's models, which are never replaced.
    parts={r"param\.json": None, **{part.name.replace(".", r"\."): part.inside for part in PARTS}},
)
RANKERS = FolderKind(
    "a folder of linear rankers", header="param.json", recognises=_is_rankers,
    parts={r"param\.json": None, "ranker": _LEVEL_FILES, "search": _SEARCH_FILES},
)  # fmt: skip
PECOS = FolderKind(
    "a model of PECOS",
    header="param.json",
    recognises=lambda header: "__meta__" in header,
    parts={
        r"param\.json|[wc]\.npz": None,
        r"ranker|search|\d+\.model|text_encoder|text_tokenizer|text_model|concat_model": ".+",
    },
)
CHAIN = FolderKind(
    "a label tree", header="config.json", recognises=lambda config: isinstance(config.get("len"), int),
    parts={_CHAIN_FILES: None}, is_model=False,
)  # fmt: skip
TFIDF_FORMAT = "xmc_tf.features.Tfidf"
TFIDF = FolderKind(
    "a fitted TF-IDF", header="params.json", recognises=lambda header: header.get("format") == TFIDF_FORMAT,
    parts={_TFIDF_FILES: None}, is_model=False,
)  # fmt: skip
ABOUT = "assets.extra/xmc_tf.json"  # what was exported, and how
SERVING, PLAIN = "xmc_tf.serving", "xmc_tf.saved_model"  # a model of ours, and any other
EXPORT = FolderKind(
    "an export of xmc_tf", header=ABOUT, recognises=lambda about: about.get("format") in (SERVING, PLAIN),
    parts={r"saved_model\.pb|fingerprint\.pb|keras_metadata\.pb": None, r"variables|assets|assets\.extra": ".+"},
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
