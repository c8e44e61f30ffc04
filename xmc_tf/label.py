"""``python -m xmc_tf.label``: label texts on a local web page, with the suggestions of a model that learns."""

import contextlib
import socket
import webbrowser
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from xmc_tf.audit.corrections import check_texts, read_accepted
from xmc_tf.common.csv_cells import raw_cell, safe_cell
from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import whole
from xmc_tf.common.process import cli
from xmc_tf.data import TextFile, load_names
from xmc_tf.data.vocabularies import load_vocabulary
from xmc_tf.models.documents import documents_of_source, labelled_rows
from xmc_tf.models.loading import load
from xmc_tf.models.model import Model
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import add_flags
from xmc_tf.server.access import LOCAL, AllowedHosts
from xmc_tf.server.application import Application
from xmc_tf.server.connections import BACKLOG, address_of, bound_socket, require_server, serve
from xmc_tf.server.labelling.desk import Desk
from xmc_tf.server.labelling.learning import Learner
from xmc_tf.server.labelling.store import LabelStore
from xmc_tf.server.page.routes import HERE, LIMITS, ON_THIS_MACHINE, LocalPage, page_files
from xmc_tf.tables.columns import ColumnOptions
from xmc_tf.tables.reading.sources import open_source
from xmc_tf.tables.reading_flags import (
    add_label_options,
    add_reading_options,
    labelled_columns,
    refuse_without_table,
    source_options,
    text_columns,
)

_DESCRIPTION = """Label texts on a local web page: accept or reject a model's suggestions, and add labels by typing.

With a model, which must have kept its training data to learn from the answers:
    python -m xmc_tf.label texts.csv -m model
Without one: suggestions begin with the names of labels
    python -m xmc_tf.label texts.csv --vocabulary terms.ttl --language en
Decide on the findings of xmc-tf audit, in the table that was audited
    python -m xmc_tf.label data.csv -m model --audit audit/findings.csv

Each answer is kept at once in texts.labels.sqlite: stop at any time, and run the command again to go on. After
every few texts, the model learns from the answers, and shows next the texts that teach it most. Train on them with
    python -m xmc_tf.train texts.labels.sqlite -m new-model"""
_FILES = page_files(
    *(HERE.parent / "labelling" / name for name in ("label.html", "label.js", "label.css")),
    HERE / "page.css", HERE / "shared.js",
)  # fmt: skip


class LabelPage(LocalPage):
    """The page, which learns while it is served."""

    def __init__(self, desk: Desk, learner: Learner, allowed: AllowedHosts) -> None:
        super().__init__(_FILES, desk.gets, desk.posts, allowed)
        self._learner = learner

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with self._learner:
            yield


def parser() -> cli.Parser:
    out = cli.make_parser("xmc_tf.label", _DESCRIPTION, usage="%(prog)s TABLE [-m MODEL] [--vocabulary FILE] …")
    add = out.add_argument
    add("texts", metavar="TABLE", help="table of texts, such as CSV; or a .txt file with one text per line")
    add_flags(out, model_folder={"help": "folder of the model that suggests labels"})
    add("--vocabulary", metavar="FILE", help="SKOS vocabulary, whose concepts are the labels; with -m: their names")
    add("--labels", metavar="FILE", help="names of the labels, one per line; alternative names follow after tabs")
    add("--audit", metavar="FILE", help="findings.csv of xmc-tf audit, to accept or reject the labels of TABLE in it")
    add("--language", metavar="TAG", help="language of names in the vocabulary, such as en (default: the only one)")
    add(
        "-o",
        "--output",
        metavar="FILE",
        help="file of the answers (default: beside TABLE, such as texts.labels.sqlite)",
    )
    group = out.add_argument_group("page")
    add = group.add_argument
    add("-p", "--port", type=whole, default=8766, metavar="INT", help="port; 0: any free port")
    add("--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen on, for people at other machines")
    add("--allow-host", action="append", default=[], metavar="NAME", help="with --host: answer under this name too")
    add("--open", action="store_true", help="open the page in a browser")
    add_label_options(add_reading_options(out))
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Serve the page until Ctrl-C is pressed."""
    arguments = parser().parse_args(argv)
    arguments.at_most_one("vocabulary", "labels", why="names are those of one of them")
    if not arguments.vocabulary:
        arguments.refuse("language", needs="--vocabulary")
    if not arguments.model_folder:
        arguments.refuse("audit", needs="-m: the model that was audited")
    if not arguments.audit:
        arguments.refuse("label_column", "label_separator", needs="--audit")
    allowed = ON_THIS_MACHINE
    if arguments.host in LOCAL:
        arguments.refuse("allow_host", needs="--host")
    else:
        allowed = AllowedHosts([arguments.host, socket.gethostname()], arguments.allow_host)
    require_server()
    table = Path(arguments.texts)
    kind = "audit" if arguments.audit else "labels"
    output = Path(arguments.output or table.with_name(f"{table.stem}.{kind}.sqlite"))
    if arguments.audit:
        model, lines, uris = _model(arguments, [])
        store, texts = _audited(arguments, output, model)
        lines += sorted(store.labels() - set(model.names or ()))
    else:
        names, texts = _texts(arguments, table)
        model, lines, uris = _model(arguments, texts)
        store, known = LabelStore.open(output), model.trained_documents
        store.add_texts(names, texts, [False] * len(texts) if known is None else known.include(texts).tolist())
    if not store.nr_texts:
        raise InputError(f"{table} has no text", expected="one document per row", fix="check --text-column")
    model.explain(texts[0], 1)  # compiles what the first person would wait for
    only_names = model.metadata.content.get("nr_documents") == 0
    learner = Learner(model, store, lines if only_names else (), learns=not arguments.audit)
    desk = Desk(store, learner, lines, uris)
    bound = bound_socket(arguments.host, arguments.port)
    bound.listen(BACKLOG)
    print(f"{address_of(bound)}/   (press Ctrl-C to stop; the answers are in {output})", flush=True)
    if arguments.open:
        webbrowser.open(f"{address_of(bound)}/")
    serve(Application(LabelPage(desk, learner, allowed), LIMITS), bound)
    store.close()


def _texts(arguments: cli.GivenFlags, table: Path) -> tuple[list[str], list[str]]:
    """Return the names and the texts of documents."""
    if table.suffix == ".txt" and arguments.format is None:
        refuse_without_table(arguments)
        texts = list(TextFile(table))
        return [str(number) for number in range(1, len(texts) + 1)], texts
    options = ColumnOptions(text_columns(arguments))
    texts, _, _, names = documents_of_source(open_source(table, source_options(arguments)), options, labelled=False)
    return [str(name) for name in names], texts


def _model(arguments: cli.GivenFlags, texts: list[str]) -> tuple[Model, list[str], dict[str, str]]:
    """Return the model, all names of its labels, and identifiers of labels."""
    lines: list[str] = []
    uris: dict[str, str] = {}
    if arguments.vocabulary:
        concepts = load_vocabulary(arguments.vocabulary, arguments.language)
        lines, uris = [one.line for one in concepts], {one.names[0]: one.uri for one in concepts}
    elif arguments.labels:
        lines = load_names(arguments.labels)
    if not arguments.model_folder:
        if not lines:
            raise InputError("cannot tell which labels there are", expected="-m, --vocabulary or --labels",
                fix="add -m model, or --vocabulary terms.ttl to begin with the names of labels")  # fmt: skip
        return XRLinear.train(texts, names=lines), lines, uris
    model: Model = load(arguments.model_folder)
    names = model.names or list(map(str, range(model.nr_labels)))
    named = {line.split("\t")[0].strip(): line for line in lines}
    if lines and named.keys().isdisjoint(names):
        raise InputError(f"{arguments.vocabulary or arguments.labels} names no label of {arguments.model_folder}",
            expected="the names of the model's labels", received=", ".join(list(named)[:3]),
            fix="check --language, or leave the names out")  # fmt: skip
    return model, [named.get(name, name) for name in names], uris


def _audited(arguments: cli.GivenFlags, output: Path, model: Model) -> tuple[LabelStore, list[str]]:
    """Return the store of an audited table with its findings, and the texts of the table."""
    columns = labelled_columns(arguments, model.metadata.columns)
    texts, labels, names = labelled_rows(arguments.texts, source_options(arguments), columns, "shown")
    path = Path(arguments.audit)
    path = path / "findings.csv" if path.is_dir() else path
    corrections = read_accepted(path, every=True)
    check_texts(corrections, texts, path)
    findings: dict[int, dict[str, str]] = {}
    for one in corrections:
        label = next((name for name in labels[one.row] if safe_cell(name) == one.label), raw_cell(one.label))
        about = f"probably {'missing' if one.add else 'wrong'}"
        findings.setdefault(one.row, {})[label] = f"{about}: {one.why}" if one.why else about
    store = LabelStore.open(output)
    store.add_audited(names, texts, labels, findings)
    return store, texts


if __name__ == "__main__":
    cli.run(main)
