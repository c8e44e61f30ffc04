"""The flags of ``python -m xmc_tf.train``: the peer's names wherever the peer has the flag, and our own."""

import argparse
import dataclasses

from xmc_tf.common import cli
from xmc_tf.common.numbers import whole
from xmc_tf.params import (
    ENSEMBLES,
    POST_PROCESSORS,
    WITHOUT_EFFECT,
    HierarchicalKMeansParams,
    LinearLevelParams,
    MatcherParams,
    MatcherPredParams,
    RankerParams,
    TfidfParams,
    XTransformerParams,
    add_arguments,
    add_layout,
    add_verbosity,
    add_without_effect,
    truth,
)

_DESCRIPTION = """Trains XR-Transformer: an encoder fine-tuned on a label tree, and rankers on [features ; embedding].

From text, with TF-IDF features of the model's own:
    python -m xmc_tf.train -t X.trn.txt -y Y.trn.npz -m model --labels labels.txt
From text and features, measured on held-out documents:
    python -m xmc_tf.train -t X.trn.txt -x X.trn.npz -y Y.trn.npz -tt X.tst.txt -xt X.tst.npz -yt Y.tst.npz -m model
On many workers, the same:
    horovodrun -np 8 -H host1:4,host2:4 python -m xmc_tf.train -t X.trn.txt -y Y.trn.npz -m /shared/model

The same command goes on where it was stopped, on as many workers or others."""

_EXPLICIT = (
    "negative_sampling",  # has a short form
    "threshold",  # is the rankers' too
)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = argparse.ArgumentParser(
        prog="python -m xmc_tf.train",
        usage="%(prog)s -t TEXTS -y LABELS -m MODEL [-x FEATURES] [options]",
        description=_DESCRIPTION,
        formatter_class=cli.HelpFormatter,
    )
    _add_files(out)
    _add_tree(out.add_argument_group("label tree"))
    _add_encoder(out.add_argument_group("encoder and its fine-tuning"))
    _add_rankers(out.add_argument_group("rankers"))
    _add_prediction(out.add_argument_group("prediction, where it is not told otherwise"))
    words = out.add_argument_group("TF-IDF (without -x)")
    add_arguments(words, TfidfParams, "ngram_max", "min_df", "max_features", "sublinear_tf")
    _add_running(out.add_argument_group("running"))
    add_without_effect(out, "train")
    return out


def _add_files(out: argparse.ArgumentParser) -> None:
    skeletons = out.add_argument_group("parameter files")
    for which in ("", "train-", "pred-"):
        held = {"": "all", "train-": "train_params", "pred-": "pred_params"}[which]
        skeletons.add_argument(
            f"--generate-{which}params-skeleton", action="store_true", help=f"print a file with {held}, by defaults"
        )
    skeletons.add_argument("--params-path", metavar="JSON", help="parameter file; replaces the flags for what it holds")
    skeletons.add_argument("--train-params-path", metavar="JSON", help="a file that holds train_params alone")
    skeletons.add_argument("--pred-params-path", metavar="JSON", help="a file that holds pred_params alone")

    data = out.add_argument_group("data")
    data.add_argument("-t", "--trn-text-path", metavar="FILE", help="texts, one document a line")
    data.add_argument(
        "-x", "--trn-feat-path", nargs="+", metavar="FILE",
        help="features, .npz or .npy; two are set side by side, sparse then dense; without it the model makes TF-IDF",
    )  # fmt: skip
    data.add_argument("-y", "--trn-label-path", metavar="FILE", help="labels, .npz (documents × labels)")
    data.add_argument("-m", "--model-dir", metavar="DIR", help="where the model goes")
    data.add_argument("-tt", "--tst-text-path", metavar="FILE", help="texts of held-out documents, to measure on")
    data.add_argument("-xt", "--tst-feat-path", nargs="+", metavar="FILE", help="their features, with -x")
    data.add_argument("-yt", "--tst-label-path", metavar="FILE", help="their labels")
    add_layout(data)
    data.add_argument("--labels", metavar="FILE", help="label names, one a line, in column order")
    data.add_argument(
        "--text-only", action="store_true", help="rankers on the embedding alone, without features of the words"
    )


def _add_tree(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--code-path", metavar="PATH", help="a tree to fine-tune on: a folder, or one labels × clusters matrix"
    )
    group.add_argument("--label-feat-path", metavar="FILE", help="label features to build that tree by, not PIFA")
    _add_switch(group, "--fix-clustering", "give the rankers the same tree, and not one by the embedding too")
    add_arguments(
        group, HierarchicalKMeansParams, "nr_splits", "min_codes", "max_leaf_size", "spherical", "kmeans_max_iter"
    )


def _add_encoder(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--do-fine-tune", type=truth, default=True, metavar="true/false", help="fine-tune the encoder")
    group.add_argument(
        "--no-fine-tune", dest="do_fine_tune", action="store_false", default=argparse.SUPPRESS,
        help="use the encoder as it comes",
    )  # fmt: skip
    _add_switch(group, "--only-encoder", "train no rankers")
    add_arguments(group, XTransformerParams, "max_match_clusters")
    group.add_argument(
        "--steps-scale", nargs="+", type=float, metavar="NUMBER", help="factors of the training steps, one a level"
    )
    add_arguments(group, MatcherPredParams, "truncate_length")
    add_arguments(
        group, MatcherParams, "negative_sampling", flags={"negative_sampling": ("-ns", "--negative-sampling")}
    )
    without_effect = {flag.strip("-").replace("-", "_") for flag in WITHOUT_EFFECT["train"]}
    names = [field.name for field in dataclasses.fields(MatcherParams)]
    add_arguments(
        group, MatcherParams, *(name for name in names if name not in (*_EXPLICIT, *without_effect)),
        defaults={"batch_size": 32},
    )  # fmt: skip
    group.add_argument(
        "--fp16", type=truth, metavar="true/false", help="the same as --mixed-precision fp16 (true) or off (false)"
    )
    group.add_argument(
        "--disable-gpu", dest="use_gpu", action="store_false", default=argparse.SUPPRESS,
        help="the same as --use-gpu false",
    )  # fmt: skip
    group.add_argument(
        "--save-emb-dir",
        metavar="DIR",
        help="also keep the training documents' embeddings, of length 1, there: X.trn.npy",
    )


def _add_rankers(group: argparse._ArgumentGroup) -> None:
    add_arguments(
        group, LinearLevelParams, "threshold", "max_nonzeros_per_label", "solver_type", "Cp", "Cn", "bias", "eps",
        "max_iter", "threads", flags={"Cp": ("--Cp",), "Cn": ("--Cn",), "threads": ("-n", "--threads")},
    )  # fmt: skip
    add_arguments(group, RankerParams, "rel_mode", "rel_norm")
    add_arguments(group, XTransformerParams, "embedding_weight")


def _add_prediction(group: argparse._ArgumentGroup) -> None:
    group.add_argument("-b", "--beam-size", type=whole, metavar="INT", help="nodes kept at each level above the labels")
    group.add_argument("-k", "--only-topk", type=whole, metavar="INT", help="labels predicted")
    group.add_argument("-pp", "--post-processor", choices=POST_PROCESSORS, help="of the scores, at every level")
    group.add_argument(
        "--ensemble-method", choices=ENSEMBLES,
        help="whose scores count: the rankers' (concat-only), the label head's (transformer-only), or both; where it "
        "is not given, both if there are both and the head learns by cross-entropy, else the rankers' if there are any",
    )  # fmt: skip


def _add_running(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--seed", type=whole, default=0, metavar="INT", help="of all that is random")
    group.add_argument("--logdir", metavar="DIR", help="where TensorBoard's files go")
    group.add_argument(
        "--work-dir", "--shared-workdir", metavar="DIR",
        help="where finished stages are kept until the model is complete; all hosts must see it (default: MODEL.work)",
    )  # fmt: skip
    group.add_argument("--keep-work", action="store_true", help="keep them afterwards too")
    add_verbosity(group)


def _add_switch(group: argparse._ArgumentGroup, flag: str, meaning: str) -> None:
    """A flag alone, as the peer has some, or with true or false behind it."""
    group.add_argument(flag, nargs="?", const=True, default=False, type=truth, metavar="true/false", help=meaning)
