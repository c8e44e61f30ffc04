"""Training on label names alone with an encoder, which also compares texts and names."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.extras import require
from xmc_tf.data import Texts
from xmc_tf.data.vocabularies import LabelHierarchy
from xmc_tf.fusion import EvidenceChoice
from xmc_tf.label_names import label_vocabulary
from xmc_tf.models.linear.names_only import train_on_names
from xmc_tf.models.linear.training import LinearOptions
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.models.parts import LazyModelFolder
from xmc_tf.models.prediction import embedded
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import XRLinearParams
from xmc_tf.pipeline.inputs import Documents, Recipe, TrainingInputs
from xmc_tf.pipeline.stages import Stages
from xmc_tf.pipeline.steps import TrainingSteps
from xmc_tf.pipeline.training import describe
from xmc_tf.store.models import ENCODER, NO_PROBABILITIES

_OF_RANKERS = ("tfidf_params", "nr_trees", "nr_features", "nr_dense", "nr_weights", NO_PROBABILITIES)


def train_on_encoded_names(
    lines: Sequence[str], texts: Texts, recipe: Recipe, stages: Stages, hierarchy: LabelHierarchy | None = None
) -> tuple[dict[str, Path], ModelMetadata]:
    """Train the parts of a model of label names with an encoder, which is not fine-tuned.

    Args:
        lines: the name of each label, with alternative names after tabs.
        texts: unlabelled texts, on which the similarity of texts and names is measured.
        recipe: all options; those of fine-tuning have no effect.
        stages: the work folder.
        hierarchy: the broader terms of labels.
    """
    if not len(texts):
        raise InputError(
            "an encoder needs texts without labels, on which the similarity of texts and names is measured",
            expected="some hundred texts: --texts FILE (in Python: the first argument of train)", received="no text",
            fix="give such texts, or leave out the encoder",
        )  # fmt: skip
    if stages.communicator.size > 1:
        raise InputError("names alone are trained by one process", received=f"{stages.communicator.size} processes")
    tfidf = recipe.tfidf
    if tfidf is None:
        raise InputError("names alone need TF-IDF", fix="leave out --text-only (in Python: tfidf=None)")
    require("tensorflow")
    params = dataclasses.replace(recipe.params, do_fine_tune=False, only_encoder=False)
    recipe = dataclasses.replace(recipe, params=params)
    names = label_vocabulary(lines).preferred
    inputs = TrainingInputs(Documents(texts, csr_matrix((0, len(lines)), dtype=np.float32)), names=names, lines=lines)
    pretrained = TrainingSteps(inputs, recipe, stages, {}, EvidenceChoice(False, False)).pretrained()
    metadata = ModelMetadata(
        describe(inputs, recipe) | {"embedding_dim": pretrained.record["dim"], "ensemble_method": "concat-only"}
    )
    encoder = {ENCODER: pretrained.folder / ENCODER}
    embed = partial(embedded, LazyModelFolder(encoder, metadata, where=stages.folder))
    options = LinearOptions(
        XRLinearParams(
            params.ranker_params, recipe.pred_params.ranker_params, params.refined_indexer_params, tfidf
        ),
        recipe.prediction, recipe.effort, seed=recipe.seed, threads=recipe.threads,
    )  # fmt: skip
    linear = XRLinear.of(train_on_names(lines, texts, options, hierarchy, embed, params.vector_length))
    linear.save(stages.folder / "names")
    own = {name: value for name, value in linear.metadata.content.items() if name in _OF_RANKERS}
    return LazyModelFolder.at(stages.folder / "names", metadata).parts | encoder, metadata.replace(**own)
