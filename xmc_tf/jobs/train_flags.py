"""The flags of ``xmc-tf train``: files, a table, an encoder and rankers; and which of them go together."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.process import cli
from xmc_tf.common.process.cli import GivenFlags, UsualFlags
from xmc_tf.common.regular import existing_file
from xmc_tf.jobs.language_column import languages_of_column
from xmc_tf.jobs.table_job import TableJob
from xmc_tf.models.linear.training import LinearOptions
from xmc_tf.params import (
    SEARCH,
    WITHOUT_EFFECT,
    HierarchicalKMeansParams,
    LinearLevelParams,
    MatcherParams,
    MatcherPredParams,
    PredictionOptions,
    RankerParams,
    TfidfParams,
    XRLinearParams,
    XTransformerParams,
    add_flags,
    add_trees,
    add_without_effect,
    from_arguments,
    options_of_flags,
    several_trees,
    truth,
)
from xmc_tf.params.tfidf import TFIDF_FLAGS
from xmc_tf.store.publishing import named_folder
from xmc_tf.tables.reading_flags import source_options
from xmc_tf.tables.store import TableStore
from xmc_tf.tables.table_flags import add_table_options, table_options

USUAL_FLAGS = UsualFlags(
    """Train a model that finds the labels of texts: in seconds, or with an encoder (XR-Transformer) in minutes.

    python -m xmc_tf.train data.csv -m model --report report
    python -m xmc_tf.train data.csv -m model --model-shortcut FOLDER-OR-HUB-NAME
    python -m xmc_tf.train -t X.trn.txt -y Y.trn.npz -m model --labels labels.txt""",
    {
        "a table (CSV, TSV, JSON lines, Parquet, SQLite)": {
            "TABLE": "texts and labels; settings are chosen on held-out rows",
            "--text-column": "text columns (default: guessed)",
            "--label-column": "label columns, joined (default: guessed)",
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
            "--vocabulary": "names of the labels from a SKOS vocabulary; alone: trains on them",
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


# Flags of parallel-BERT.
_EQUIVALENTS = {
    "-e": "--num-train-epochs", "--epoch": "--num-train-epochs", "--epochs": "--num-train-epochs",
    "-l": "--label-column", "--label": "--label-column", "--text": "--text-column", "--logfile": "2> FILE",
    "--here_gpus": "xmc-tf launch --np",
}  # fmt: skip
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

_OF_JOBS = ("minutes", "preponly", "data_set", "report", "keep_training_data", "language_column")
FILE_FLAGS = (
    "text_path", "feat_path", "label_path", "tst_text_path", "tst_feat_path", "tst_label_path", "labels", "vocabulary",
    "texts", "label_feat_path",
)  # fmt: skip
_FOR_TABLES = {
    "-t": "name the column of the texts with --text-column", "--vocabulary": "give the vocabulary as --names-file",
    "-f": "write the log to a file with 2> FILE (-f is --label-feat-path)",
}  # fmt: skip
_OF_ENCODERS = ("model_shortcut", "init_model_dir", "params_path", "train_params_path")
_OF_BOTH = {
    "table", "model_folder", "seed", "threads", "beam_size", "only_topk", "post_processor", "negative_sampling",
    "verbose_level", "layout", "trees", "effort", "probabilities", "label_names", "force", *_OF_JOBS,
}  # fmt: skip
_WITHOUT_EFFECT = {flag.strip("-").replace("-", "_") for flag in WITHOUT_EFFECT["train"]}
_TRUTH: dict[str, Any] = {"type": truth, "metavar": "true/false"}
_SWITCH: dict[str, Any] = {**_TRUTH, "nargs": "?", "const": True, "default": False}  # alone, or with a value


def parser() -> cli.Parser:
    out = cli.make_parser(
        "xmc_tf.train",
        _DESCRIPTION,
        usual=USUAL_FLAGS,
        equivalents=_EQUIVALENTS,
        usage="%(prog)s TABLE -m MODEL [options]\n       %(prog)s -t TEXTS -y LABELS -m MODEL [-x FEATURES] [options]",
    )
    _add_files(out)
    _add_tree(out.add_argument_group("label tree"))
    _add_encoder(out.add_argument_group("encoder and its fine-tuning"))
    group = out.add_argument_group("rankers")
    solver = ("solver_type", "Cp", "Cn", "bias", "eps", "max_iter", "threads")
    add_flags(group, "threshold", "max_nonzeros_per_label", *solver, of=LinearLevelParams)
    add_flags(group, "rel_mode", "rel_norm", of=RankerParams)
    add_flags(group, "embedding_weight", of=XTransformerParams)
    by_loss = "root_average if the head is trained with cross-entropy, else concat-only if there are rankers"
    add_flags(
        out.add_argument_group("prediction defaults"), "beam_size", "only_topk", "post_processor", of=PredictionOptions,
        ensemble_method={"default_text": by_loss},
    )  # fmt: skip
    add_flags(out.add_argument_group("TF-IDF (without -x)"), *TFIDF_FLAGS, of=TfidfParams)
    _add_running(out.add_argument_group("running"))
    add_without_effect(out, "train")
    _add_table(out)
    return out


def _add_files(out: argparse.ArgumentParser) -> None:
    group = out.add_argument_group("parameter files")
    add, of_all = group.add_argument, {"help": "print a parameter file with the defaults of all parameters"}
    add_flags(group, generate_params_skeleton=of_all)
    for block in ("train", "pred"):
        said = f"print a parameter file with the defaults of {block}_params"
        add(f"--generate-{block}-params-skeleton", action="store_true", help=said)
    add_flags(group, "params_path")
    for block in ("train", "pred"):
        add(f"--{block}-params-path", metavar="JSON", help=f"parameter file with {block}_params only")

    group = out.add_argument_group("data")
    add = group.add_argument
    add_flags(
        group, text_path={"also": ["--trn-text-path"], "help": "texts, one document per line"},
        feat_path={"also": ["--trn-feat-path"], "default_text": "TF-IDF of the texts"},
        label_path={"also": ["--trn-label-path"]},
        model_folder={"also": ["--model-dir"], "help": "folder to write the model to"},
    )  # fmt: skip
    add("-tt", "--tst-text-path", metavar="FILE", help="texts of held-out documents, for validation")
    said = "features of the held-out documents, if -x is given"
    add("-xt", "--tst-feat-path", nargs="+", metavar="FILE", help=said)
    add("-yt", "--tst-label-path", metavar="FILE", help="labels of the held-out documents")
    add_flags(group, "layout", "labels", "vocabulary", "probabilities", "label_names")
    add(
        "--texts", metavar="FILE", help="texts without labels, one per line: they show which words are rare, if no "
        "or few documents are labelled (with only --vocabulary or --labels, or a table whose labels have names)",
    )  # fmt: skip
    add("--text-only", action="store_true", help="train the rankers on embeddings only, without TF-IDF features")


def _add_tree(group: argparse._ArgumentGroup) -> None:
    said = "label tree for fine-tuning: a folder, or one matrix of labels × clusters"
    add_flags(group, "code_path", "label_feat_path", code_path={"help": said})
    said = "use the fine-tuning tree for the rankers too, instead of a new tree that is also built from embeddings"
    group.add_argument("--fix-clustering", **_SWITCH, help=said)
    shape = ("nr_splits", "min_codes", "max_leaf_size", "spherical", "kmeans_max_iter")
    add_flags(group, *shape, of=HierarchicalKMeansParams)
    add_trees(group, tables=True)


def _add_encoder(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--do-fine-tune", **_TRUTH, default=True, help="fine-tune the encoder")
    add(
        "--no-fine-tune", dest="do_fine_tune", action="store_false", default=argparse.SUPPRESS,
        help="use the pre-trained encoder without fine-tuning",
    )  # fmt: skip
    add("--only-encoder", **_SWITCH, help="do not train rankers")
    add_flags(group, "max_match_clusters", of=XTransformerParams)
    said = "factors by which to multiply the number of training steps: one for all levels, or one per level"
    add("--steps-scale", nargs="+", type=float, metavar="NUMBER", help=said)
    add_flags(group, "truncate_length", "long_texts", "max_windows", of=MatcherPredParams)
    names = ["negative_sampling", *(field.name for field in dataclasses.fields(MatcherParams))]
    names = [name for name in names if name != "threshold" and name not in _WITHOUT_EFFECT]  # that of the rankers
    add_flags(group, *names, of=MatcherParams, batch_size={"default": 32})
    add("--fp16", **_TRUTH, help="same as --mixed-precision fp16 (true) or off (false)")
    add(
        "--disable-gpu", dest="use_gpu", action="store_false", default=argparse.SUPPRESS,
        help="same as --use-gpu false",
    )  # fmt: skip
    said = "folder to write the embeddings of the training documents to (X.trn.npy, scaled to length 1)"
    add("--save-emb-dir", metavar="DIR", help=said)


def _add_running(group: argparse._ArgumentGroup) -> None:
    add_flags(group, "seed")
    group.add_argument("--logdir", metavar="DIR", help="folder for TensorBoard's log files")
    group.add_argument(
        "--work-dir", "--shared-workdir", metavar="DIR",
        help="folder for finished stages and checkpoints until the model is complete; all hosts must share it "
        "(default: MODEL.work)",
    )  # fmt: skip
    group.add_argument("--keep-work", action="store_true", help="keep the work folder when the model is complete")
    add_flags(group, "force", "verbose_level")


def _add_table(out: argparse.ArgumentParser) -> None:
    """Add the flags for the table and for training on it."""
    out.add_argument("table", nargs="?", metavar="TABLE", help="table of texts and labels, instead of -t and -y")
    group = out.add_argument_group("training on a table")
    add = group.add_argument
    add(
        "--minutes", type=float, metavar="NUMBER",
        help="target time for the whole training on two cores; if the estimate exceeds it, fewer settings are compared "
        "and the effort is lowered (the training is not stopped)",
    )  # fmt: skip
    add("-p", "--preponly", action="store_true", help="only prepare the data set of the table, without training")
    add("--report", metavar="DIR", help="folder to write a report to: one HTML page, with its data as JSON and CSV")
    add_flags(group, keep_training_data={"default": None, "default_text": "true for up to 20 MB"})
    add("--data-set", metavar="FILE", help="database of the data set (default: TABLE with the ending .sqlite)")
    add(
        "--language-column", metavar="NAME",
        help="column with the language code of each text, such as fi or fin; use it instead of --language",
    )  # fmt: skip
    add_table_options(out)


def refuse_job_flags(arguments: GivenFlags) -> None:
    """Raise an error for flags that need a table if there is none."""
    arguments.refuse(
        *_table_flags(), *_OF_JOBS, needs="a table", expected="a table before the flags",
        fix="python -m xmc_tf.train data.csv -m model",
    )  # fmt: skip


def _table_flags() -> list[str]:
    """Return the names of the flags for reading and splitting a table."""
    reader = argparse.ArgumentParser(add_help=False)
    add_table_options(reader)
    return [action.dest for action in reader._actions]


def table_job(arguments: GivenFlags, command: str) -> TableJob:
    """Return the job that a command line describes."""
    files = [name for name in FILE_FLAGS if name != "texts"]
    fix = _FOR_TABLES.get(" ".join(arguments.flags(*files)), "")
    arguments.refuse(*files, where="with a table", expected="texts and labels from one source", fix=fix)
    if TableStore.is_data_set(arguments.table):
        arguments.refuse(
            *_table_flags(), "data_set", where=f"with {arguments.table}, a data set: it has been read and divided",
            expected="the table that it was prepared from", fix="give the table, or leave the flags out",
        )  # fmt: skip
    if not arguments.model_folder and not arguments.preponly:
        raise InputError("-m is missing", expected="a folder for the model", fix="add -m model, or --preponly")
    return TableJob(
        Path(arguments.table), named_folder(arguments.model_folder or "."), table_options(arguments),
        None if arguments.data_set is None else Path(arguments.data_set), command,
        None if arguments.report is None else Path(arguments.report), arguments.minutes, frozenset(arguments.given),
        None if arguments.texts is None else existing_file(arguments.texts, "texts"),
    )  # fmt: skip


def read_language_column(arguments: GivenFlags) -> None:
    """Set --language to the languages in the column that --language-column names, if it is set."""
    if arguments.language_column is None:
        return
    arguments.at_most_one("language", "language_column")
    found = languages_of_column(Path(arguments.table), arguments.language_column, source_options(arguments))
    arguments.language = found  # as if it had been given


def has_encoder(arguments: GivenFlags) -> bool:
    """Return whether the command line specifies an encoder, directly or through its parameters."""
    return not arguments.given.isdisjoint(_OF_ENCODERS)


def refuse_search_flags(arguments: GivenFlags) -> None:
    """Raise an error for flags that do not apply to training an encoder on a table."""
    if arguments.keep_training_data:
        arguments.refuse("keep_training_data", where="with an encoder", fix="leave out this flag or the encoder")
    arguments.refuse(
        "code_path", "save_emb_dir", where="with a table", fix="train on files (-t, -y) instead",
        expected="texts and labels in files, where the order of lines numbers documents and labels",
    )  # fmt: skip
    arguments.refuse(
        "minutes", where="with an encoder: settings are compared for linear rankers only",
        fix="limit the training of an encoder with --max-steps or --num-train-epochs",
    )  # fmt: skip


def linear_options(arguments: GivenFlags, *further: str) -> LinearOptions:
    """Return the options of linear rankers; raise an error for flags that only apply to encoders, save ``further``."""
    linear = (TfidfParams, HierarchicalKMeansParams, LinearLevelParams, RankerParams)
    known = {field.name for cls in linear for field in dataclasses.fields(cls)}
    known |= _OF_BOTH | _WITHOUT_EFFECT | {*_table_flags(), *further}
    arguments.refuse(
        *(name for name in vars(arguments) if name not in known), needs="an encoder",
        expected="flags of linear rankers, because no encoder is given",
        fix="add --model-shortcut ENCODER to train an XR-Transformer, or leave them out",
    )  # fmt: skip
    arguments.at_most_one("trees", "effort", why="the effort chooses the trees")
    flags = arguments.only_given()
    if "negative_sampling" in arguments.given:
        flags.neg_mining_chain = arguments.negative_sampling
    params = XRLinearParams(
        ranker=from_arguments(RankerParams, flags),
        tree=several_trees(from_arguments(HierarchicalKMeansParams, flags), arguments.trees),
        tfidf=from_arguments(TfidfParams, flags),
    )
    return LinearOptions(
        params, options_of_flags(arguments, *SEARCH), arguments.effort, arguments.probabilities, arguments.label_names,
        arguments.keep_training_data, seed=arguments.seed, threads=arguments.threads,
    )  # fmt: skip
