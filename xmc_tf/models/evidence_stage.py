"""The training stage that learns probabilities from the scores of a fine-tuned model and from label names."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.data import Features, Texts
from xmc_tf.fusion import HeldOutScores, ProbabilityModel, bounded_post_processor
from xmc_tf.fusion.evidence import WordSources
from xmc_tf.fusion.weighted_numbers import NAMES
from xmc_tf.metrics import evaluate
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.models.parts import LazyModelFolder
from xmc_tf.models.prediction import by_rankers, embedded, method_of, ranker_features, scored
from xmc_tf.models.results import Scored, pieces, stacked
from xmc_tf.params import PredictionOptions, TfidfParams
from xmc_tf.params.choices import MEANS
from xmc_tf.params.pools import FUSED_LABELS
from xmc_tf.pipeline.embeddings import rows_of_length
from xmc_tf.pipeline.held_out import held_out_documents
from xmc_tf.pipeline.inputs import Recipe, TrainingInputs, checksum
from xmc_tf.pipeline.stages import Record, Stage, Stages
from xmc_tf.store.models import ENSEMBLE

_VERSION = 13  # of how evidence is learned, apart from its numbers; results of other versions are not reused
_LOG = logging.getLogger(__name__)


def evidence_stage(
    model: LazyModelFolder, held_out: Stage, embeddings: Stage, inputs: TrainingInputs, recipe: Recipe, stages: Stages,
    *, named: bool, decide_on_head: bool,
) -> Stage:  # fmt: skip
    """Learn the fusion and the weight of label names from held-out documents.

    Neither the encoder nor the auxiliary rankers were trained on these documents. With ``decide_on_head``, the label
    head is dropped if the rankers score better without it, for example because the encoder does not know the language.
    The stage's record contains the decision.
    """
    documents, lines = inputs.documents, inputs.lines if named else None

    def make(folder: Path) -> Record:
        rankers = {part: held_out.folder / part for part in ("ranker", ENSEMBLE) if part in model.parts}
        metadata = model.metadata
        if ENSEMBLE in rankers:
            metadata = ModelMetadata({**metadata.content, "nr_trees": held_out.record["nr_trees"]})
        auxiliary = LazyModelFolder({**model.parts, **rankers}, metadata, model.names, where=model.folder)
        auxiliary.tokenizer.memory = inputs.tokens
        rows = held_out_documents(documents.nr_documents, recipe.seed, fine_tuned=recipe.params.do_fine_tune)
        record: Record = {"ensemble_method": metadata.ensemble_method}
        bounded = bounded_post_processor(auxiliary.post_processor)
        options = PredictionOptions(only_topk=FUSED_LABELS, threads=recipe.threads, post_processor=bounded)
        vectors: list[np.ndarray] = []

        def score(
            trained_on: np.ndarray, some: np.ndarray, hidden: np.ndarray, short: Sequence[str] | None
        ) -> HeldOutScores:
            # All of them stand for labels without documents, even if the head knows hidden labels from documents.
            Y = csr_matrix(documents.Y)[trained_on]
            auxiliary.new_to_head = hidden | (np.bincount(Y.indices, minlength=len(hidden)) == 0)
            every: Any = documents.texts
            texts = every.rows(some) if hasattr(every, "rows") else [every[int(row)] for row in some]
            X = None if documents.X is None else documents.X.rows(some)
            chosen = options
            found, own = _scored(auxiliary, texts, X, chosen)
            vectors.append(own)
            if decide_on_head and metadata.ensemble_method in MEANS:
                alone = by_rankers(auxiliary, ranker_features(auxiliary, texts, X, own, options), options)
                truth = csr_matrix(documents.Y)[some]
                both, rankers_only = _mean_precision(truth, found.labels), _mean_precision(truth, alone)
                _LOG.info(
                    "mean of P@1, P@3 and P@5 on %s held-out documents: %.1f with the label head, %.1f without it%s",
                    f"{len(some):,}", 100 * both, 100 * rankers_only,
                    "" if both >= rankers_only else "; it is left out",
                )  # fmt: skip
                if both < rankers_only:
                    found, chosen = found._replace(labels=alone), replace(options, ensemble_method="concat-only")
                record["ensemble_method"] = method_of(auxiliary, chosen)
            if short is None or X is not None:  # features of cut documents cannot be computed
                return HeldOutScores(found.labels)
            cut, own = _scored(auxiliary, short, None, chosen)
            return HeldOutScores(found.labels, found.information, cut.labels, cut.information, rows_of_length(1.0, own))

        evidence = ProbabilityModel.learn(
            lines, documents.texts, documents.Y, score, folds=[rows], threads=recipe.threads,
            embed=lambda names: embedded(auxiliary, names),
            held_out_vectors=lambda: rows_of_length(1.0, np.concatenate(vectors)),
            embeddings=np.load(embeddings.folder / "E.npy", mmap_mode="r")[: documents.nr_documents],
            words=WordSources(language, inputs.unlabelled),
        )  # fmt: skip
        evidence.save(folder)
        return record | {"summary": f"{len(rows):,} held-out documents"}

    language = (recipe.tfidf or TfidfParams()).language
    inputs_of = {
        "version": _VERSION,
        "numbers": list(NAMES),
        "language": language,
        "names": None if lines is None else list(lines),
        "ensemble_method": model.metadata.content.get("ensemble_method"),
        "decide on head": decide_on_head,
    }
    if len(inputs.unlabelled):
        inputs_of["unlabelled"] = checksum(inputs.unlabelled)
    return stages.run("label-names", make, inputs=inputs_of, after=[held_out, embeddings])


def _scored(
    model: LazyModelFolder, texts: Texts, X: Features | None, options: PredictionOptions
) -> tuple[Scored, np.ndarray]:
    """Return the scores of all documents, and their embeddings, some documents at a time."""
    parts = [scored(model, *piece, options) for piece in pieces(texts, X, options.max_pred_chunk)]
    information = [part.information for part, _ in parts if part.information is not None]
    found = stacked([part.labels for part, _ in parts], model.nr_labels)
    known = np.concatenate(information) if information else None
    return Scored(found, information=known), np.concatenate([own for _, own in parts])


def _mean_precision(truth: csr_matrix, scores: csr_matrix) -> float:
    measures = evaluate(truth, scores)
    return sum(measures.at("P", k) for k in (1, 3, 5)) / 3
