"""``python -m xmc_tf.linear.train``: train XR-Linear on texts or features."""

import argparse
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scipy.sparse import csc_matrix, spmatrix

from xmc_tf.common.compiled import announce_compiling
from xmc_tf.common.errors import InputError
from xmc_tf.common.memory import peak_memory
from xmc_tf.common.numbers import whole
from xmc_tf.common.process import cli
from xmc_tf.common.process.resuming import finished, nothing_to_resume, resume_hint, resumes_from
from xmc_tf.common.threads import thread_count
from xmc_tf.data import TextFile, as_features, check_pair, check_training_input, load_features, load_matrix
from xmc_tf.data.array_checks import ALONE, Scan
from xmc_tf.data.vocabularies import load_label_lines
from xmc_tf.label_names import label_vocabulary
from xmc_tf.models.linear.executors import InMemory, OnDisk, OverRanks
from xmc_tf.models.linear.first_use import compiling_beside
from xmc_tf.models.linear.parts import LinearParts
from xmc_tf.models.linear.training import LinearData, LinearOptions, train_linear
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import (
    SEARCH,
    HierarchicalKMeansParams,
    LinearChainParams,
    LinearLevelParams,
    LinearLevelPredParams,
    PredictionOptions,
    RankerParams,
    RankerPredParams,
    TfidfParams,
    XRLinearParams,
    add_flags,
    add_trees,
    add_without_effect,
    from_arguments,
    linear_skeleton,
    load_blocks,
    options_of_flags,
    params_of_effort,
    several_trees,
    warn_without_effect,
)
from xmc_tf.params.flags import FLAGS
from xmc_tf.params.tfidf import TFIDF_FLAGS, first_language
from xmc_tf.plan.estimate import warn_of_needs
from xmc_tf.plan.formulas import DataSizes, FineTuningOptions
from xmc_tf.rankers.distributed.inputs import check_same_inputs
from xmc_tf.rankers.distributed.work_folder import remove_discarded, work_path
from xmc_tf.rankers.ensemble import trees_of
from xmc_tf.rankers.problems import check_relevance, sorted_csc
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.claiming import claimed_by_all
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import SharedScan, run_on_all_ranks
from xmc_tf.store.models import MODEL
from xmc_tf.store.outputs import refuse_model_folder, refuse_work_folder
from xmc_tf.store.publishing import named_folder
from xmc_tf.tree import load_chain

_LOG = logging.getLogger(__name__)
_FILES = {  # purpose → flag, name of the argument
    "labels": ("-y", "label_path"), "features": ("-x", "feat_path"), "texts": ("-t", "text_path"),
    "label names": ("--labels", "labels"), "vocabulary": ("--vocabulary", "vocabulary"),
    "relevance": ("-r", "rel_path"), "negatives of clusters": ("-um", "usn_match_path"),
    "negatives": ("-uy", "usn_label_path"), "tree": ("-c", "code_path"), "label features": ("-f", "label_feat_path"),
}  # fmt: skip
_STREAMED = {"auto": None, "pecos": False, "search": True}
_DESCRIPTION = """Train XR-Linear: linear rankers over a label tree.

From texts; TF-IDF features are computed and stored in the model:
    python -m xmc_tf.linear.train -t X.trn.txt -y Y.trn.npz -m model --labels labels.txt
From features: sparse, dense, or both concatenated:
    python -m xmc_tf.linear.train -x X.trn.npz -y Y.trn.npz -m model
    python -m xmc_tf.linear.train -x tfidf.npz embeddings.npy -y Y.trn.npz -m model
On many ranks, with the model's folder on a shared disk:
    mpiexec -n 8 python -m xmc_tf.linear.train -x X.trn.npz -y Y.trn.npz -m model

If training is interrupted, run the same command again: it resumes, on the same or a different number of ranks."""
_KMEANS = ("nr_splits", "min_codes", "max_leaf_size", "spherical", "kmeans_max_iter", "seed")
_SOLVER = (
    "solver_type", "Cp", "Cn", "bias", "threshold", "max_nonzeros_per_label", "eps", "max_iter", "threads",
)  # fmt: skip


def parser() -> cli.Parser:
    out = cli.make_parser(
        "xmc_tf.linear.train", _DESCRIPTION, usage="%(prog)s [-t TEXTS | -x FEATURES] -y LABELS -m MODEL [options]"
    )
    add_flags(out, "generate_params_skeleton", "params_path")
    _add_data_flags(out.add_argument_group("data"))
    group = out.add_argument_group("label tree")
    add_flags(group, "code_path", "label_feat_path")
    add_flags(group, *_KMEANS, of=HierarchicalKMeansParams)
    add_trees(group)
    group = out.add_argument_group("rankers")
    add_flags(group, *_SOLVER, of=LinearLevelParams)
    add_flags(group, "neg_mining_chain", of=LinearChainParams)
    add_flags(group, "rel_mode", "rel_norm", of=RankerParams)
    add_flags(
        out.add_argument_group("prediction defaults"), of=PredictionOptions, beam_size={"default": 10},
        only_topk={"default": 20}, post_processor={"default": LinearLevelPredParams().post_processor},
    )  # fmt: skip
    ranks = out.add_argument_group("many ranks (mpiexec -n N python -m xmc_tf.linear.train ...)")
    ranks.add_argument(
        "-nst", "--min-n-sub-tree", type=whole, default=16, metavar="INT",
        help="minimum number of sub-trees; -mle applies to the levels above them, and -sle to the levels within",
    )  # fmt: skip
    for short, part, where in (("-mle", "meta", "above"), ("-sle", "sub", "within")):
        ranks.add_argument(
            short, f"--{part}-label-embedding-method", default="pifa", choices=("pifa", "pii"),
            help=f"cluster labels {where} the sub-trees by their documents' features (pifa) or by the documents (pii)",
        )  # fmt: skip
    add_flags(out.add_argument_group("TF-IDF (with -t)"), *TFIDF_FLAGS, of=TfidfParams)
    add_flags(out, "verbose_level")
    add_without_effect(out, "linear.train")
    return out


def _add_data_flags(data: argparse._ArgumentGroup) -> None:
    add = data.add_argument
    add_flags(data, feat_path={"also": ["--inst-path"]})
    add(
        "-t", dest="text_or_threshold", action="append", default=[], metavar="TEXT|NUMBER",
        help="texts, one per line, instead of -x; a number sets --threshold, as in PECOS",
    )  # fmt: skip
    add("--text-path", metavar="FILE", help="same as -t TEXT; for files whose name is a number")
    said = "folder to write the model to; PECOS loads its subfolder ranker"
    add_flags(data, "label_path", model_folder={"help": said})
    # As in PECOS, scores are those of the rankers unless --effort is given.
    learned = {name: f"with --effort, {FLAGS[name]['default_text']}" for name in ("probabilities", "label_names")}
    changes = {name: {"default_text": text} for name, text in learned.items()}
    add_flags(data, "labels", "vocabulary", *learned, "keep_training_data", of=None, **changes)
    add(
        "--layout", choices=("auto", "pecos", "search"), default="auto",
        help="layout of the weights on disk: pecos, which PECOS can read; or search, which is written during training, "
        "so that the weights need no memory (auto: search for large data in one process; models of more than about a "
        "million weights are saved in the layout of search, too)",
    )  # fmt: skip
    add("-r", "--rel-path", metavar="FILE", help="relevance of the labels, for cost-sensitive training")
    add("-um", "--usn-match-path", metavar="FILE", help="negatives for usn: documents × leaf clusters")
    add("-uy", "--usn-label-path", metavar="FILE", help="negatives for usn: documents × labels")


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
    else:  # rank 0 logs for all ranks
        logging.getLogger().setLevel(logging.ERROR)
        logging.getLogger("xmc_tf").setLevel(logging.ERROR)
    announce_compiling()
    for value in arguments.text_or_threshold:  # a threshold in PECOS's scripts, texts in ours
        try:
            arguments.threshold = float(value)
        except ValueError:
            arguments.text_path = value
    _require(arguments)
    folder = named_folder(arguments.model_folder)
    inputs = {flag: getattr(arguments, name) for flag, name in _FILES.values()}
    inputs["--params-path"] = arguments.params_path
    refuse_model_folder("-m", arguments.model_folder, inputs, unchanged=("-c", "--labels", "--vocabulary"))
    refuse_work_folder("-m", work_path(folder), inputs)
    options = _options(arguments)
    claim = claimed_by_all(communicator, folder, MODEL, work_path(folder), fix="give another folder with -m")
    with claim, compiling_beside(communicator.size):
        _train(communicator, folder, arguments, options)


def _train(communicator: Communicator, folder: Path, arguments: argparse.Namespace, options: LinearOptions) -> None:
    """Train in this process or on all ranks, or resume an earlier run that has left its work folder."""
    if communicator.rank == 0:
        remove_discarded(folder)
    if communicator.size > 1 or work_path(folder).exists():
        if options.keep_training_data:
            raise InputError(
                "--keep-training-data requires training in one process, from the start",
                received=f"{communicator.size} ranks"
                if communicator.size > 1
                else f"an earlier run in {work_path(folder)}", fix="leave it out, or use one process and a new folder",
            )  # fmt: skip
        # First, because only files that are the same on all ranks can be checked together.
        given = {what: getattr(arguments, name) for what, (_, name) in _FILES.items()}
        files = {what: paths if isinstance(paths, list) else [paths] for what, paths in given.items() if paths}
        key = check_same_inputs(communicator, files, options.decisive(bool(arguments.text_path)))
        resumes_from(f"what is complete in {work_path(folder)}")
        data = _data(arguments, options, communicator, SharedScan(communicator))
        ranks = OverRanks(communicator, folder, key, options.threads)
        parts = _trained(data, options, ranks, arguments.layout)
        summary = _size_of(parts)
        ranks.save(parts)
    else:
        nothing_to_resume("linear training in one process keeps everything in memory (mpiexec -n 2 keeps files)")
        executor = OnDisk(folder, options.threads, arguments.layout)
        try:
            data = _data(arguments, options, communicator, ALONE)
            _warn_of_needs(data, options, arguments.layout, folder)
            parts = _trained(data, options, executor, arguments.layout)
            summary = _size_of(parts)
            XRLinear.of(parts).save(folder)
        finally:
            executor.remove()
    _LOG.info("%s: %s; %s", folder, summary, peak_memory())
    finished()


def _trained(data: LinearData, options: LinearOptions, executor: InMemory | OverRanks, layout: str) -> LinearParts:
    parts = train_linear(data, options, executor)
    for model in trees_of(parts.ranker):
        model.pecos = layout == "pecos"
    return parts


def _size_of(parts: LinearParts) -> str:
    """Describe the size of a model. Call this before the model is saved, because saving moves the weights."""
    trees = f"{len(parts.more_trees) + 1} trees" if parts.more_trees else f"{parts.ranker.depth} levels"
    return f"{parts.ranker.nr_weights:,} weights in {trees}"


def _data(arguments: argparse.Namespace, options: LinearOptions, communicator: Communicator, scan: Scan) -> LinearData:
    a = arguments
    lines, hierarchy = load_label_lines(a.labels, a.vocabulary, first_language(a.language))
    names = None if lines is None else label_vocabulary(lines).preferred
    Y = load_matrix(a.label_path, name="labels", scan=scan)
    texts = TextFile(a.text_path) if a.text_path else None
    X: Any = None if a.feat_path is None else load_features(a.feat_path, scan=scan)
    files = {"Y": a.label_path, "X": a.feat_path, "texts": a.text_path, "names": a.labels}
    files = {what: path for what, path in files.items() if path}
    check_training_input(Y=Y, X=X, texts=texts, names=names, files=files, loaded=True)
    # Only rank 0 uses these; errors in them are reported before work begins.
    mode, first = options.params.ranker.rel_mode, communicator.rank == 0
    R, negatives = run_on_all_ranks(communicator, lambda: _relevance_and_negatives(a, mode, Y) if first else (None, {}))
    tree = features = None
    if a.code_path:
        # With 1, the root is right above the clusters in the file.
        shape = options.params.trees[0]
        min_codes = 1 if options.params.ranker.shallow else shape.min_codes
        tree = load_chain(a.code_path, nr_splits=shape.nr_splits, min_codes=min_codes)
    elif a.label_feat_path:
        features = as_features(load_matrix(a.label_feat_path, name="label features"))
    called = {
        "labels": a.label_path, "tree": a.code_path, "label features": a.label_feat_path,
        "negatives of clusters": a.usn_match_path,
    }  # fmt: skip
    return LinearData(
        Y, texts, X, lines=lines, hierarchy=hierarchy, tree=tree, label_features=features, R=R, negatives=negatives,
        called=called,
    )  # fmt: skip


def _warn_of_needs(data: LinearData, options: LinearOptions, layout: str, folder: Path) -> None:
    """Log the resources that training needs, and warn if this machine has less."""
    documents, labels = data.Y.shape
    sizes = DataSizes(labels, documents, data.Y.nnz / max(documents, 1))
    if data.X is not None and data.X.sparse is not None:
        sizes = replace(sizes, entries=data.X.sparse.nnz / max(documents, 1), features=data.X.nr_sparse)
    params = params_of_effort(options.params, options.effort, documents, labels)
    shape = params.trees[0]
    warn_of_needs(
        sizes, folder, thread_count(options.threads), trees=len(params.trees), streamed=_STREAMED[layout],
        shape=FineTuningOptions(nr_splits=shape.nr_splits, max_leaf_size=shape.max_leaf_size),
    )  # fmt: skip


def _relevance_and_negatives(
    a: argparse.Namespace, mode: str, Y: spmatrix
) -> tuple[spmatrix | None, dict[int, spmatrix]]:
    """Return the relevance (None if unused), and the negatives of -uy and -um, under the keys 0 and 1."""
    R = None
    if a.rel_path is not None and mode == "disable":
        _LOG.warning("%s has no effect without --rel-mode induce or ranker-only", a.rel_path)
    elif a.rel_path is not None:
        R = load_matrix(a.rel_path, name="relevance")
        try:
            check_relevance(sorted_csc(R), sorted_csc(Y))
        except InputError as error:
            raise error.found_in(a.rel_path) from None
    found: dict[int, spmatrix] = {}
    for height, path in ((0, a.usn_label_path), (1, a.usn_match_path)):
        if path is not None:
            found[height] = csc_matrix(load_matrix(path, name="negatives"))
            check_pair(Y, found[height], a.label_path, path)
    if 0 in found and found[0].shape[1] != Y.shape[1]:
        raise InputError(
            f"{a.usn_label_path} does not fit the labels", expected=f"{Y.shape[1]:,} columns, as in {a.label_path}",
            received=f"{found[0].shape[1]:,} columns",
        )  # fmt: skip
    return R, found


def _require(arguments: argparse.Namespace) -> None:
    missing = [flag for flag, value in (("-y", arguments.label_path), ("-m", arguments.model_folder)) if not value]
    if bool(arguments.text_path) == bool(arguments.feat_path):
        missing.append("one of -t (texts) and -x (features)")
    if missing:
        raise InputError(
            f"the command line lacks {', '.join(missing)}"
            if not (arguments.text_path and arguments.feat_path)
            else "both -t and -x are given",
            expected="labels (-y), a folder for the model (-m), and texts (-t) or features (-x)",
            fix="python -m xmc_tf.linear.train --help shows complete commands",
        )


def _options(arguments: cli.GivenFlags) -> LinearOptions:
    """Return the options. A block of the parameter file replaces the defaults of flags, but no flag that is given."""
    classes: dict[str, Any] = {
        "train_params": RankerParams,
        "pred_params": RankerPredParams,
        "indexer_params": HierarchicalKMeansParams,
        "tfidf_params": TfidfParams,
    }
    from_file: dict[str, Any] = {}
    if arguments.params_path:
        from_file = load_blocks(arguments.params_path, vars(arguments.only_given()), **classes)
    blocks = {key: from_file.get(key) or from_arguments(cls, arguments) for key, cls in classes.items()}
    if not from_file.get("indexer_params") or "trees" in arguments.given:
        blocks["indexer_params"] = several_trees(blocks["indexer_params"], arguments.trees)
    # The file sets for each level what the flags set for all levels.
    search = arguments.given.intersection(SEARCH) if from_file.get("pred_params") else SEARCH
    prediction = options_of_flags(arguments, *search)
    # PECOS's scripts get PECOS's scores by default; with --effort, probabilities are learned by default.
    probabilities, label_names = arguments.probabilities, arguments.label_names
    if arguments.effort is None:
        label_names = bool(label_names)
        if probabilities is None and not label_names:
            _LOG.info("scores are those of PECOS, not probabilities (--effort fast learns probabilities)")
        probabilities = label_names if probabilities is None else probabilities
    return LinearOptions(
        XRLinearParams(*blocks.values()), prediction, arguments.effort, probabilities, label_names,
        arguments.keep_training_data, (arguments.meta_label_embedding_method, arguments.sub_label_embedding_method),
        arguments.min_n_sub_tree, arguments.seed, arguments.threads,
    )  # fmt: skip


if __name__ == "__main__":
    cli.run(main)
