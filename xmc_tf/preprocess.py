"""``python -m xmc_tf.preprocess build`` and ``run``: convert files to matrices, with PECOS's flags."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import whole
from xmc_tf.common.process import cli
from xmc_tf.common.regular import existing_file
from xmc_tf.data import LabelledText, TextFile, save_matrix
from xmc_tf.params import add_flags, add_without_effect, tfidf_of_pecos, truth, warn_without_effect
from xmc_tf.store.models import TFIDF
from xmc_tf.store.outputs import (
    FEATURES,
    LABELS,
    RELEVANCE,
    check_output_folder,
    check_output_path,
    refuse_same_outputs,
)

_LOG = logging.getLogger(__name__)
_DESCRIPTION = r"""Convert a file of documents, one per line with labels and text, to matrices of features and labels.

A line is "labels<TAB>text". Labels are line numbers of the label file, from 0, separated by commas:
    python -m xmc_tf.preprocess build -i train.txt -m vectorizer
    python -m xmc_tf.preprocess run -p vectorizer -i train.txt -l labels.txt -x X.trn.npz -y Y.trn.npz
    python -m xmc_tf.preprocess run -p vectorizer -i test.txt -l labels.txt -x X.tst.npz -y Y.tst.npz

The vectorizer is the TF-IDF of xmc_tf. It also splits words at punctuation, and adds 1 to each inverse document
frequency; its other defaults are PECOS's. xmc_tf.train and xmc_tf.linear.train read texts (-t) without this command."""


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser("xmc_tf.preprocess", _DESCRIPTION)
    commands = out.add_subparsers(dest="command", required=True, metavar="build|run")
    build = commands.add_parser("build", help="fit a vectorizer", formatter_class=cli.HelpFormatter)
    _add_text(build)
    config = build.add_mutually_exclusive_group()
    config.add_argument(
        "--vectorizer-config-path", metavar="JSON", help="file with a vectorizer configuration of PECOS"
    )
    config.add_argument(
        "--vectorizer-config-json", default='{"type": "tfidf", "kwargs": {}}', metavar="JSON",
        help="vectorizer configuration of PECOS, as JSON",
    )  # fmt: skip
    build.add_argument("-m", "--output-model-folder", required=True, metavar="DIR", help="folder of the vectorizer")
    add_flags(build, "threads")
    add_without_effect(build, "preprocess build")

    run = commands.add_parser("run", help="apply a vectorizer", formatter_class=cli.HelpFormatter)
    run.add_argument("-p", "--input-preprocessor-folder", required=True, metavar="DIR", help="folder of the vectorizer")
    _add_text(run)
    run.add_argument(
        "-x", "--output-inst-path", required=True, metavar="FILE", help="output file of the features, .npz"
    )
    run.add_argument("-l", "--label-text-path", metavar="FILE", help="label names, one per line; required by -y and -r")
    run.add_argument("-y", "--output-label-path", metavar="FILE", help="output file of the labels, .npz")
    run.add_argument("-r", "--output-rel-path", metavar="FILE", help="output file of the relevance of the labels, .npz")
    run.add_argument(
        "--label-pos", type=whole, default=0, metavar="INT", help="number of the field that contains the labels, from 0"
    )
    add_flags(run, "force", "threads")
    add_without_effect(run, "preprocess run")
    for command in (build, run):
        add_flags(command, "verbose_level")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Build a vectorizer, or apply one to texts."""
    arguments = parser().parse_args(argv)
    cli.set_verbosity(arguments.verbose_level)
    warn_without_effect(arguments, f"preprocess {arguments.command}")
    if arguments.command == "build":
        _build(arguments)
    else:
        _run(arguments)


def _add_text(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("-i", "--input-text-path", required=True, metavar="FILE", help="input file with one document per line")
    add("--text-pos", type=whole, default=1, metavar="INT", help="number of the field that contains the text, from 0")
    add(
        "--maxsplit", type=whole, default=-1, metavar="INT",
        help="maximum number of tabs at which to split a line, for texts that contain tabs; -1: no limit",
    )  # fmt: skip
    add(
        "--from-file", type=truth, default=False, metavar="true/false",
        help="lines are texts without other fields; the file is not loaded into memory; no effect with -y or -r",
    )  # fmt: skip


def _build(arguments: argparse.Namespace) -> None:
    folder = Path(arguments.output_model_folder)
    check_output_folder(
        "-m", folder, {"-i": arguments.input_text_path, "--vectorizer-config-path": arguments.vectorizer_config_path}
    )
    TFIDF.check_place(folder, "give another folder with -m", f"-m {folder}")
    texts = _texts(arguments)
    if path := arguments.vectorizer_config_path:
        params = tfidf_of_pecos(existing_file(path, "configuration").read_text("utf-8", "replace"), path, len(texts))
    else:
        params = tfidf_of_pecos(arguments.vectorizer_config_json, "--vectorizer-config-json", len(texts))
    from xmc_tf.features import Tfidf

    tfidf = Tfidf.fit(texts, params, threads=arguments.threads)
    tfidf.save(folder)
    _LOG.info("%s: %s features of %s documents", folder, f"{tfidf.nr_features:,}", f"{len(texts):,}")


def _run(arguments: argparse.Namespace) -> None:
    layout = LabelledText(arguments.text_pos, arguments.label_pos, arguments.maxsplit)
    outputs = {"-x": arguments.output_inst_path, "-y": arguments.output_label_path, "-r": arguments.output_rel_path}
    inputs = {
        "-i": arguments.input_text_path, "-l": arguments.label_text_path, "-p": arguments.input_preprocessor_folder,
    }  # fmt: skip
    marks = {"-x": FEATURES, "-y": LABELS, "-r": RELEVANCE}
    for flag, path in outputs.items():
        check_output_path(flag, path, inputs, [marks[flag]], force=arguments.force)
    refuse_same_outputs(outputs)
    wants_labels = arguments.output_label_path or arguments.output_rel_path
    if wants_labels and not arguments.label_text_path:
        raise InputError(
            "the number of labels is not known: -y and -r need -l", expected="a file with one line per label",
            fix="add -l labels.txt",
        )  # fmt: skip
    Y = R = None
    if wants_labels:
        nr_labels = len(TextFile(arguments.label_text_path, name="label names"))
        Y, R = layout.labels(arguments.input_text_path, nr_labels)
    arguments.from_file = arguments.from_file and not wants_labels  # as in PECOS: with labels, lines have fields
    texts = _texts(arguments)
    folder = Path(arguments.input_preprocessor_folder)
    if (folder / "config.json").exists() and not (folder / "params.json").exists():
        raise InputError(
            f"{folder} is a vectorizer of PECOS, which xmc_tf cannot read",
            expected="a folder written by python -m xmc_tf.preprocess build",
            fix="build it again with the same configuration (--vectorizer-config-path)",
        )
    from xmc_tf.features import Tfidf

    X = Tfidf.load(folder).transform(texts, threads=arguments.threads)
    for flag, matrix in (("-x", X), ("-y", Y), ("-r", R)):
        path = outputs[flag]
        if path and matrix is not None:
            save_matrix(path, matrix, any_name=True, mark=marks[flag])
            _LOG.info("%s: %s × %s", path, *(f"{n:,}" for n in matrix.shape))
    if arguments.output_rel_path and R is None:
        _LOG.warning("-r %s is not written: the labels have no relevance", arguments.output_rel_path)


def _texts(arguments: argparse.Namespace) -> TextFile | list[str]:
    if arguments.from_file:
        return TextFile(arguments.input_text_path)
    label_pos = getattr(arguments, "label_pos", 0)
    return LabelledText(arguments.text_pos, label_pos, arguments.maxsplit).texts(arguments.input_text_path)


if __name__ == "__main__":
    cli.run(main)
