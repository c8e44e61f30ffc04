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
from xmc_tf.common.numbers import whole
from xmc_tf.common.process import cli
from xmc_tf.common.process.resuming import finished, nothing_to_resume, resume_hint, resumes_from
from xmc_tf.data import (
    Features,
    TextFile,
    as_features,
    check_training_input,
    load_features,
    load_matrix,
    load_names,
)
from xmc_tf.data.looking import ALONE, Looks
from xmc_tf.linear.distributed.inputs import check_same_inputs
from xmc_tf.linear.distributed.reporting import reported
from xmc_tf.linear.distributed.work_folder import remove_discarded, work_path
from xmc_tf.models.folder import MODEL
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.models.xr_linear_inputs import (
    LinearInputs,
    LinearSettings,
    in_order,
    make_tree,
    relevance,
    user_negatives,
    vectorized,
)
from xmc_tf.models.xr_linear_over_ranks import train_command_over_ranks
from xmc_tf.models.xr_linear_training import RankerData
from xmc_tf.params import (
    HierarchicalKMeansParams,
    LinearLevelParams,
    LinearLevelPredParams,
    PredictionOverrides,
    RankerParams,
    RankerPredParams,
    TfidfParams,
    XRLinearParams,
    add_arguments,
    add_verbosity,
    add_without_effect,
    from_arguments,
    linear_skeleton,
    load_blocks,
    warn_without_effect,
)
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.claiming import claimed_by_all
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.shared_scan import LooksOverRanks
from xmc_tf.ranks.solo import Solo
from xmc_tf.tree import label_embedding

_LOG = logging.getLogger(__name__)
_DESCRIPTION = """Train XR-Linear: linear rankers over a label tree.

From texts; TF-IDF features are computed and stored in the model:
    python -m xmc_tf.linear.train -t X.trn.txt -y Y.trn.npz -m model --labels labels.txt
From features: sparse, dense, or both concatenated:
    python -m xmc_tf.linear.train -x X.trn.npz -y Y.trn.npz -m model
    python -m xmc_tf.linear.train -x tfidf.npz embeddings.npy -y Y.trn.npz -m model
On many ranks, with the model's folder on a shared disk:
    mpiexec -n 8 python -m xmc_tf.linear.train -x X.trn.npz -y Y.trn.npz -m model

If training is interrupted, run the same command again: it resumes, on the same or a different number of ranks."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    out = cli.make_parser(
        "xmc_tf.linear.train",
        _DESCRIPTION,
        usage="%(prog)s [-t TEXTS | -x FEATURES] -y LABELS -m MODEL [options]",
    )
    out.add_argument("--generate-params-skeleton", action="store_true", help="print a parameter file with all defaults")
    out.add_argument("--params-path", metavar="JSON", help="parameter file; its values replace those of the flags")

    data = out.add_argument_group("data")
    data.add_argument(
        "-x",
        "--inst-path",
        nargs="+",
        metavar="FILE",
        help="features, .npz or .npy; two files, sparse then dense, are concatenated",
    )
    data.add_argument(
        "-t",
        dest="text_or_threshold",
        action="append",
        default=[],
        metavar="TEXT|NUMBER",
        help="texts, one per line, instead of -x; a number sets --threshold, as in PECOS",
    )
    data.add_argument("--text-path", metavar="FILE", help="texts; use it if the name of the file is a number")
    data.add_argument("-y", "--label-path", metavar="FILE", help="labels of the documents, .npz (documents × labels)")
    data.add_argument(
        "-m", "--model-folder", metavar="DIR", help="folder to write the model to; PECOS loads its subfolder ranker"
    )
    data.add_argument("--labels", metavar="FILE", help="label names, one per line, in the order of the columns")
    data.add_argument("-r", "--rel-path", metavar="FILE", help="relevance of the labels, for cost-sensitive training")
    data.add_argument("-um", "--usn-match-path", metavar="FILE", help="negatives for usn: documents × leaf clusters")
    data.add_argument("-uy", "--usn-label-path", metavar="FILE", help="negatives for usn: documents × labels")

    tree = out.add_argument_group("label tree")
    tree.add_argument(
        "-c",
        "--code-path",
        metavar="PATH",
        help="label tree to use: a folder, or one matrix of labels × clusters (default: built by clustering)",
    )
    tree.add_argument("-f", "--label-feat-path", metavar="FILE", help="label features for clustering, instead of PIFA")
    add_arguments(
        tree, HierarchicalKMeansParams, "nr_splits", "min_codes", "max_leaf_size", "spherical", "kmeans_max_iter"
    )
    add_arguments(tree, HierarchicalKMeansParams, "seed")

    rankers = out.add_argument_group("rankers")
    spellings = {
        "solver_type": ("-s", "--solver-type"),
        "max_nonzeros_per_label": ("-z", "--max-nonzeros-per-label"),
        "threads": ("-n", "--threads"),
    }
    add_arguments(
        rankers,
        LinearLevelParams,
        "solver_type",
        "Cp",
        "Cn",
        "bias",
        "threshold",
        "max_nonzeros_per_label",
        "eps",
        "max_iter",
        "threads",
        flags={**spellings, "Cp": ("--Cp",), "Cn": ("--Cn",)},
    )
    rankers.add_argument(
        "-ns",
        "--negative-sampling",
        dest="neg_mining_chain",
        default="tfn",
        metavar="SCHEME",
        help="negative sampling: tfn, man, usn, or a sum such as tfn+man",
    )
    add_arguments(rankers, RankerParams, "rel_mode", "rel_norm")

    prediction = out.add_argument_group("prediction defaults")
    prediction.add_argument(
        "-b",
        "--beam-size",
        type=whole,
        default=10,
        metavar="INT",
        help="number of nodes kept at each level above the labels; larger is slower and more exact",
    )
    prediction.add_argument(
        "-k", "--only-topk", type=whole, default=20, metavar="INT", help="number of labels per document"
    )
    add_arguments(
        prediction, LinearLevelPredParams, "post_processor", flags={"post_processor": ("-pp", "--post-processor")}
    )

    ranks = out.add_argument_group("many ranks (mpiexec -n N python -m xmc_tf.linear.train ...)")
    ranks.add_argument(
        "-nst",
        "--min-n-sub-tree",
        type=whole,
        default=16,
        metavar="INT",
        help="minimum number of sub-trees, above which -mle applies and within which -sle applies",
    )
    ranks.add_argument(
        "-mle",
        "--meta-label-embedding-method",
        default="pifa",
        choices=("pifa", "pii"),
        help="label embedding above the sub-trees",
    )
    ranks.add_argument(
        "-sle",
        "--sub-label-embedding-method",
        default="pifa",
        choices=("pifa", "pii"),
        help="label embedding within the sub-trees",
    )

    words = out.add_argument_group("TF-IDF (with -t)")
    add_arguments(words, TfidfParams, "ngram_max", "min_df", "max_features", "sublinear_tf")
    out.add_argument(
        "--logdir", metavar="DIR", help="folder for TensorBoard's log files: progress of each rank and estimated end"
    )
    add_verbosity(out)
    add_without_effect(out, "linear.train")
    return out


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
        # First of all: only files that are the same everywhere can be checked together.
        key = check_same_inputs(communicator, settings.files, settings.decisive)
        resumes_from(f"what is complete in {work_path(folder)}")
        train_command_over_ranks(communicator, folder, _read_inputs(settings, LooksOverRanks(communicator)), key)
    else:
        nothing_to_resume("linear training in one process keeps everything in memory (mpiexec -n 2 keeps files)")
        with reported(settings.arguments.logdir, communicator):
            _train_here(folder, _read_inputs(settings, ALONE))
    finished()


def _read_inputs(settings: LinearSettings, looks: Looks) -> LinearInputs:
    """Reads the files and checks them."""
    arguments = settings.arguments
    names = load_names(arguments.labels) if arguments.labels else None
    Y = load_matrix(arguments.label_path, name="labels", looks=looks)
    texts = TextFile(arguments.text_path) if arguments.text_path else None
    X: Any = None if arguments.inst_path is None else load_features(arguments.inst_path, looks=looks)
    files = {
        "Y": arguments.label_path,
        "X": arguments.inst_path,
        "texts": arguments.text_path,
        "names": arguments.labels,
    }
    files = {k: v for k, v in files.items() if v}
    check_training_input(Y=Y, X=X, texts=texts, names=names, files=files, loaded=True)
    return LinearInputs(**vars(settings), names=names, Y=Y, texts=texts, X=X)


def _train_here(folder: Path, inputs: LinearInputs) -> None:
    """Train in the memory of this process."""
    arguments, Y, X, tfidf = inputs.arguments, inputs.Y, inputs.X, None
    R, negatives = relevance(inputs), user_negatives(inputs)
    if X is None:
        tfidf, X = vectorized(inputs)
    features = X
    _LOG.info("%s documents, %s labels, %s features", *(f"{n:,}" for n in (*Y.shape, X.nr_features)))

    def embed(method: str) -> Features:
        return as_features(label_embedding(method, features, Y, threads=arguments.threads))

    tree = make_tree(Solo(), inputs, embed, inputs.params.tree.threads)
    params = dataclasses.replace(inputs.params, prediction=inputs.pred_params_for(tree))
    ordered = in_order(negatives, tree, arguments.usn_match_path)
    data = RankerData(X, Y, tree, inputs.names, R, ordered)
    model = XRLinear.trained(
        data, params, tfidf=tfidf, recorded=inputs.recorded, threads=arguments.threads, seed=arguments.seed
    )
    model.save(folder)
    _LOG.info("%s: %s weights in %s levels", folder, f"{model.ranker.nr_weights:,}", model.ranker.depth)


def _sort_out_t(arguments: argparse.Namespace) -> None:
    """Tells apart the two meanings of -t: PECOS's scripts give a threshold by it, ours a text."""
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
    """Refuses a model's folder that would replace an input."""
    inputs = {
        "-x": a.inst_path, "-t": a.text_path, "-y": a.label_path, "--labels": a.labels, "-r": a.rel_path,
        "-um": a.usn_match_path, "-uy": a.usn_label_path, "-c": a.code_path, "-f": a.label_feat_path,
        "--params-path": a.params_path,
    }  # fmt: skip
    refuse_model_folder("-m", a.model_folder, inputs, unchanged=("-c", "--labels"))
    refuse_work_folder("-m", work_path(Path(a.model_folder)), inputs)


def _parameters(arguments: argparse.Namespace) -> tuple[XRLinearParams, PredictionOverrides]:
    """Return the parameters, from the parameter file or else from the flags, and the overrides of the flags."""
    if arguments.beam_size < 1:
        raise InputError(
            "--beam-size is out of range", expected="a whole number of at least 1", received=str(arguments.beam_size)
        )
    classes: dict[str, Any] = {
        "train_params": RankerParams,
        "pred_params": RankerPredParams,
        "indexer_params": HierarchicalKMeansParams,
        "tfidf_params": TfidfParams,
    }
    from_file: dict[str, Any] = load_blocks(arguments.params_path, **classes) if arguments.params_path else {}
    blocks = {key: from_file.get(key) or from_arguments(cls, arguments) for key, cls in classes.items()}
    # The file sets for each level what the flags set for all.
    overrides = PredictionOverrides(arguments.beam_size, arguments.only_topk, arguments.post_processor)
    return XRLinearParams(*blocks.values()), PredictionOverrides() if from_file.get("pred_params") else overrides


if __name__ == "__main__":
    cli.run(main)
