"""``python -m xmc_tf.linear.train``: train XR-Linear on texts or features."""

import argparse
import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xmc_tf.common.compiled import announce_compiling
from xmc_tf.common.errors import InputError
from xmc_tf.common.files.outputs import refuse_model_folder, refuse_work_folder
from xmc_tf.common.folders.model_parts import MODEL
from xmc_tf.common.process import cli
from xmc_tf.common.process.resuming import finished, nothing_to_resume, resume_hint, resumes_from
from xmc_tf.data import (
    Features,
    TextFile,
    as_features,
    check_training_input,
    load_features,
    load_matrix,
)
from xmc_tf.data.scanning import ALONE, Scan
from xmc_tf.data.vocabularies import load_label_lines
from xmc_tf.linear.distributed.inputs import check_same_inputs
from xmc_tf.linear.distributed.reporting import reported
from xmc_tf.linear.distributed.work_folder import remove_discarded, work_path
from xmc_tf.linear.ensemble import trees_of
from xmc_tf.linear.train_flags import parser
from xmc_tf.models.growing.training_data import TrainingData
from xmc_tf.models.linear.inputs import (
    LinearInputs,
    LinearSettings,
    in_order,
    make_trees,
    relevance,
    user_negatives,
    vectorized,
)
from xmc_tf.models.linear.over_ranks import train_command_over_ranks
from xmc_tf.models.linear.training import RankerData, learn_evidence, preferred_names, summary_of, uses_label_names
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import (
    SEARCH,
    HierarchicalKMeansParams,
    PredictionOptions,
    RankerParams,
    RankerPredParams,
    TfidfParams,
    XRLinearParams,
    from_arguments,
    linear_skeleton,
    load_blocks,
    options_of_flags,
    params_of_effort,
    several_trees,
    warn_without_effect,
)
from xmc_tf.params.tfidf import first_language
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.claiming import claimed_by_all
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.shared_scan import SharedScan
from xmc_tf.ranks.solo import Solo
from xmc_tf.tree.label_embeddings import label_embedding

_LOG = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> None:
    """Train and save a model."""
    arguments = parser().parse_args(argv)
    if arguments.generate_params_skeleton:
        print(linear_skeleton())
        return
    communicator = choose_communicator()
    if communicator.rank == 0:
        cli.set_verbosity(arguments.verbose_level)
        warn_without_effect(arguments, "linear.train")
        cli.on_interrupt(resume_hint)
    else:  # what rank 0 says, warnings too, is said for all
        logging.getLogger().setLevel(logging.ERROR)
        logging.getLogger("xmc_tf").setLevel(logging.ERROR)
    announce_compiling()
    _sort_out_t(arguments)
    _require(arguments)
    _refuse_outputs(arguments)
    settings = LinearSettings(arguments, *_parameters(arguments))
    folder = Path(arguments.model_folder)
    with claimed_by_all(communicator, folder, MODEL, work_path(folder), fix="give another folder with -m"):
        _train(communicator, folder, settings)


def _train(communicator: Communicator, folder: Path, settings: LinearSettings) -> None:
    if communicator.rank == 0:
        remove_discarded(folder)
    if communicator.size > 1 or work_path(folder).exists():
        if settings.arguments.keep_training_data:
            raise InputError(
                "--keep-training-data: only a training in one process keeps its data",
                received=f"{communicator.size} ranks"
                if communicator.size > 1
                else f"an earlier run in {work_path(folder)}",
                fix="train with one process, or leave it out",
            )
        # First of all: only files that are the same everywhere can be checked together.
        key = check_same_inputs(communicator, settings.files, settings.decisive)
        resumes_from(f"what is complete in {work_path(folder)}")
        train_command_over_ranks(communicator, folder, _read_inputs(settings, SharedScan(communicator)), key)
    else:
        nothing_to_resume("linear training in one process keeps everything in memory (mpiexec -n 2 keeps files)")
        with reported(settings.arguments.logdir, communicator):
            _train_here(folder, _read_inputs(settings, ALONE))
    finished()


def _read_inputs(settings: LinearSettings, scan: Scan) -> LinearInputs:
    """Read and check the files."""
    arguments = settings.arguments
    lines = load_label_lines(arguments.labels, arguments.vocabulary, first_language(arguments.language))
    names = None if lines is None else preferred_names(lines)
    Y = load_matrix(arguments.label_path, name="labels", scan=scan)
    texts = TextFile(arguments.text_path) if arguments.text_path else None
    X: Any = None if arguments.inst_path is None else load_features(arguments.inst_path, scan=scan)
    files = {
        "Y": arguments.label_path,
        "X": arguments.inst_path,
        "texts": arguments.text_path,
        "names": arguments.labels,
    }
    files = {k: v for k, v in files.items() if v}
    check_training_input(Y=Y, X=X, texts=texts, names=names, files=files, loaded=True)
    uses_label_names(arguments.label_names, lines, texts is not None, settings.params.ranker)
    inputs = LinearInputs(**vars(settings), names=names, Y=Y, texts=texts, X=X, lines=lines)
    return dataclasses.replace(inputs, params=params_of_effort(inputs.params, arguments.effort, *Y.shape))


def _train_here(folder: Path, inputs: LinearInputs) -> None:
    """Train in the memory of this process."""
    arguments, Y, X, tfidf = inputs.arguments, inputs.Y, inputs.X, None
    R, negatives = relevance(inputs), user_negatives(inputs)
    if X is None:
        tfidf, X = vectorized(inputs)
        inputs = inputs.with_tfidf(tfidf.params)
    features = X
    _LOG.info("%s documents, %s labels, %s features", *(f"{n:,}" for n in (*Y.shape, X.nr_features)))

    def embed(method: str) -> Features:
        return as_features(label_embedding(method, features, Y, threads=arguments.threads))

    trees = make_trees(Solo(), inputs, embed, inputs.params.trees[0].threads)
    ordered = in_order(negatives, trees, arguments.usn_match_path)
    data = RankerData(X, Y, trees, inputs.names, R, ordered)
    kept = TrainingData.of(X, Y, inputs.params.ranker) if arguments.keep_training_data else None
    model = XRLinear.trained(
        data, inputs.params, tfidf=tfidf, recorded=inputs.recorded, overrides=inputs.overrides,
        threads=arguments.threads, seed=arguments.seed,
    )  # fmt: skip
    if arguments.label_names:
        assert inputs.lines is not None
        assert inputs.texts is not None
        model.evidence = learn_evidence(
            inputs.lines,
            inputs.texts,
            data,
            inputs.params,
            inputs.overrides,
            threads=arguments.threads,
            seed=arguments.seed,
        )
    model.own_training = kept
    model.save(folder)
    _LOG.info("%s: %s", folder, summary_of(trees_of(model.ranker)))


def _sort_out_t(arguments: argparse.Namespace) -> None:
    """Distinguish the two meanings of -t: a threshold in PECOS's scripts, texts in ours."""
    for value in arguments.text_or_threshold:
        try:
            arguments.threshold = float(value)
        except ValueError:
            arguments.text_path = value


def _require(arguments: argparse.Namespace) -> None:
    missing = [flag for flag, value in (("-y", arguments.label_path), ("-m", arguments.model_folder)) if not value]
    if bool(arguments.text_path) == bool(arguments.inst_path):
        missing.append("one of -t (texts) and -x (features)")
    if missing:
        raise InputError(
            f"the command line lacks {', '.join(missing)}"
            if not (arguments.text_path and arguments.inst_path)
            else "both -t and -x are given",
            expected="labels (-y), a folder for the model (-m), and texts (-t) or features (-x)",
            fix="python -m xmc_tf.linear.train --help shows complete commands",
        )


def _refuse_outputs(a: argparse.Namespace) -> None:
    """Refuse a model folder that would replace an input."""
    inputs = {
        "-x": a.inst_path, "-t": a.text_path, "-y": a.label_path, "--labels": a.labels,
        "--vocabulary": a.vocabulary, "-r": a.rel_path,
        "-um": a.usn_match_path, "-uy": a.usn_label_path, "-c": a.code_path, "-f": a.label_feat_path,
        "--params-path": a.params_path,
    }  # fmt: skip
    refuse_model_folder("-m", a.model_folder, inputs, unchanged=("-c", "--labels", "--vocabulary"))
    refuse_work_folder("-m", work_path(Path(a.model_folder)), inputs)


def _parameters(arguments: argparse.Namespace) -> tuple[XRLinearParams, PredictionOptions]:
    """Return the parameters, from the parameter file or else from the flags, and the overrides of the flags."""
    classes: dict[str, Any] = {
        "train_params": RankerParams,
        "pred_params": RankerPredParams,
        "indexer_params": HierarchicalKMeansParams,
        "tfidf_params": TfidfParams,
    }
    from_file: dict[str, Any] = load_blocks(arguments.params_path, **classes) if arguments.params_path else {}
    blocks = {key: from_file.get(key) or from_arguments(cls, arguments) for key, cls in classes.items()}
    # The file sets for each level what the flags set for all.
    overrides = options_of_flags(arguments, *SEARCH)
    if not from_file.get("indexer_params"):
        blocks["indexer_params"] = several_trees(blocks["indexer_params"], arguments.trees)
    return XRLinearParams(*blocks.values()), PredictionOptions() if from_file.get("pred_params") else overrides


if __name__ == "__main__":
    cli.run(main)
