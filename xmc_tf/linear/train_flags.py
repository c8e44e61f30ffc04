"""The flags of ``python -m xmc_tf.linear.train``."""

import argparse

from xmc_tf.common.numbers import whole
from xmc_tf.common.process import cli
from xmc_tf.params import (
    HierarchicalKMeansParams,
    LinearLevelParams,
    LinearLevelPredParams,
    RankerParams,
    TfidfParams,
    add_arguments,
    add_keep_training_data,
    add_label_names,
    add_trees,
    add_verbosity,
    add_without_effect,
)
from xmc_tf.params.tfidf import TFIDF_FLAGS

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
    out = cli.make_parser(
        "xmc_tf.linear.train",
        _DESCRIPTION,
        usage="%(prog)s [-t TEXTS | -x FEATURES] -y LABELS -m MODEL [options]",
    )
    out.add_argument("--generate-params-skeleton", action="store_true", help="print a parameter file with all defaults")
    out.add_argument("--params-path", metavar="JSON", help="parameter file; its values replace those of the flags")

    _add_data_flags(out)
    _add_tree_flags(out)
    _add_ranker_flags(out)
    _add_prediction_flags(out)
    _add_rank_flags(out)
    words = out.add_argument_group("TF-IDF (with -t)")
    add_arguments(words, TfidfParams, *TFIDF_FLAGS)
    add_verbosity(out)
    add_without_effect(out, "linear.train")
    return out


def _add_data_flags(out: argparse.ArgumentParser) -> None:
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
    add_label_names(data, with_effort=True)
    add_keep_training_data(data)
    data.add_argument(
        "--layout",
        choices=("auto", "pecos", "search"),
        default="auto",
        help="of the weights on disk: pecos, which PECOS reads; or search, which is smaller, and is written while the "
        "rankers are trained, so that they need no memory (auto: search for large data in one process)",
    )
    data.add_argument("-r", "--rel-path", metavar="FILE", help="relevance of the labels, for cost-sensitive training")
    data.add_argument("-um", "--usn-match-path", metavar="FILE", help="negatives for usn: documents × leaf clusters")
    data.add_argument("-uy", "--usn-label-path", metavar="FILE", help="negatives for usn: documents × labels")


def _add_tree_flags(out: argparse.ArgumentParser) -> None:
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
    add_trees(tree)


def _add_ranker_flags(out: argparse.ArgumentParser) -> None:
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


def _add_prediction_flags(out: argparse.ArgumentParser) -> None:
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


def _add_rank_flags(out: argparse.ArgumentParser) -> None:
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
