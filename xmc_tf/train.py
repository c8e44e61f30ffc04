"""``python -m xmc_tf.train``: train a model from a table, or from texts and labels, in one process or many."""

import argparse
import dataclasses
import logging
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.compiled import announce_compiling
from xmc_tf.common.errors import InputError
from xmc_tf.common.memory import peak_memory
from xmc_tf.common.process import cli
from xmc_tf.common.process.extras import require
from xmc_tf.common.process.invocation import as_called
from xmc_tf.common.process.resuming import finished, resume_hint
from xmc_tf.common.regular import existing_file
from xmc_tf.data import TextFile, load_features, load_matrix
from xmc_tf.data.vocabularies import load_label_lines
from xmc_tf.jobs.linear import train_on_table
from xmc_tf.jobs.table_job import data_set_of
from xmc_tf.jobs.train_flags import (
    FILE_FLAGS,
    has_encoder,
    linear_options,
    parser,
    read_language_column,
    refuse_job_flags,
    refuse_search_flags,
    table_job,
)
from xmc_tf.jobs.vocabulary import begins_with_names, train_on_vocabulary
from xmc_tf.label_names import label_vocabulary
from xmc_tf.metrics import format_table, precision_and_recall
from xmc_tf.models.linear.first_use import compiling_beside
from xmc_tf.models.results import predict_over_ranks, rows_of
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.params import (
    SEARCH,
    WITHOUT_EFFECT,
    MatcherParams,
    TfidfParams,
    XTransformerParams,
    XTransformerPredParams,
    from_arguments,
    load_block,
    load_blocks,
    options_of_flags,
    several_trees,
    skeleton_of,
    warn_without_effect,
    xtransformer_skeleton,
)
from xmc_tf.params.tfidf import first_language
from xmc_tf.pipeline.devices import choose_device
from xmc_tf.pipeline.embeddings import copy_of_length_one
from xmc_tf.pipeline.inputs import Documents, Recipe, TrainingInputs
from xmc_tf.pipeline.stages import Stages
from xmc_tf.pipeline.waiting import on_first_rank
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.claiming import claimed_by_all
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.report.writing import refuse_report
from xmc_tf.store.models import MODEL
from xmc_tf.store.outputs import (
    EMBEDDINGS,
    check_output_folder,
    check_output_path,
    refuse_model_folder,
    refuse_work_folder,
)
from xmc_tf.store.publishing import named_folder
from xmc_tf.tables.summary import summary_of
from xmc_tf.tree import load_chain

_LOG = logging.getLogger(__name__)
_EMBEDDINGS = "X.trn.npy"


def main(argv: Sequence[str] | None = None) -> None:
    """Train a model, and save it."""
    arguments = parser().parse_args(argv)
    skeletons: dict[str, Callable[[], str]] = {
        "params": xtransformer_skeleton,
        "train_params": lambda: skeleton_of(XTransformerParams()),
        "pred_params": lambda: skeleton_of(XTransformerPredParams()),
    }
    for name, skeleton in skeletons.items():
        if getattr(arguments, f"generate_{name}_skeleton"):
            print(skeleton())
            return
    if not arguments.tst_text_path:
        arguments.refuse(
            "layout", needs="held-out documents, whose precision and recall it shows", expected="-tt and -yt"
        )
    if arguments.table is not None:
        _train_on_table(arguments, sys.argv[1:] if argv is None else argv)
        return
    if begins_with_names(arguments):
        communicator = _begin(arguments)
        train_on_vocabulary(arguments, communicator, _recipe(arguments) if has_encoder(arguments) else None)
        finished()
        return
    refuse_job_flags(arguments)
    arguments.refuse("texts", where="with labelled documents (-t, -y)", expected="a table, or only names of labels")
    _require(arguments)
    communicator = _begin(arguments)
    announce_compiling()
    recipe = run_on_all_ranks(communicator, lambda: _recipe(arguments))
    if not has_encoder(arguments):
        alone = as_called("python -m xmc_tf.linear.train")
        _LOG.info("fine-tuning the encoder %s (%s trains rankers alone)", recipe.first_level.model_shortcut, alone)
    run_on_all_ranks(communicator, lambda: _refuse_outputs(arguments, recipe))
    folder = named_folder(arguments.model_folder)
    work = Path(arguments.work_dir or f"{folder}.work")
    claim = claimed_by_all(communicator, folder, MODEL, work, fix="give another folder with -m")
    with claim, compiling_beside(communicator.size):
        run_on_all_ranks(communicator, lambda: _check_files(arguments))
        on_first_rank(communicator, lambda: _check_encoder(recipe, work))
        _train(communicator, arguments, recipe, folder, work)


def _begin(arguments: argparse.Namespace) -> Communicator:
    communicator = choose_communicator()
    # Rank 0 logs for all ranks.
    cli.set_verbosity(arguments.verbose_level if communicator.rank == 0 else 0)
    if communicator.rank == 0:
        warn_without_effect(arguments, "train")
        cli.on_interrupt(resume_hint)
    return communicator


def _train_on_table(arguments: cli.GivenFlags, argv: Sequence[str]) -> None:
    """Prepare a table, choose settings, train and evaluate a model, and print a summary."""
    communicator = _begin(arguments)
    job = table_job(arguments, f"{as_called('python -m xmc_tf.train')} {shlex.join(argv)}")
    run_on_all_ranks(communicator, lambda: read_language_column(arguments))
    recipe = _recipe(arguments) if has_encoder(arguments) else None
    if recipe is not None:
        refuse_search_flags(arguments)
    options = linear_options(arguments, "texts") if recipe is None else None
    if arguments.preponly:
        print(on_first_rank(communicator, lambda: summary_of(data_set_of(job)).text()))
        return
    announce_compiling()
    inputs = {"TABLE": job.table, "--data-set": job.database}
    check_output_path("--data-set", job.database, {"TABLE": job.table}, None)
    refuse_model_folder("-m", job.model, inputs)
    if not job.report:
        arguments.refuse("force", where="without --report")
    else:
        refuse_report("--report", job.report, {**inputs, "-m": job.model}, force=arguments.force)
    work = Path(arguments.work_dir or f"{job.model}.work")
    claim = claimed_by_all(communicator, job.model, MODEL, work, fix="give another folder with -m")
    with claim, compiling_beside(communicator.size):
        if recipe is None:
            assert options is not None
            summary = train_on_table(job, options, communicator)
        else:
            on_first_rank(communicator, lambda: _check_encoder(recipe, work))
            from xmc_tf.jobs.encoder import train_encoder  # it loads TensorFlow, which linear models do not need

            summary = train_encoder(job, recipe, Stages(work, communicator), keep=arguments.keep_work)
    finished()
    if summary is not None:
        print(summary)


def _train(communicator: Communicator, arguments: argparse.Namespace, recipe: Recipe, folder: Path, work: Path) -> None:
    inputs = run_on_all_ranks(communicator, lambda: _training_inputs(arguments))
    device = choose_device(communicator, recipe.first_level.use_gpu)
    _LOG.info("%s documents, %s labels, on %s", *(f"{n:,}" for n in inputs.documents.Y.shape), device)
    stages = Stages(work, communicator)
    model = XTransformer._train_in_stages(inputs, recipe, stages)

    def save() -> None:
        model.save(folder)
        for stage in stages.done if arguments.save_emb_dir else ():
            if stage.name == "embeddings":
                vectors = np.load(stage.folder / "E.npy", mmap_mode="r")
                copy_of_length_one(vectors, Path(arguments.save_emb_dir) / _EMBEDDINGS)

    on_first_rank(communicator, save)
    finished()
    if (held_out := inputs.validation) is not None:
        saved, texts, X = XTransformer.load(folder), held_out.texts, held_out.X
        predicted = predict_over_ranks(
            lambda rows: saved.predict(rows_of(texts, rows), rows_of(X, rows)), len(texts), communicator
        )
        if predicted is not None:
            print(precision_and_recall(predicted, held_out.Y.tocsr(), arguments.layout))
    if communicator.rank == 0:
        table = format_table(["stage", "seconds", "result"], stages.summary(), left=3)
        _LOG.info("the model is in %s; %s\n%s", folder, peak_memory(), table)
    if not arguments.keep_work:
        stages.remove()


def _require(arguments: cli.GivenFlags) -> None:
    needed = {"-t": arguments.text_path, "-y": arguments.label_path, "-m": arguments.model_folder}
    if missing := [flag for flag, value in needed.items() if not value]:
        raise InputError(
            f"the command line lacks {', '.join(missing)}",
            expected="a table and a folder for the model (data.csv -m model), or texts (-t), labels (-y) and -m",
            fix="python -m xmc_tf.train --help shows complete commands",
        )
    if bool(arguments.tst_text_path) != bool(arguments.tst_label_path):
        raise InputError(
            "held-out documents need their texts and their labels", expected="-tt and -yt",
            received="-tt alone" if arguments.tst_text_path else "-yt alone",
        )  # fmt: skip
    arguments.at_most_one("text_only", "feat_path")


def _check_files(arguments: argparse.Namespace) -> None:
    """Raise an error if an input file is missing, before slow work such as downloading the encoder."""
    for names, what in {
        ("text_path", "tst_text_path"): "texts", ("label_path", "tst_label_path"): "labels",
        ("feat_path", "tst_feat_path"): "features", ("labels",): "label names", ("vocabulary",): "vocabulary",
        ("label_feat_path",): "label features",
    }.items():  # fmt: skip
        for paths in filter(None, (getattr(arguments, name) for name in names)):
            for path in paths if isinstance(paths, list) else [paths]:
                existing_file(path, what)


def _refuse_outputs(a: cli.GivenFlags, recipe: Recipe) -> None:
    """Raise an error if an output folder would replace an input or a part of another model."""
    files = (*FILE_FLAGS, "code_path", "params_path", "train_params_path", "pred_params_path")
    inputs = {a.spelled[name]: getattr(a, name) for name in files}
    inputs["--model-shortcut"] = recipe.first_level.model_shortcut
    refuse_model_folder("-m", a.model_folder, inputs, unchanged=("--labels", "--vocabulary"))
    work = a.work_dir or f"{named_folder(a.model_folder)}.work"
    refuse_work_folder("--work-dir" if a.work_dir else "-m", work, inputs)
    if not a.save_emb_dir:
        a.refuse("force", where="without --save-emb-dir")
    else:
        check_output_folder("--save-emb-dir", a.save_emb_dir, inputs)
        check_output_path("--save-emb-dir", Path(a.save_emb_dir) / _EMBEDDINGS, inputs, [EMBEDDINGS], force=a.force)


def _recipe(arguments: cli.GivenFlags) -> Recipe:
    """Return the training options. A parameter file replaces the defaults of flags, but no flag that is given."""
    # Flags without effect take any text, which must not become the parameter of that name.
    left_out = {flag.strip("-").replace("-", "_") for flag in WITHOUT_EFFECT["train"]}
    flags = {name: value for name, value in vars(arguments).items() if name not in left_out}
    given = arguments.given & flags.keys()
    if arguments.fp16 is not None:
        flags["mixed_precision"] = _precision(arguments)
        given.add("mixed_precision")
    flags["neg_mining_chain"] = arguments.negative_sampling  # as in PECOS
    if arguments.negative_sampling == "all":
        # Rankers cannot use all negatives. After a head that does, easy ones are best; without it, add hard ones.
        flags["neg_mining_chain"] = "tfn" if arguments.do_fine_tune else "tfn+man"
    elif "negative_sampling" in given:
        given.add("neg_mining_chain")
    if "num_train_epochs" in given:
        given.add("max_steps")  # steps of the file would win over these epochs
    held = _blocks_of_files(arguments, {name: flags[name] for name in given})

    # These depend on the levels of the tree, so they override the parameters once there is a tree.
    prediction = options_of_flags(arguments, *SEARCH, "ensemble_method")
    of_blocks = argparse.Namespace(**{k: v for k, v in flags.items() if k not in (*SEARCH, "ensemble_method")})
    params = held.get("train_params") or from_arguments(XTransformerParams, of_blocks)
    if not held.get("train_params") or "trees" in given:
        params = _with_trees(params, arguments.trees)
    own_features = not arguments.feat_path and not arguments.text_only
    return Recipe(
        params=params,
        pred_params=held.get("pred_params") or from_arguments(XTransformerPredParams, of_blocks),
        tfidf=(held.get("tfidf_params") or from_arguments(TfidfParams, of_blocks)) if own_features else None,
        steps_scale=tuple(arguments.steps_scale or ()), seed=arguments.seed, threads=arguments.threads,
        logdir=arguments.logdir, effort=arguments.effort, prediction=prediction,
    )  # fmt: skip


def _blocks_of_files(a: argparse.Namespace, given: dict[str, Any]) -> dict[str, Any]:
    """Return the blocks of the parameter files, with the values of the flags that are ``given``."""
    held: dict[str, Any] = {}
    if a.params_path:
        held = load_blocks(
            a.params_path, given, train_params=XTransformerParams, pred_params=XTransformerPredParams,
            tfidf_params=TfidfParams,
        )  # fmt: skip
    if a.train_params_path:
        held["train_params"] = load_block(a.train_params_path, XTransformerParams, given)
    if a.pred_params_path:
        held["pred_params"] = load_block(a.pred_params_path, XTransformerPredParams, given)
    return held


def _with_trees(params: XTransformerParams, count: int) -> XTransformerParams:
    """Return the parameters with ``count`` label trees for the rankers, which differ only in their seeds."""
    if count > 1 and params.only_encoder:
        raise InputError(
            "--trees and --only-encoder are mutually exclusive: only rankers use trees", fix="leave one of them out"
        )
    return dataclasses.replace(params, refined_indexer_params=several_trees(params.refined_indexer_params, count))


def _precision(arguments: argparse.Namespace) -> str:
    """Return the --mixed-precision that --fp16 (a flag of PECOS's distributed training) stands for: fp16 or off."""
    meant = "fp16" if arguments.fp16 else "off"
    if arguments.mixed_precision not in (MatcherParams().mixed_precision, meant):
        raise InputError(
            "--fp16 and --mixed-precision are mutually exclusive",
            expected=f"--mixed-precision {meant}, which is what --fp16 {str(arguments.fp16).lower()} means",
            received=f"--mixed-precision {arguments.mixed_precision}", fix="leave one of them out",
        )  # fmt: skip
    return meant


def _check_encoder(recipe: Recipe, work: Path) -> None:
    """Raise an error if the encoder cannot be loaded, before any data are read."""
    require("tensorflow")  # which brings what downloads and reads encoders
    if (work / "encoder" / "stage.json").exists():
        return  # an earlier run of this command has copied it
    from xmc_tf.encoder.sentence_transformers import check_folder
    from xmc_tf.encoder.sources import check_available

    first = recipe.first_level
    name = first.init_model_dir or first.model_shortcut
    check_available(name, first.cache_dir)
    check_folder(name, first.pooling, first.prompt, first.prompt_name)


def _training_inputs(arguments: argparse.Namespace) -> TrainingInputs:
    """Read the training data on each rank. Large files are memory-mapped, so that ranks share their pages."""
    a = arguments
    documents = _documents(a.text_path, a.label_path, a.feat_path)
    held_out = _documents(a.tst_text_path, a.tst_label_path, a.tst_feat_path) if a.tst_text_path else None
    tree = label_features = None
    if a.code_path:
        tree = load_chain(a.code_path, nr_splits=a.nr_splits, min_codes=a.min_codes)
    elif a.label_feat_path:
        label_features = load_matrix(a.label_feat_path, name="label features")
    lines, hierarchy = load_label_lines(a.labels, a.vocabulary, first_language(a.language))
    names = None if lines is None else label_vocabulary(lines).preferred
    return TrainingInputs(documents, tree, label_features, names, held_out, lines, hierarchy)


def _documents(texts: str, labels: str, features: list[str] | None) -> Documents:
    files = {"texts": texts, "Y": labels, "X": " and ".join(features or [])}
    X = load_features(features) if features else None
    return Documents(TextFile(texts), load_matrix(labels, name="labels"), X, files)


if __name__ == "__main__":
    cli.run(main)
