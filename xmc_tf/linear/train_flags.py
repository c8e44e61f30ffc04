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
_KMEANS = ("nr_splits", "min_codes", "max_leaf_size", "spherical", "kmeans_max_iter", "seed")
_SOLVER = (
    "solver_type", "Cp", "Cn", "bias", "threshold", "max_nonzeros_per_label", "eps", "max_iter", "threads",
)  # fmt: skip
_SPELLINGS: dict[str, tuple[str, ...]] = {
    "solver_type": ("-s", "--solver-type"),
    "max_nonzeros_per_label": ("-z", "--max-nonzeros-per-label"),
    "threads": ("-n", "--threads"),
    "Cp": ("--Cp",),
    "Cn": ("--Cn",),
}


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser(
        "xmc_tf.linear.train", _DESCRIPTION, usage="%(prog)s [-t TEXTS | -x FEATURES] -y LABELS -m MODEL [options]"
    )
    out.add_argument("--generate-params-skeleton", action="store_true", help="print a parameter file with all defaults")
    out.add_argument("--params-path", metavar="JSON", help="parameter file; its values replace those of the flags")
    _add_data_flags(out.add_argument_group("data"))
    tree = out.add_argument_group("label tree")
    tree.add_argument(
        "-c", "--code-path", metavar="PATH",
        help="label tree to use: a folder, or one matrix of labels × clusters (default: built by clustering)",
    )  # fmt: skip
    tree.add_argument("-f", "--label-feat-path", metavar="FILE", help="label features for clustering, instead of PIFA")
    add_arguments(tree, HierarchicalKMeansParams, *_KMEANS)
    add_trees(tree)
    rankers = out.add_argument_group("rankers")
    add_arguments(rankers, LinearLevelParams, *_SOLVER, flags=_SPELLINGS)
    rankers.add_argument(
        "-ns", "--negative-sampling", dest="neg_mining_chain", default="tfn", metavar="SCHEME",
        help="negative sampling: tfn, man, usn, or a sum such as tfn+man",
    )  # fmt: skip
    add_arguments(rankers, RankerParams, "rel_mode", "rel_norm")
    prediction = out.add_argument_group("prediction defaults")
    prediction.add_argument(
        "-b", "--beam-size", type=whole, default=10, metavar="INT",
        help="number of nodes kept at each level above the labels; larger is slower and more exact",
    )  # fmt: skip
    prediction.add_argument(
        "-k", "--only-topk", type=whole, default=20, metavar="INT", help="number of labels per document"
    )
    spelling = {"post_processor": ("-pp", "--post-processor")}
    add_arguments(prediction, LinearLevelPredParams, "post_processor", flags=spelling)
    ranks = out.add_argument_group("many ranks (mpiexec -n N python -m xmc_tf.linear.train ...)")
    ranks.add_argument(
        "-nst", "--min-n-sub-tree", type=whole, default=16, metavar="INT",
        help="minimum number of sub-trees, above which -mle applies and within which -sle applies",
    )  # fmt: skip
    for short, part, where in (("-mle", "meta", "above"), ("-sle", "sub", "within")):
        ranks.add_argument(
            short, f"--{part}-label-embedding-method", default="pifa", choices=("pifa", "pii"),
            help=f"label embedding {where} the sub-trees",
        )  # fmt: skip
    add_arguments(out.add_argument_group("TF-IDF (with -t)"), TfidfParams, *TFIDF_FLAGS)
    add_verbosity(out)
    add_without_effect(out, "linear.train")
    return out


def _add_data_flags(data: argparse._ArgumentGroup) -> None:
    add = data.add_argument
    add(
        "-x", "--inst-path", nargs="+", metavar="FILE",
        help="features, .npz or .npy; two files, sparse then dense, are concatenated",
    )  # fmt: skip
    add(
        "-t", dest="text_or_threshold", action="append", default=[], metavar="TEXT|NUMBER",
        help="texts, one per line, instead of -x; a number sets --threshold, as in PECOS",
    )  # fmt: skip
    add("--text-path", metavar="FILE", help="texts; use it if the name of the file is a number")
    add("-y", "--label-path", metavar="FILE", help="labels of the documents, .npz (documents × labels)")
    add("-m", "--model-folder", metavar="DIR", help="folder to write the model to; PECOS loads its subfolder ranker")
    add_label_names(data, with_effort=True)
    add_keep_training_data(data)
    add(
        "--layout", choices=("auto", "pecos", "search"), default="auto",
        help="of the weights on disk: pecos, which PECOS reads; or search, which is smaller, and is written while the "
        "rankers are trained, so that they need no memory (auto: search for large data in one process)",
    )  # fmt: skip
    add("-r", "--rel-path", metavar="FILE", help="relevance of the labels, for cost-sensitive training")
    add("-um", "--usn-match-path", metavar="FILE", help="negatives for usn: documents × leaf clusters")
    add("-uy", "--usn-label-path", metavar="FILE", help="negatives for usn: documents × labels")
