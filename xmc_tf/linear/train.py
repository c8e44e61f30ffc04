"""``python -m xmc_tf.linear.train``: XR-Linear from text or features."""

import argparse
import logging
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scipy.sparse import csc_matrix, spmatrix

from xmc_tf.collective.communicator import Communicator, choose
from xmc_tf.collective.together import together
from xmc_tf.common import cli
from xmc_tf.common.compiled import announce_compiling
from xmc_tf.common.errors import InputError
from xmc_tf.data import (
    Features,
    TextFile,
    as_features,
    check_pair,
    check_training_input,
    load_features,
    load_matrix,
    load_names,
    save_matrix,
)
from xmc_tf.data.stored import open_matrix
from xmc_tf.linear.disk import refuse_to_overwrite
from xmc_tf.linear.distributed.account import Account, accounts_table
from xmc_tf.linear.distributed.inputs import check_same_inputs
from xmc_tf.linear.distributed.placing import place_model
from xmc_tf.linear.distributed.training import threads_of_rank, train_over_ranks
from xmc_tf.linear.distributed.work_folder import WorkFolder, open_work_folder, work_path
from xmc_tf.linear.levels import Levels
from xmc_tf.linear.problems import check_relevance, sorted_csc
from xmc_tf.linear.text_ranker import TextRanker, level_predictions, model_facts, what_is_predicted
from xmc_tf.params import (
    HierarchicalKMeansParams,
    LinearLevelParams,
    LinearLevelPredParams,
    RankerParams,
    RankerPredParams,
    TfidfParams,
    add_arguments,
    from_arguments,
    linear_skeleton,
    load_blocks,
)
from xmc_tf.tree import LabelTree, build_tree, label_embedding, load_chain, save_chain

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf

_LOG = logging.getLogger(__name__)
_DESCRIPTION = """Trains XR-Linear: linear rankers over a label tree.

From text, with a TF-IDF of its own that the model keeps:
    python -m xmc_tf.linear.train -t X.trn.txt -y Y.trn.npz -m model --labels labels.txt
From features, sparse or dense or both side by side:
    python -m xmc_tf.linear.train -x X.trn.npz -y Y.trn.npz -m model
    python -m xmc_tf.linear.train -x tfidf.npz embeddings.npy -y Y.trn.npz -m model"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = argparse.ArgumentParser(
        prog="python -m xmc_tf.linear.train",
        usage="%(prog)s [-t TEXTS | -x FEATURES] -y LABELS -m MODEL [options]",
        description=_DESCRIPTION,
        formatter_class=cli.HelpFormatter,
    )
    out.add_argument("--generate-params-skeleton", action="store_true", help="print a parameter file with all defaults")
    out.add_argument("--params-path", metavar="JSON", help="parameter file; replaces the flags for what it holds")

    data = out.add_argument_group("data")
    data.add_argument(
        "-x",
        "--inst-path",
        nargs="+",
        metavar="FILE",
        help="features, .npz or .npy; two are set side by side, sparse then dense",
    )
    data.add_argument(
        "-t",
        dest="text_or_threshold",
        action="append",
        default=[],
        metavar="TEXT|NUMBER",
        help="a file of texts, one a line, instead of -x; or, as PECOS has it, a number: --threshold",
    )
    data.add_argument("--text-path", metavar="FILE", help="the texts, under any name")
    data.add_argument("-y", "--label-path", metavar="FILE", help="labels of the documents, .npz (documents × labels)")
    data.add_argument("-m", "--model-folder", metavar="DIR", help="where the model goes")
    data.add_argument("--labels", metavar="FILE", help="label names, one a line, in column order")
    data.add_argument("-r", "--rel-path", metavar="FILE", help="relevance of the labels, for cost-sensitive training")
    data.add_argument("-um", "--usn-match-path", metavar="FILE", help="negatives: documents × leaf clusters")
    data.add_argument("-uy", "--usn-label-path", metavar="FILE", help="negatives: documents × labels")

    tree = out.add_argument_group("label tree")
    tree.add_argument(
        "-c", "--code-path", metavar="PATH", help="a tree to take as it is: a folder, or one labels × clusters matrix"
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
        help="negatives: tfn, man, usn, or a sum such as tfn+man",
    )
    add_arguments(rankers, RankerParams, "rel_mode", "rel_norm")

    prediction = out.add_argument_group("prediction, where it is not told otherwise")
    prediction.add_argument(
        "-b", "--beam-size", type=int, default=10, metavar="INT", help="nodes kept at each level above the labels"
    )
    prediction.add_argument("-k", "--only-topk", type=int, default=20, metavar="INT", help="labels predicted")
    add_arguments(
        prediction, LinearLevelPredParams, "post_processor", flags={"post_processor": ("-pp", "--post-processor")}
    )

    ranks = out.add_argument_group("many ranks (mpiexec -n N python -m xmc_tf.linear.train ...)")
    ranks.add_argument(
        "-nst",
        "--min-n-sub-tree",
        type=int,
        default=16,
        metavar="INT",
        help="into how many sub-trees the labels are clustered before each goes on by itself, at least",
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
    ranks.add_argument(
        "-mwf",
        "--main-workload-factor",
        type=float,
        default=None,
        metavar="FLOAT",
        help="accepted for PECOS's scripts and without effect: ranks take work as they come free",
    )

    words = out.add_argument_group("TF-IDF (with -t)")
    add_arguments(words, TfidfParams, "ngram_max", "min_df", "max_features", "sublinear_tf")
    out.add_argument(
        "--verbose-level",
        type=int,
        default=1,
        choices=range(4),
        metavar="0-3",
        help="0: warnings, 1: progress, 2 and 3: more",
    )
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and saves a model."""
    arguments = parser().parse_args(argv)
    if arguments.generate_params_skeleton:
        print(linear_skeleton())
        return
    communicator = choose()
    if communicator.rank == 0:
        cli.set_verbosity(arguments.verbose_level)
    else:  # what rank 0 says is said for all
        logging.getLogger().setLevel(logging.WARNING)
        cli.set_verbosity(0)
    announce_compiling()
    _sort_out_t(arguments)
    _require(arguments)
    params, pred_params, tree_params, wishes = _parameters(arguments)
    tfidf_params = from_arguments(TfidfParams, arguments)
    names = load_names(arguments.labels) if arguments.labels else None

    Y = load_matrix(arguments.label_path, name="labels")
    texts = TextFile(arguments.text_path) if arguments.text_path else None
    X: Any = None if arguments.inst_path is None else load_features(arguments.inst_path)
    files = {
        "Y": arguments.label_path,
        "X": arguments.inst_path,
        "texts": arguments.text_path,
        "names": arguments.labels,
    }
    check_training_input(Y=Y, X=X, texts=texts, names=names, files={k: v for k, v in files.items() if v})
    folder = Path(arguments.model_folder)
    refuse_to_overwrite(folder)
    given = _Given(arguments, params, pred_params, tree_params, tfidf_params, wishes, names, Y, texts, X)
    if communicator.size > 1 or work_path(folder).exists():
        _train_over_ranks(communicator, folder, given)
    else:
        _train_here(folder, given)


class _Given(NamedTuple):
    """What the command line and its files say."""

    arguments: argparse.Namespace
    params: RankerParams
    pred_params: RankerPredParams
    tree_params: HierarchicalKMeansParams
    tfidf_params: TfidfParams
    wishes: dict[str, Any]
    names: list[str] | None
    Y: spmatrix
    texts: TextFile | None
    X: Features | None

    @property
    def recorded(self) -> dict[str, Any]:
        """Parameters of the parts around the rankers, for the model's folder."""
        return {
            "indexer_params": self.tree_params.to_json(),
            "tfidf_params": self.tfidf_params.to_json() if self.texts is not None else None,
        }

    @property
    def settings(self) -> dict[str, Any]:
        """All that decides, beside the files, what the model will be; the number of threads does not."""
        ours = {
            name: getattr(self.arguments, name)
            for name in ("seed", "min_n_sub_tree", "meta_label_embedding_method", "sub_label_embedding_method")
        }
        blocks = {"train": self.params, "pred": self.pred_params, **self.recorded}
        read = {name: block.to_json() if hasattr(block, "to_json") else block for name, block in blocks.items()}
        return _without_threads({**ours, **read, "wishes": self.wishes, "version": version("xmc_tf")})

    @property
    def files(self) -> dict[str, list[str]]:
        """The files that decide it."""
        a = self.arguments
        named = {
            "labels": a.label_path, "features": a.inst_path, "texts": a.text_path, "label names": a.labels,
            "relevance": a.rel_path, "negatives of clusters": a.usn_match_path, "negatives": a.usn_label_path,
            "tree": a.code_path, "label features": a.label_feat_path,
        }  # fmt: skip
        return {what: paths if isinstance(paths, list) else [paths] for what, paths in named.items() if paths}


def _train_here(folder: Path, given: _Given) -> None:
    """Trains in this process's memory."""
    arguments, Y, X, tfidf = given.arguments, given.Y, given.X, None
    R = _relevance(arguments.rel_path, Y, given.params.rel_mode)
    negatives = _user_negatives(arguments, Y)
    if given.texts is not None:
        tfidf, X = _vectorized(given)
    assert X is not None  # texts or features: _require has seen to it
    _LOG.info("%s documents, %s labels, %s features", *(f"{n:,}" for n in (*Y.shape, X.nr_features)))
    tree = _tree(given, X)
    model = TextRanker.train(
        X, Y, tree, params=given.params, pred_params=given.pred_params, names=given.names, tfidf=tfidf,
        R=R,
        user_negatives=_in_order(negatives, tree, arguments.usn_match_path),
        recorded=given.recorded,
        wishes=given.wishes,
        threads=arguments.threads, seed=arguments.seed,
    )  # fmt: skip
    model.save(folder)
    _LOG.info("%s: %s weights in %s levels", folder, f"{model.ranker.nr_weights:,}", model.ranker.depth)


def _train_over_ranks(communicator: Communicator, folder: Path, given: _Given) -> None:
    """Trains with all ranks, through files in a work folder beside the model's; takes up what is there already."""
    arguments, Y = given.arguments, given.Y
    key = check_same_inputs(communicator, given.files, given.settings)
    work = open_work_folder(communicator, folder, key)
    account = Account(threads=threads_of_rank(communicator, arguments.threads))
    first = communicator.rank == 0
    if given.texts is not None:
        together(communicator, lambda: _vectorize_into(work, given, account) if first else None)
    X = given.X if given.texts is None else as_features(open_matrix(work.file("X.npz")))
    assert X is not None  # texts or features: _require has seen to it
    _LOG.info("%s documents, %s labels, %s features", *(f"{n:,}" for n in (*Y.shape, X.nr_features)))
    if arguments.code_path:
        tree = together(communicator, lambda: _tree(given, X))
    else:
        if first and not work.tree.exists():
            save_chain(work.tree, _tree(given, X))
        communicator.barrier()
        tree = load_chain(work.tree)
    pred_params = level_predictions(tree, given.params, given.pred_params, given.wishes)

    def make_levels() -> Levels:
        R = _relevance(arguments.rel_path, Y, given.params.rel_mode)
        negatives = _in_order(_user_negatives(arguments, Y), tree, arguments.usn_match_path)
        return Levels(Y, tree.to_chain(), R, given.params, negatives)

    model = train_over_ranks(
        communicator, work, X, make_levels, pred_params=pred_params, account=account, seed=arguments.seed
    )

    def place() -> None:
        if first:
            kept, names = what_is_predicted(tree, given.names, given.params)
            facts = model_facts(X, model, given.params, pred_params, given.recorded, arguments.seed)
            place_model(folder, work, model, kept, names, facts)

    together(communicator, place)
    table = accounts_table(communicator, account)
    if first:
        shutil.rmtree(work.path)
        _LOG.info("%s: %s weights in %s levels\n%s", folder, f"{model.nr_weights:,}", model.depth, table)
    communicator.barrier()


def _vectorized(given: _Given) -> "tuple[Tfidf, Features]":
    """The vectoriser fitted to the texts, and their features."""
    from xmc_tf.features import Tfidf  # brings TensorFlow, which features alone do not need

    assert given.texts is not None
    given.texts.check()
    tfidf = Tfidf.fit(given.texts, given.tfidf_params, threads=given.arguments.threads)
    return tfidf, as_features(tfidf.transform(given.texts, threads=given.arguments.threads))


def _vectorize_into(work: WorkFolder, given: _Given, account: Account) -> None:
    """Leaves vectoriser and features in the work folder, for all ranks."""
    if work.file("X.npz").exists():
        return
    with account.busy(1.0):
        tfidf, X = _vectorized(given)
        tfidf.save(work.features)
        save_matrix(work.file("X.npz"), X.sparse)


def _without_threads(block: Any) -> Any:
    """Parameters without those that leave the model as it is."""
    if isinstance(block, dict):
        return {key: _without_threads(value) for key, value in block.items() if key not in ("threads", "verbose")}
    return [_without_threads(one) for one in block] if isinstance(block, list | tuple) else block


def _sort_out_t(arguments: argparse.Namespace) -> None:
    """Tells apart the two meanings of -t: PECOS's scripts give a threshold by it, ours a text."""
    for given in arguments.text_or_threshold:
        try:
            arguments.threshold = float(given)
        except ValueError:
            arguments.text_path = given


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
            fix="python -m xmc_tf.linear.train --help shows whole commands",
        )


def _parameters(
    arguments: argparse.Namespace,
) -> tuple[RankerParams, RankerPredParams, HierarchicalKMeansParams, dict[str, Any]]:
    """From the parameter file what it holds, else from the flags; and the flags that choose between levels."""
    wishes = {name: getattr(arguments, name) for name in ("beam_size", "only_topk", "post_processor")}
    if arguments.beam_size < 1:
        raise InputError(
            "--beam-size is out of range", expected="a whole number from 1 on", received=str(arguments.beam_size)
        )
    classes: dict[str, Any] = {
        "train_params": RankerParams,
        "pred_params": RankerPredParams,
        "indexer_params": HierarchicalKMeansParams,
    }
    held: dict[str, Any] = load_blocks(arguments.params_path, **classes) if arguments.params_path else {}
    blocks = {key: held.get(key) or from_arguments(cls, arguments) for key, cls in classes.items()}
    # The file says level by level what the flags say for all.
    return *blocks.values(), {} if held.get("pred_params") else wishes


def _tree(given: _Given, X: Features) -> LabelTree:
    """The tree that is given, or one built of label features or of PIFA."""
    arguments, Y, params = given.arguments, given.Y, given.tree_params
    if arguments.code_path:
        min_codes = 1 if given.params.shallow else params.min_codes  # 1: the root right above the given clusters
        tree = load_chain(arguments.code_path, nr_splits=params.nr_splits, min_codes=min_codes)
        if tree.nr_labels != Y.shape[1]:
            raise InputError(
                f"{arguments.code_path} is a tree over other labels",
                expected=f"{Y.shape[1]:,} labels, the columns of {arguments.label_path}",
                received=f"{tree.nr_labels:,} labels",
            )
        return tree
    if arguments.label_feat_path:
        features = load_matrix(arguments.label_feat_path, name="label features")
        if features.shape[0] != Y.shape[1]:
            raise InputError(
                f"{arguments.label_feat_path} is not of these labels",
                expected=f"{Y.shape[1]:,} rows, one for each column of {arguments.label_path}",
                received=f"{features.shape[0]:,} rows",
            )
    else:
        features = label_embedding("pifa", X, Y, threads=arguments.threads)
    tree = build_tree(features, params)
    _LOG.info("label tree: %s", " > ".join(f"{size:,}" for size in tree.level_sizes))
    return tree


def _relevance(path: str | None, Y: spmatrix, mode: str) -> spmatrix | None:
    if path is None:
        return None
    if mode == "disable":
        _LOG.warning("%s has no effect without --rel-mode induce or ranker-only", path)
        return None
    R = load_matrix(path, name="relevance")
    try:
        check_relevance(sorted_csc(R), sorted_csc(Y))
    except InputError as error:
        raise InputError(
            f"{path}: {error.problem}", expected=error.expected, received=error.received, fix=error.fix
        ) from None
    return R


def _user_negatives(arguments: argparse.Namespace, Y: spmatrix) -> dict[int, spmatrix]:
    """The user's own negatives, keyed by how many levels above the labels they are."""
    given = {}
    for height, path in ((0, arguments.usn_label_path), (1, arguments.usn_match_path)):
        if path is not None:
            given[height] = csc_matrix(load_matrix(path, name="negatives"))
            check_pair(Y, given[height], arguments.label_path, path)
    if 0 in given and given[0].shape[1] != Y.shape[1]:
        raise InputError(
            f"{arguments.usn_label_path} is not of these labels",
            expected=f"{Y.shape[1]:,} columns, as in {arguments.label_path}",
            received=f"{given[0].shape[1]:,} columns",
        )
    return given


def _in_order(negatives: dict[int, spmatrix], tree: LabelTree, path: str | None) -> dict[int, spmatrix]:
    """Negatives of clusters with their columns in the order of the tree, which has numbered the clusters anew."""
    if 1 not in negatives:
        return negatives
    order = tree.node_order[-1]
    if negatives[1].shape[1] != len(order):
        raise InputError(
            f"{path} is not of this tree's leaf clusters",
            expected=f"{len(order):,} columns, one a cluster",
            received=f"{negatives[1].shape[1]:,} columns",
            fix="give the tree that they are made for with --code-path",
        )
    return {**negatives, 1: negatives[1][:, order]}


if __name__ == "__main__":
    cli.run(main)
