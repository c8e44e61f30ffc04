"""Train all parts of a model from texts and labels."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from xmc_tf.common.process.versions import package_versions
from xmc_tf.fusion.choice import check_unlabelled
from xmc_tf.params import MatcherParams, XTransformerParams
from xmc_tf.pipeline.ensembles import chosen_method
from xmc_tf.pipeline.held_out import evidence_choice
from xmc_tf.pipeline.inputs import Recipe, TrainingInputs, checksum
from xmc_tf.pipeline.stages import Record, Stage, Stages
from xmc_tf.pipeline.steps import TrainingSteps
from xmc_tf.store.models import NO_PROBABILITIES

if TYPE_CHECKING:
    from xmc_tf.collective.strategy import CollectiveStrategy


@dataclass(frozen=True)
class TrainedParts:
    """The result of training."""

    parts: dict[str, Path]  # where each part of the model folder is
    metadata: Record  # for ``params.json``
    held_out: Stage | None = None  # rankers trained without the held-out documents; None without probabilities
    label_names: bool = False  # whether label names are evidence
    embeddings: Stage | None = None  # None without rankers


def make_parts(
    inputs: TrainingInputs, recipe: Recipe, stages: Stages, strategy: Callable[[], "CollectiveStrategy"]
) -> TrainedParts:
    """Train all parts of a model, or reuse finished ones. All ranks must call it. Only fine-tuning needs a strategy."""
    params, checksums = recipe.params, inputs.check(stages.communicator)
    evidence = evidence_choice(params, inputs.lines, inputs.documents.nr_documents)
    check_unlabelled(len(inputs.unlabelled), evidence)
    if evidence.label_names:
        inputs = inputs.with_names()
        names = checksum(inputs.lines)
        checksums |= {what: f"{checksums[what]} {names}" for what in ("texts", "labels")}
    steps = TrainingSteps(inputs, recipe, stages, checksums, evidence)
    features = steps.features()
    encoded = pretrained = steps.pretrained()
    parts: dict[str, Path] = {}
    why_not = {NO_PROBABILITIES: steps.evidence.why_not} if steps.evidence.why_not else {}
    metadata = describe(inputs, recipe) | {"embedding_dim": pretrained.record["dim"]} | why_not

    # The encoder, fine-tuned on the labels.
    first_tree = None
    if params.do_fine_tune or params.fix_clustering:
        first_tree = steps.first_tree(features, pretrained)
        parts["tree"] = first_tree.folder / "tree"
    if params.do_fine_tune and first_tree is not None:
        encoded = steps.fine_tuned(pretrained, first_tree, strategy)
        parts["head"] = encoded.folder / "head"
        metadata["head_of_labels"] = encoded.record["of_labels"]
    metadata["ensemble_method"] = chosen_method(recipe, metadata.get("head_of_labels", False))
    parts["encoder"] = encoded.folder / "encoder"
    if params.only_encoder:
        return TrainedParts(parts, metadata)

    # The rankers, on features and embeddings side by side.
    embeddings = steps.embeddings(encoded)
    trees = [] if first_tree is None or not params.fix_clustering else [first_tree]
    for number in range(len(trees), len(params.ranker_trees)):
        trees.append(steps.refined_tree(features, embeddings, number))
    rankers = steps.rankers(features, embeddings, trees)
    parts |= {"tree": trees[0].folder / "tree", "ranker": rankers.folder / "ranker"}
    if len(trees) > 1:
        parts["ensemble"] = rankers.folder / "ensemble"
        metadata["nr_trees"] = len(trees)
    if features is not None:
        parts["features"] = features.folder / "features"
    metadata |= {name: rankers.record[name] for name in ("nr_features", "nr_dense", "nr_weights")}
    held_out = steps.rankers_without_held_out(features, embeddings, trees) if len(steps.held_out) else None
    return TrainedParts(parts, metadata, held_out, steps.evidence.label_names, embeddings)


def describe(inputs: TrainingInputs, recipe: Recipe) -> Record:
    """Return the metadata that every XR-Transformer has."""
    return {
        "model": "XTransformer",
        "train_params": portable(recipe.params).to_json(),
        "pred_params": recipe.pred_params.to_json(),
        "tfidf_params": recipe.tfidf.to_json() if recipe.tfidf and not recipe.params.only_encoder else None,
        "beam_size": recipe.prediction.beam_size or recipe.last_prediction.only_topk,
        "only_topk": recipe.prediction.only_topk or recipe.last_prediction.only_topk,
        "truncate_length": recipe.reading.max_length,
        "long_texts": recipe.reading.long_texts,
        "max_windows": recipe.reading.max_windows,
        "embedding_weight": recipe.params.vector_length,
        "nr_documents": inputs.documents.nr_documents,
        "nr_labels": inputs.documents.nr_labels,
        "seed": recipe.seed,
        "versions": package_versions("tensorflow", "transformers"),
    }


def portable(params: XTransformerParams) -> XTransformerParams:
    """Return the parameters without local paths, which are meaningless on other machines."""

    def cleaned(level: MatcherParams) -> MatcherParams:
        name = level.init_model_dir or level.model_shortcut
        shortcut = Path(name).name if Path(name).expanduser().exists() else name
        return dataclasses.replace(level, model_shortcut=shortcut, init_model_dir="", cache_dir="", checkpoint_dir="")

    chain = params.matcher_params_chain
    changed = tuple(map(cleaned, chain)) if isinstance(chain, tuple) else cleaned(chain)
    return dataclasses.replace(params, matcher_params_chain=changed)
