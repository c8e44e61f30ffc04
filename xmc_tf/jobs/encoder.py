"""Train an XR-Transformer on a table, on one rank or many."""

import logging
import time

from xmc_tf.common.process.versions import package_versions
from xmc_tf.data import TextFile
from xmc_tf.jobs.comparison import compare_with_linear
from xmc_tf.jobs.table_job import TableJob, data_set_over_ranks, finish
from xmc_tf.label_names import have_letters, label_vocabulary
from xmc_tf.models.results import predict_over_ranks, rows_of
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.pipeline.devices import choose_device
from xmc_tf.pipeline.inputs import Documents, Recipe, TrainingInputs
from xmc_tf.pipeline.stages import Stages
from xmc_tf.pipeline.waiting import on_first_rank
from xmc_tf.tables.runs import flat_parameters, now
from xmc_tf.tables.store import StoredTexts, TableStore
from xmc_tf.tables.stored_tokens import StoredTokens
from xmc_tf.tables.summary import summary_of

_LOG = logging.getLogger(__name__)
_AT_ONCE = 4096  # texts


def train_encoder(job: TableJob, recipe: Recipe, stages: Stages, *, keep: bool = False) -> str | None:
    """Fine-tune an encoder and train rankers on a table. All ranks must call it; rank 0 returns the summary to print.

    The model is not trained on the validation documents. They are used to keep the best state of fine-tuning.
    """
    began, start = now(), time.monotonic()
    communicator = stages.communicator

    store = data_set_over_ranks(job, communicator)
    device = choose_device(communicator, recipe.first_level.use_gpu)
    documents = _documents(store, "train")
    _LOG.info("%s documents, %s labels, on %s", *(f"{n:,}" for n in documents.Y.shape), device)
    validation = _documents(store, "validation") if store.count("validation") else None
    lines = store.names
    tokens = StoredTokens(store.path, writes=communicator.rank == 0)
    inputs = TrainingInputs(
        documents, names=label_vocabulary(lines).preferred, validation=validation,
        lines=lines if have_letters(lines) else None, tokens=tokens,
        unlabelled=TextFile(job.texts) if job.texts else (),
    )  # fmt: skip
    model = XTransformer._train_in_stages(inputs, recipe, stages)
    model.metadata = model.metadata.with_columns(store.columns)
    if store.count("test"):
        model.metadata = model.metadata.with_examples(list(store.texts("test")[:3]))
    on_first_rank(communicator, lambda: model.save(job.model))
    predicted = None
    if store.count("test"):
        model = XTransformer.load(job.model)
        model.tokenizer.memory, texts = tokens, store.texts("test")
        if communicator.size > 1:  # rank 0 writes the tokens, and each rank then reads those of its documents
            on_first_rank(communicator, lambda: _tokenize(texts, model))
        predicted = predict_over_ranks(lambda rows: model.predict(rows_of(texts, rows)), len(texts), communicator)
    first = recipe.first_level
    reasons = [f"encoder {first.init_model_dir or first.model_shortcut}, fine-tuned on {device}"]
    if validation is not None:
        reasons.append(
            f"the {store.count('validation'):,} validation documents chose the best step of fine-tuning; it learned "
            "nothing else from them, but evaluate counts them as used in training"
        )
    curves = [stage.record.get("curves", {}) for stage in stages.done if stage.name == "fine-tuning"]

    if communicator.rank == 0:
        tokens.log_summary()

    def recorded() -> str:
        writable = TableStore.open(store.path, write=True)
        about, spent = summary_of(writable), sum(stage.seconds for stage in stages.done)
        compared = [] if predicted is None else compare_with_linear(
            store, about, model, job.model, predicted, spent, unlabelled=inputs.unlabelled
        )  # fmt: skip
        return finish(
            job, writable, about, predicted, start, compared=compared, began=began, kind="XR-Transformer",
            parameters=flat_parameters(recipe.params.to_json()), chosen=reasons,
            durations={stage.name: round(stage.seconds, 2) for stage in stages.done},
            curve={name: [(step, value) for step, value in points] for one in curves for name, points in one.items()},
            versions=package_versions("tensorflow", "transformers"),
        )  # fmt: skip

    summary = on_first_rank(communicator, recorded)
    if not keep:
        stages.remove()
    return None if communicator.rank else summary


def _tokenize(texts: StoredTexts, model: XTransformer) -> None:
    for first in range(0, len(texts), _AT_ONCE):
        model.tokenizer.windows(texts[first : first + _AT_ONCE], model.metadata.reading)


def _documents(store: TableStore, split: str) -> Documents:
    return Documents(store.texts(split), store.labels(split), None, {"texts": f"{store.path}, {split} documents"})
