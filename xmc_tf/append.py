"""``python -m xmc_tf.append``: append documents to a linear model without retraining it."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xmc_tf.audit.corrections import corrected_documents, read_accepted
from xmc_tf.common.compiled import announce_compiling
from xmc_tf.common.errors import InputError
from xmc_tf.common.process import cli
from xmc_tf.data import TextFile, load_matrix
from xmc_tf.models.documents import labelled_rows
from xmc_tf.models.incremental.documents import APPENDED, training_of
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import add_flags
from xmc_tf.store.outputs import claimed_model
from xmc_tf.tables.reading_flags import (
    add_label_options,
    add_reading_options,
    labelled_columns,
    refuse_without_table,
    source_options,
)

_SHOWN = 3
_DESCRIPTION = """Append documents to a linear model without training it again: only their labels' clusters change.

    python -m xmc_tf.append -m model new.csv
From files of texts and labels, to another folder:
    python -m xmc_tf.append -m model -t X.new.txt -y Y.new.npz -o model-2

Correct labels of the training documents with the findings of xmc-tf audit that a person has accepted:
    python -m xmc_tf.append -m model data.csv --accepted audit/findings.csv

The model must have kept its training data (--keep-training-data), as a model of a small table does by default. If
the command is interrupted, the model stays as it was.
The vocabulary, label tree and calibration stay the same: train again when about a tenth of the documents are new."""


def parser() -> cli.Parser:
    out = cli.make_parser("xmc_tf.append", _DESCRIPTION, usage="%(prog)s -m MODEL [TABLE | -t TEXTS -y LABELS]")
    out.add_argument("documents", nargs="?", metavar="TABLE", help="table of texts and labels, instead of -t and -y")
    add_flags(out, model_folder={"required": True})
    add_flags(out, "text_path", "label_path", "output")
    out.add_argument("--new-labels", action="store_true", help="also add labels that are new to the model")
    out.add_argument(
        "--exact", action="store_true",
        help="retrain each changed cluster on all its documents, as a full training does; slow if the documents "
        "change many clusters",
    )  # fmt: skip
    out.add_argument(
        "--accepted", metavar="FILE",
        help="findings.csv of xmc-tf audit: apply its accepted findings to the labels of TABLE, instead of "
        "appending the documents",
    )  # fmt: skip
    add_flags(out, "threads")
    add_label_options(add_reading_options(out))
    add_flags(out, "verbose_level")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Append or correct documents, and write the new model."""
    arguments = parser().parse_args(argv)
    cli.set_verbosity(arguments.verbose_level)
    announce_compiling()
    given = (bool(arguments.documents), bool(arguments.text_path), bool(arguments.label_path))
    if given not in ((True, False, False), (False, True, True)):
        raise InputError(
            "cannot tell which documents to append", expected="either a table, or both texts (-t) and labels (-y)",
            fix="python -m xmc_tf.append -m model new.csv",
        )  # fmt: skip
    if not arguments.documents:
        refuse_without_table(arguments, "label_column", "label_separator")
        arguments.refuse("accepted", needs="a table", expected="the table that was audited", fix="name it as TABLE")
    inputs = {
        "TABLE": arguments.documents,
        "--accepted": arguments.accepted,
        "-t": arguments.text_path,
        "-y": arguments.label_path,
    }
    # Locked before the model is read: what another run adds to it in the meantime would be lost.
    with claimed_model(arguments.model_folder, arguments.output, inputs) as folder:
        print(_appended(arguments, folder))


def _appended(arguments: argparse.Namespace, folder: Path) -> str:
    """Write the new model, and return what changed."""
    model = XRLinear.load(arguments.model_folder)
    texts, labels = _documents(arguments, model)
    if arguments.accepted:
        corrected = model.with_corrections(texts, labels, threads=arguments.threads)
        corrected.save(folder)
        changed = training_of(model).rows_that_differ(training_of(corrected))
        return f"{folder}: labels of {changed:,} documents corrected"
    grown = model.with_documents(
        texts, labels, new_labels=arguments.new_labels, exact=arguments.exact, threads=arguments.threads
    )
    if grown is not model or arguments.output is not None:
        grown.save(folder)
    before, now = (int(one.metadata.content.get(APPENDED, 0)) for one in (model, grown))
    done = f"{folder}: {now - before:,} documents appended; {grown.nr_labels:,} labels"
    if added := grown.nr_labels - model.nr_labels:
        names = [repr(name) for name in (grown.names or [])[model.nr_labels :][:_SHOWN]]
        some = ": " + ", ".join(names) + (", …" if added > len(names) else "") if names else ""
        done += f", {added:,} of them new{some}"  # the names reveal a wrong separator
    return done


def _documents(arguments: argparse.Namespace, model: XRLinear) -> tuple[Any, Any]:
    """Return the texts and labels to append or, with ``--accepted``, the documents to correct and all their labels."""
    if not arguments.documents:
        file = TextFile(arguments.text_path)
        file.check()
        return file, load_matrix(arguments.label_path, name="labels")
    options = labelled_columns(arguments, model.metadata.columns)
    texts, labels, _ = labelled_rows(arguments.documents, source_options(arguments), options, "appended")
    if arguments.accepted is None:
        return texts, labels
    rows, corrected = corrected_documents(read_accepted(arguments.accepted), texts, labels, arguments.accepted)
    if not rows:
        raise InputError(
            f"{arguments.accepted}: no finding is accepted", expected="yes in the column accept of some findings"
        )
    return [texts[row] for row in rows], corrected


if __name__ == "__main__":
    cli.run(main)
