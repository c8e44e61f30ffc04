"""The flags for training on a table."""

import argparse
import dataclasses
import logging
from collections import Counter
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.folders.placing import named_folder
from xmc_tf.common.process.cli import GivenFlags
from xmc_tf.jobs.train import TableJob
from xmc_tf.models.linear.training import LinearOptions
from xmc_tf.params import (
    SEARCH,
    WITHOUT_EFFECT,
    HierarchicalKMeansParams,
    LinearLevelParams,
    RankerParams,
    TfidfParams,
    XRLinearParams,
    add_keep_training_data,
    from_arguments,
    options_of_flags,
    several_trees,
)
from xmc_tf.tables.columns import place_of
from xmc_tf.tables.reading.options import SourceOptions
from xmc_tf.tables.reading.records import TableRow
from xmc_tf.tables.reading.sources import open_source
from xmc_tf.tables.reading_flags import source_options
from xmc_tf.tables.store import TableStore
from xmc_tf.tables.table_flags import add_table_options, table_options
from xmc_tf.words.languages import known_code

_LOG = logging.getLogger(__name__)
_FLAG = "--language-column NAME"
_LEAST_SHARE = 0.01  # of the rows; each dictionary costs memory, and may contain words of other languages
_SHOWN = 5


def languages_of_column(table: Path, column: str, options: SourceOptions) -> str:
    """Return the common language codes in a table column, most frequent first, in the format of ``--language``."""
    if table.is_file() and TableStore.is_data_set(table):
        raise InputError(
            f"{table} is a data set, which has no language column", fix="set the languages with --language"
        )
    source = open_source(table, options)
    at = place_of(source.name, source.columns, column, _FLAG)
    cells = (str(row.cells[at] or "") for row in source.records() if isinstance(row, TableRow))
    written = Counter(_first(cell) for cell in cells)
    counts: Counter[str] = Counter()
    for code, count in written.items():
        if (known := known_code(code)) is not None:
            counts[known] += count
    if not counts:
        raise InputError(
            f"{source.name}: column {column!r} contains no language codes", expected="codes such as fi, fin or en-GB",
            received=", ".join(repr(code) for code, _ in written.most_common(_SHOWN)),
            fix=f"name another column ({_FLAG}), or set the languages with --language",
        )  # fmt: skip
    least = _LEAST_SHARE * written.total()
    found = {code: count for code, count in counts.most_common() if count >= least or len(counts) == 1}
    listed = ", ".join(f"{code} ({count:,} rows)" for code, count in found.items())
    others = written.total() - sum(found.values())
    _LOG.info("languages: %s, from column %r; %s other rows", listed, column, f"{others:,}")
    return ",".join(found)


def _first(cell: str) -> str:
    """Return the first language code in a cell that may contain several."""
    for separator in ",;|/":
        cell = cell.replace(separator, " ")
    return next(iter(cell.split()), "")


_OF_JOBS = ("minutes", "preponly", "data_set", "report", "keep_training_data", "language_column")
FILE_FLAGS = {
    "trn_text_path": "-t", "trn_feat_path": "-x", "trn_label_path": "-y", "tst_text_path": "-tt",
    "tst_feat_path": "-xt", "tst_label_path": "-yt", "labels": "--labels", "vocabulary": "--vocabulary",
    "label_feat_path": "--label-feat-path",
}  # fmt: skip
_OF_ENCODERS = ("model_shortcut", "init_model_dir", "params_path", "train_params_path")
_OF_BOTH = {
    "table", "model_dir", "seed", "threads", "beam_size", "only_topk", "post_processor", "negative_sampling",
    "verbose_level", "layout", "trees", "effort", "probabilities", "label_names", "force", *_OF_JOBS,
}  # fmt: skip


def add_job_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the table and for training on it."""
    parser.add_argument("table", nargs="?", metavar="TABLE", help="table of texts and labels, instead of -t and -y")
    group = parser.add_argument_group("training on a table")
    add = group.add_argument
    add(
        "--minutes", type=float, metavar="NUMBER",
        help="target time for the whole training on two cores; if the estimate exceeds it, fewer settings are compared "
        "and the effort is lowered (the training is not stopped)",
    )  # fmt: skip
    add("--preponly", action="store_true", help="only prepare the data set of the table, without training")
    add("--report", metavar="DIR", help="folder to write a report to: one HTML page, with its data as JSON and CSV")
    add_keep_training_data(group, None)
    add("--data-set", metavar="FILE", help="database of the data set (default: TABLE with the ending .sqlite)")
    add(
        "--language-column", metavar="NAME",
        help="column with the language code of each text, such as fi or fin; use it instead of --language",
    )  # fmt: skip
    add_table_options(parser)


def refuse_job_flags(arguments: GivenFlags) -> None:
    """Raise an error for flags that need a table if there is none."""
    reader = argparse.ArgumentParser(add_help=False)
    add_table_options(reader)
    of_tables = {action.dest: action.option_strings[0] for action in reader._actions}
    of_tables |= {name: f"--{name.replace('_', '-')}" for name in _OF_JOBS}
    if found := [of_tables[name] for name in of_tables if name in arguments.given]:
        raise InputError(
            f"{', '.join(found)} can only be used with a table", expected="a table before the flags",
            fix="python -m xmc_tf.train data.csv -m model",
        )  # fmt: skip


def table_job(arguments: GivenFlags, command: str) -> TableJob:
    """Return the job that a command line describes."""
    if found := [flag for name, flag in FILE_FLAGS.items() if name in arguments.given]:
        raise InputError(
            f"a table and {', '.join(found)} are mutually exclusive", expected="texts and labels from one source",
            fix="give the vocabulary as --names-file"
            if found == ["--vocabulary"]
            else f"leave out {', '.join(found)}, or the table",
        )  # fmt: skip
    if not arguments.model_dir and not arguments.preponly:
        raise InputError("-m is missing", expected="a folder for the model", fix="add -m model, or --preponly")
    return TableJob(
        Path(arguments.table), named_folder(arguments.model_dir or "."), table_options(arguments),
        None if arguments.data_set is None else Path(arguments.data_set), command,
        None if arguments.report is None else Path(arguments.report), arguments.minutes, frozenset(arguments.given),
    )  # fmt: skip


def read_language_column(arguments: GivenFlags) -> None:
    """Set --language to the languages in the column that --language-column names, if it is set."""
    if arguments.language_column is None:
        return
    if "language" in arguments.given:
        raise InputError("--language and --language-column are mutually exclusive", fix="leave one of them out")
    found = languages_of_column(Path(arguments.table), arguments.language_column, source_options(arguments))
    arguments.language = found  # as if it had been given


def has_encoder(arguments: GivenFlags) -> bool:
    """Return whether the command line specifies an encoder, directly or through its parameters."""
    return not arguments.given.isdisjoint(_OF_ENCODERS)


def refuse_search_flags(arguments: GivenFlags) -> None:
    """Raise an error for flags that do not apply to training an encoder on a table."""
    if arguments.keep_training_data:
        raise InputError(
            "--keep-training-data cannot be used with an encoder", fix="leave out this flag or the encoder"
        )
    of_files = {"--code-path": arguments.code_path, "--save-emb-dir": arguments.save_emb_dir}
    if found := [flag for flag, value in of_files.items() if value is not None]:
        raise InputError(
            f"{', '.join(found)} cannot be used with a table",
            expected="texts and labels in files, where the order of lines numbers documents and labels",
            fix="train on files (-t, -y) instead",
        )
    if arguments.minutes is not None:
        raise InputError(
            "--minutes: settings are compared for linear rankers only", expected="no --minutes with --model-shortcut",
            fix="limit the training of an encoder with --max-steps or --num-train-epochs",
        )  # fmt: skip


def linear_options(arguments: GivenFlags) -> LinearOptions:
    """Return the options of linear rankers; raise an error for flags that only apply to encoders."""
    linear = (TfidfParams, HierarchicalKMeansParams, LinearLevelParams, RankerParams)
    known = {field.name for cls in linear for field in dataclasses.fields(cls)} | _OF_BOTH
    reader = argparse.ArgumentParser(add_help=False)
    add_table_options(reader)
    known |= {action.dest for action in reader._actions}
    known |= {flag.strip("-").replace("-", "_") for flag in WITHOUT_EFFECT["train"]}
    if others := [f"--{name.replace('_', '-')}" for name in vars(arguments) if name in arguments.given - known]:
        raise InputError(
            f"{', '.join(others)} can only be used with an encoder",
            expected="flags of linear rankers, because no encoder is given",
            fix="add --model-shortcut ENCODER to train an XR-Transformer, or leave them out",
        )
    if {"trees", "effort"} <= arguments.given:
        raise InputError(
            "--trees and --effort are mutually exclusive: the effort chooses the trees", fix="leave one of them out"
        )
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
