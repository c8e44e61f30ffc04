"""Train a model on the names of labels alone: a vocabulary is enough to begin."""

import dataclasses
import logging

from xmc_tf.common.compiled import announce_compiling
from xmc_tf.common.errors import InputError
from xmc_tf.common.process.cli import GivenFlags
from xmc_tf.common.regular import existing_file
from xmc_tf.data import TextFile, Texts, load_names
from xmc_tf.data.vocabularies import LabelLines, all_label_lines
from xmc_tf.jobs.train_flags import FILE_FLAGS, linear_options, refuse_job_flags
from xmc_tf.models.linear.first_use import compiling_beside
from xmc_tf.models.linear.names_only import train_on_names
from xmc_tf.models.model import Model
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.models.xtransformer import TrainingRun, XTransformer
from xmc_tf.params import MatcherParams
from xmc_tf.params.tfidf import first_language
from xmc_tf.pipeline.devices import choose_device
from xmc_tf.pipeline.inputs import Recipe
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.store.models import MODEL
from xmc_tf.store.outputs import refuse_model_folder
from xmc_tf.store.publishing import claimed_folder, named_folder

_LOG = logging.getLogger(__name__)
_FILES = ("texts", "labels", "vocabulary")
_OTHERS = ("text_path", "label_path", "feat_path")
_OF_ENCODER = {"model_shortcut", "cache_dir", "init_model_dir", "pooling", "prompt", "prompt_name", "use_gpu"}
_OF_FINE_TUNING = sorted(
    {one.name for one in dataclasses.fields(MatcherParams)} - {*_OF_ENCODER, "negative_sampling", "threshold"}
    | {"code_path", "fix_clustering", "fp16", "max_match_clusters", "only_encoder", "save_emb_dir", "steps_scale"}
    | {"ensemble_method", "keep_work", "logdir", "text_only", "work_dir"}
)


def begins_with_names(arguments: GivenFlags) -> bool:
    """Return whether a command line has names of labels, and neither a table nor documents with labels."""
    names = arguments.labels or arguments.vocabulary
    return bool(names) and arguments.table is None and arguments.given.isdisjoint(_OTHERS)


def train_on_vocabulary(arguments: GivenFlags, communicator: Communicator, recipe: Recipe | None) -> None:
    """Train and save a model that finds labels by their names, and say how to go on; ``recipe``: with an encoder."""
    a = arguments
    refuse_job_flags(a)
    a.refuse(*(name for name in FILE_FLAGS if name not in _FILES), where="without labelled documents")
    a.at_most_one("labels", "vocabulary", why="without labelled documents, all concepts of a vocabulary are labels")
    if recipe is not None:
        a.refuse(*_OF_FINE_TUNING, where="without labelled documents: the encoder is not fine-tuned")
    options = linear_options(a, *_FILES) if recipe is None else None
    if communicator.size > 1:
        raise InputError("names alone are trained by one process", received=f"{communicator.size} processes",
            fix="run the command without mpiexec, horovodrun or xmc-tf launch; it takes seconds")  # fmt: skip
    if not a.model_folder:
        raise InputError("-m is missing", expected="a folder for the model", fix="add -m model")
    for name in _FILES:
        if path := getattr(a, name):
            existing_file(path, "label names" if name == "labels" else name)
    inputs = {a.spelled.get(name, name): getattr(a, name) for name in _FILES}
    if recipe is not None:
        inputs["--model-shortcut"] = recipe.first_level.model_shortcut
    refuse_model_folder("-m", a.model_folder, inputs)
    announce_compiling()
    folder = named_folder(a.model_folder)
    with claimed_folder(folder, MODEL, "give another folder with -m"), compiling_beside(1):
        found = (
            LabelLines(load_names(a.labels)) if a.labels else all_label_lines(a.vocabulary, first_language(a.language))
        )
        assert found.lines is not None
        texts: Texts = TextFile(a.texts) if a.texts else []
        model: Model
        if recipe is None:
            assert options is not None
            model = XRLinear.of(train_on_names(found.lines, texts, options, found.hierarchy))
        else:
            choose_device(communicator, recipe.first_level.use_gpu)
            model = XTransformer._train_on_names(found.lines, texts, recipe, TrainingRun(), found.hierarchy)
        model.save(folder)
    print(
        f"{folder} finds {model.nr_labels:,} labels by their names"
        + (f"; {len(texts):,} texts show which words are rare" if texts else "")
        + "\nIts scores rank labels. They are no probabilities: no labelled document has confirmed them."
        + ("" if texts else "\nTexts without labels improve it: --texts FILE, one text per line.")
        + f"\nTry it with xmc-tf predict -m {folder} -q TEXT. With some 200 labelled documents, train on them."
    )
