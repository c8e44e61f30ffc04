"""The flags of ``python -m xmc_tf.train``: PECOS's flags, under the same names, and additional flags."""

import argparse
import dataclasses

from xmc_tf.common.numbers import whole
from xmc_tf.common.process import cli
from xmc_tf.common.process.cli import UsualFlags
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
    add_force,
    add_label_names,
    add_layout,
    add_trees,
    add_verbosity,
    add_without_effect,
    truth,
)
from xmc_tf.params.tfidf import TFIDF_FLAGS

USUAL_FLAGS = UsualFlags(
    """Train a model that finds the labels of texts: in seconds, or with an encoder (XR-Transformer) in minutes.

    python -m xmc_tf.train data.csv -m model --report report
    python -m xmc_tf.train data.csv -m model --model-shortcut FOLDER-OR-HUB-NAME
    python -m xmc_tf.train -t X.trn.txt -y Y.trn.npz -m model --labels labels.txt""",
    {
        "a table (CSV, TSV, JSON lines, Parquet, SQLite)": {
            "TABLE": "texts and labels; settings are chosen on held-out rows",
            "--text-column": "text columns (default: guessed)",
            "--label-column": "label column (default: guessed)",
            "--label-separator": "separator between the labels of a cell (default: guessed)",
            "--names-file": "names of labels that are identifiers",
            "--test-table": "test documents (default: a tenth of the rows)",
            "--report": "write an HTML report on the model to this folder",
        },
        "or files": {
            "-t": "texts, one per line",
            "-y": "labels: a scipy matrix of documents × labels",
            "-x": "features of the texts (default: TF-IDF)",
            "--labels": "names of the labels, one per line",
            "--vocabulary": "names of the labels from a SKOS vocabulary",
        },
        "the model": {
            "-m": "folder of the model",
            "--effort": "more label trees: better answers, more time",
            "--minutes": "time for the whole training on a table",
            "--language": "language of the texts (default: found in them)",
            "--keep-training-data": "allow appending documents later (default: for up to 20 MB)",
            "--seed": "random seed",
            "-n": "number of threads (default: one per core)",
        },
        "an encoder": {
            "--model-shortcut": "a folder, or a name on the Hugging Face hub",
            "--num-train-epochs": "number of training epochs (default: 3)",
            "--batch-size": "documents per step and rank (default: 32)",
            "--truncate-length": "maximum number of tokens read per text (default: 128)",
            "--learning-rate": "peak learning rate (default: 0.0001)",
            "--logdir": "folder for TensorBoard's log files",
        },
    },
)


_DESCRIPTION = """Train XR-Transformer: fine-tune an encoder on a label tree; train rankers on features and embeddings.

From a table with text and label columns. Settings are chosen on held-out rows; the model is evaluated on others.
Without --model-shortcut, linear rankers are trained, in seconds instead of minutes:
    python -m xmc_tf.train data.csv -m model
    python -m xmc_tf.train data.csv -m model --text-column title,abstract --label-column keywords --model-shortcut NAME
From texts; TF-IDF features are computed and stored in the model:
    python -m xmc_tf.train -t X.trn.txt -y Y.trn.npz -m model --labels labels.txt
From texts and features, with validation on held-out documents:
    python -m xmc_tf.train -t X.trn.txt -x X.trn.npz -y Y.trn.npz -tt X.tst.txt -xt X.tst.npz -yt Y.tst.npz -m model
On many ranks:
    horovodrun -np 8 -H host1:4,host2:4 python -m xmc_tf.train -t X.trn.txt -y Y.trn.npz -m /shared/model

If training is interrupted, run the same command again: it resumes, on the same or a different number of ranks."""

_EXPLICIT = (
    "negative_sampling",  # has a short form
    "threshold",  # the rankers have it too
)


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser(
        "xmc_tf.train",
        _DESCRIPTION,
        usual=USUAL_FLAGS,
        usage="%(prog)s TABLE -m MODEL [options]\n       %(prog)s -t TEXTS -y LABELS -m MODEL [-x FEATURES] [options]",
    )
    _add_files(out)
    _add_tree(out.add_argument_group("label tree"))
    _add_encoder(out.add_argument_group("encoder and its fine-tuning"))
    _add_rankers(out.add_argument_group("rankers"))
    _add_prediction(out.add_argument_group("prediction defaults"))
    words = out.add_argument_group("TF-IDF (without -x)")
    add_arguments(words, TfidfParams, *TFIDF_FLAGS)
    _add_running(out.add_argument_group("running"))
    add_without_effect(out, "train")
    return out


def _add_files(out: argparse.ArgumentParser) -> None:
    skeletons = out.add_argument_group("parameter files")
    for which in ("", "train-", "pred-"):
        held = {"": "all parameters", "train-": "train_params", "pred-": "pred_params"}[which]
        skeletons.add_argument(
            f"--generate-{which}params-skeleton",
            action="store_true",
            help=f"print a parameter file with the defaults of {held}",
        )
    skeletons.add_argument(
        "--params-path", metavar="JSON", help="parameter file; its values replace those of the flags"
    )
    skeletons.add_argument("--train-params-path", metavar="JSON", help="parameter file with train_params only")
    skeletons.add_argument("--pred-params-path", metavar="JSON", help="parameter file with pred_params only")

    data = out.add_argument_group("data")
    data.add_argument("-t", "--trn-text-path", metavar="FILE", help="texts, one document per line")
    data.add_argument(
        "-x", "--trn-feat-path", nargs="+", metavar="FILE",
        help="features, .npz or .npy; two files, sparse then dense, are concatenated (default: TF-IDF of the texts)",
    )  # fmt: skip
    data.add_argument("-y", "--trn-label-path", metavar="FILE", help="labels, .npz (documents × labels)")
    data.add_argument("-m", "--model-dir", metavar="DIR", help="folder to write the model to")
    data.add_argument("-tt", "--tst-text-path", metavar="FILE", help="texts of held-out documents, for validation")
    data.add_argument(
        "-xt", "--tst-feat-path", nargs="+", metavar="FILE", help="features of the held-out documents, if -x is given"
    )
    data.add_argument("-yt", "--tst-label-path", metavar="FILE", help="labels of the held-out documents")
    add_layout(data)
    add_label_names(data)
    data.add_argument(
        "--text-only", action="store_true", help="train the rankers on embeddings only, without TF-IDF features"
    )


def _add_tree(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--code-path",
        metavar="PATH",
        help="label tree for fine-tuning: a folder, or one matrix of labels × clusters (default: built by clustering)",
    )
    group.add_argument(
        "--label-feat-path", metavar="FILE", help="label features to build the tree from, instead of PIFA"
    )
    _add_switch(
        group,
        "--fix-clustering",
        "use the fine-tuning tree for the rankers too, instead of a new tree that is also built from embeddings",
    )
    add_arguments(
        group, HierarchicalKMeansParams, "nr_splits", "min_codes", "max_leaf_size", "spherical", "kmeans_max_iter"
    )
    add_trees(group, tables=True)


def _add_encoder(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--do-fine-tune", type=truth, default=True, metavar="true/false", help="fine-tune the encoder")
    group.add_argument(
        "--no-fine-tune", dest="do_fine_tune", action="store_false", default=argparse.SUPPRESS,
        help="use the pre-trained encoder without fine-tuning",
    )  # fmt: skip
    _add_switch(group, "--only-encoder", "do not train rankers")
    add_arguments(group, XTransformerParams, "max_match_clusters")
    group.add_argument(
        "--steps-scale",
        nargs="+",
        type=float,
        metavar="NUMBER",
        help="factors by which to multiply the number of training steps, one per level",
    )
    add_arguments(group, MatcherPredParams, "truncate_length", "long_texts", "max_windows")
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
        "--fp16", type=truth, metavar="true/false", help="same as --mixed-precision fp16 (true) or off (false)"
    )
    group.add_argument(
        "--disable-gpu", dest="use_gpu", action="store_false", default=argparse.SUPPRESS,
        help="same as --use-gpu false",
    )  # fmt: skip
    group.add_argument(
        "--save-emb-dir",
        metavar="DIR",
        help="folder to write the embeddings of the training documents to (X.trn.npy, scaled to length 1)",
    )


def _add_rankers(group: argparse._ArgumentGroup) -> None:
    add_arguments(
        group, LinearLevelParams, "threshold", "max_nonzeros_per_label", "solver_type", "Cp", "Cn", "bias", "eps",
        "max_iter", "threads", flags={"Cp": ("--Cp",), "Cn": ("--Cn",), "threads": ("-n", "--threads")},
    )  # fmt: skip
    add_arguments(group, RankerParams, "rel_mode", "rel_norm")
    add_arguments(group, XTransformerParams, "embedding_weight")


def _add_prediction(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-b",
        "--beam-size",
        type=whole,
        metavar="INT",
        help="number of nodes kept at each level above the labels; larger is slower and more exact",
    )
    group.add_argument("-k", "--only-topk", type=whole, metavar="INT", help="number of labels per document")
    group.add_argument(
        "-pp", "--post-processor", choices=POST_PROCESSORS, help="function applied to the scores of each level"
    )
    group.add_argument(
        "--ensemble-method", choices=ENSEMBLES,
        help="scores to use: only the rankers' (concat-only), only the label head's (transformer-only), or a "
        "combination of both (default: root_average if the head is trained with cross-entropy, else concat-only if "
        "there are rankers)",
    )  # fmt: skip


def _add_running(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--seed", type=whole, default=0, metavar="INT", help="random seed")
    group.add_argument("--logdir", metavar="DIR", help="folder for TensorBoard's log files")
    group.add_argument(
        "--work-dir", "--shared-workdir", metavar="DIR",
        help="folder for finished stages and checkpoints until the model is complete; all hosts must share it "
        "(default: MODEL.work)",
    )  # fmt: skip
    group.add_argument("--keep-work", action="store_true", help="keep the work folder when the model is complete")
    add_force(group)
    add_verbosity(group)


def _add_switch(group: argparse._ArgumentGroup, flag: str, meaning: str) -> None:
    """Add a flag that, as in PECOS, may be used alone or with the value true or false."""
    group.add_argument(flag, nargs="?", const=True, default=False, type=truth, metavar="true/false", help=meaning)
