"""``python -m xmc_tf.report.audit``: list the labels of a table that are probably missing or wrong."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from xmc_tf.audit import MOST
from xmc_tf.common.compiled import announce_compiling
from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import whole
from xmc_tf.common.process import cli
from xmc_tf.models.documents import labelled_rows
from xmc_tf.models.loading import load
from xmc_tf.params import add_flags
from xmc_tf.report.audit_files import AUDIT_FILES, FINDINGS, write_audit
from xmc_tf.report.writing import refuse_report
from xmc_tf.tables.label_cells import folded
from xmc_tf.tables.reading_flags import add_label_options, add_reading_options, labelled_columns, source_options

_DESCRIPTION = """List what is probably missing or wrong in the labels of a table, and why.

    python -m xmc_tf.report.audit data.csv -m model -o audit

The table may be the one that the model was trained on, because each document is checked by rankers that are trained
without it. There are five kinds of findings:

  missing      a label that the document probably should have
  wrong        a label that the document probably should not have
  duplicates   two documents with nearly the same text and different labels
  same labels  two labels whose texts do not differ
  silent name  a label whose name is in none of its texts

DIR/findings.csv has one row per finding, with its reason, probability and expected gain; DIR/audit.html shows them. To
accept findings of the kinds missing and wrong, write yes in the column accept, and correct the model:

    python -m xmc_tf.append data.csv -m model --accepted audit/findings.csv"""


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser("xmc_tf.report.audit", _DESCRIPTION)
    out.add_argument("table", metavar="TABLE", help="table of texts and labels")
    add_flags(out, model_folder={"required": True})
    add = out.add_argument
    add("-o", "--output", default="audit", metavar="DIR", help="folder for the findings")
    add("--most", type=whole, default=MOST, metavar="INT", help="maximum number of findings of each kind")
    add_flags(out, "threads")
    group = add_reading_options(out)
    add_label_options(group)
    group.add_argument(
        "--id-column", metavar="NAME",
        help="column of document names for the findings (default: id, uri or a similar name; else the row number)",
    )  # fmt: skip
    add_flags(out, "force", "verbose_level")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    cli.set_verbosity(arguments.verbose_level)
    announce_compiling()
    if arguments.most < 1:
        raise InputError(
            "--most is out of range", expected="a whole number of at least 1", received=str(arguments.most)
        )
    inputs = {"TABLE": arguments.table, "-m": arguments.model_folder}
    refuse_report("-o", arguments.output, inputs, force=arguments.force, files=AUDIT_FILES)
    model = load(Path(arguments.model_folder))
    columns = model.metadata.columns
    options = replace(labelled_columns(arguments, columns), ids=arguments.id_column)
    texts, labels, documents = labelled_rows(arguments.table, source_options(arguments), options, "checked")
    audit = model.audit(texts, labels, documents=documents, most=arguments.most, threads=arguments.threads)
    ids = {
        name: identifier
        for identifier, name in (columns.label_ids if columns else {}).items()
        if folded(identifier) != folded(name)
    }
    page = write_audit(audit, arguments.output, f"Labels of {Path(arguments.table).name}", ids)
    print(f"{page.with_name(FINDINGS)}: {audit}\n{page}")


if __name__ == "__main__":
    cli.run(main)
