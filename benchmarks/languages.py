"""Words, lemmas and pieces of words in several languages, beside Omikuji-Bonsai on the words of Annif's analyzers.

    python -m benchmarks.languages [--data DIR[:LANGUAGE] …] [--debian [LISTS]] [--field PYTHON] [--threads 2]

DIR holds X.trn.txt, X.tst.txt, Y.trn.npz, Y.tst.npz and, if the labels have names, labels.txt; LANGUAGE is a code such
as fi, found in the texts if it is missing. ``--debian`` makes data sets from Debian's translated descriptions of
packages, whose lists ``apt-get -o Acquire::Languages=de,fr,… update`` fetches. PYTHON has annif 1.4.3, omikuji 0.5.2
and simplemma; without it, only ours are run.

Ours are XR-Linear with ``effort="balanced"`` and, where labels have names, with them as evidence: with words as written
("words"), lemmas without pieces ("lemmas"), and the default. ``--also pieces=5,piece_weight=0.7`` adds a row with other
parameters of TF-IDF. With ``--export 2000``, each model is exported, and the SavedModel's answers for that many test
documents are compared with the model's. Omikuji-Bonsai reads the words of Annif's analyzers snowball and simplemma,
each where it has the language, or else the words as written, with the weights of our TF-IDF. With ``--held-out``,
training documents take the place of the test documents: settings are chosen so.

Prints one JSON line per data set, and a table: P@1, P@3 and P@5 in percent; training seconds by the clock and of all
processors, and the peak memory of the process that trains; milliseconds per text in a batch and one at a time, on one
thread. Ours begin with texts; Omikuji's figures begin with features, without the analyzer, whose seconds for all texts
are in a column of their own.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scipy.sparse import csr_matrix

from benchmarks.sides.corpora import read_corpus
from benchmarks.sides.debian_descriptions import LANGUAGES, read_packages, write_data
from tests.annif_backend.environment import annif_variables
from xmc_tf.data import load_matrix, save_matrix
from xmc_tf.features import Tfidf
from xmc_tf.metrics import format_table, measure
from xmc_tf.params import TfidfParams
from xmc_tf.words.languages import languages_of

_SIDES = Path(__file__).parent / "sides"
_ROOT = Path(__file__).parents[1]
_HELD_OUT, _WARM = 0.2, 500
WORDS = {"language": "none", "pieces": 0}
SNOWBALL = {
    "da": "danish", "de": "german", "en": "english", "es": "spanish", "fi": "finnish", "fr": "french",
    "hu": "hungarian", "it": "italian", "nl": "dutch", "pt": "portuguese", "ro": "romanian", "ru": "russian",
    "sv": "swedish",
}  # fmt: skip
"""Snowball's names of the languages that it has, by code."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=[], metavar="DIR[:LANGUAGE]", help="data sets")
    parser.add_argument("--debian", nargs="?", type=Path, const=Path("/var/lib/apt/lists"), metavar="LISTS")
    parser.add_argument("--languages", nargs="+", default=LANGUAGES, metavar="CODE", help="of --debian")
    parser.add_argument("--most", type=int, default=6000, help="maximum number of training documents (--debian)")
    parser.add_argument("--field", help="a Python that has annif, omikuji and simplemma")
    parser.add_argument("--analyzers", nargs="+", choices=("snowball", "simplemma"), default=("snowball", "simplemma"))
    parser.add_argument("--also", action="append", default=[], type=_parameters, metavar="NAME=VALUE,…")
    parser.add_argument("--only", nargs="+", metavar="ROW", help="of ours, run these alone: words, lemmas, default")
    parser.add_argument("--export", type=int, default=0, metavar="TEXTS", help="compare the SavedModel's answers")
    parser.add_argument("--held-out", action="store_true", help="test on training documents instead")
    parser.add_argument("--threads", type=int, default=2, help="for training (prediction: one)")
    a = parser.parse_args()
    if not a.data and not a.debian:
        parser.error("give --data, --debian or both")
    rows, warm = [], False
    with tempfile.TemporaryDirectory(prefix="xmc-tf-languages-") as work:
        for name, language, folder in _data_sets(a, Path(work)):
            if not warm:
                _warm(folder, Path(work))  # compiles the kernels, which are then in the cache
                warm = True
            results = _compared(name, language, folder, a)
            print(json.dumps({
                "figure": "languages", "data": name, "language": language, "held_out": a.held_out,
                "threads": a.threads, "documents": load_matrix(folder / "Y.trn.npz").shape[0], "results": results,
            }), flush=True)  # fmt: skip
            rows += [[name, row, *map(str, _cells(figures))] for row, figures in results.items()]
    columns = ["data", "features", "P@1/3/5", "train s", "CPU s", "MB", "ms in batch", "ms one", "analyzer s"]
    columns.append("SavedModel: texts / with other labels / score difference")
    print(format_table(columns, rows))


def _parameters(text: str) -> dict[str, Any]:
    """Return parameters of TF-IDF from "pieces=5,piece_weight=0.7"."""
    pairs = (pair.partition("=") for pair in text.split(","))
    out = {name: value if name == "language" else json.loads(value) for name, _, value in pairs}
    TfidfParams(**out)
    return out


def _data_sets(a: argparse.Namespace, work: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield name, language and folder of each data set."""
    for given in a.data:
        path, _, language = given.partition(":")
        texts, labels = read_corpus(Path(path), _HELD_OUT if a.held_out else 0.0)
        name = Path(path).name
        _write(work / name, texts, labels, Path(path) / "labels.txt")
        yield name, language or ",".join(languages_of(texts["trn"])) or "none", work / name
    if a.debian:
        packages = read_packages(a.debian)
        for language in a.languages:
            folder = work / f"debian-{language}"
            write_data(a.debian, packages, language, folder, most=a.most, held_out=a.held_out)
            yield folder.name, language.split("_")[0], folder


def _write(folder: Path, texts: dict[str, list[str]], labels: dict[str, csr_matrix], names: Path) -> None:
    """Write a data set."""
    folder.mkdir()
    for part in ("trn", "tst"):
        (folder / f"X.{part}.txt").write_text("".join(f"{text}\n" for text in texts[part]), "utf-8")
        save_matrix(folder / f"Y.{part}.npz", labels[part])
    if names.exists():
        (folder / "labels.txt").write_bytes(names.read_bytes())


def _warm(data: Path, work: Path) -> None:
    """Train on a few documents."""
    texts, labels = read_corpus(data)
    few = work / "few"
    first = {part: texts[part][:_WARM] for part in texts}
    _write(few, first, {part: labels[part][:_WARM] for part in labels}, data / "labels.txt")
    _ours({}, few, 1, work / "few.npz", 0)


def _compared(name: str, language: str, data: Path, a: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return the figures of all rows of a data set."""
    ours = {"words": WORDS, "lemmas": {"language": language, "pieces": 0}, "default": {}}
    ours = {row: params for row, params in ours.items() if not a.only or row in a.only}
    ours |= {json.dumps(params): {"language": language, **params} for params in a.also}
    results: dict[str, dict[str, Any]] = {}
    truth, out = load_matrix(data / "Y.tst.npz").tocsr(), data / "predicted.npz"
    for row, params in ours.items():
        print(f"{name}: {row} …", file=sys.stderr, flush=True)
        figures = _ours(params, data, a.threads, out, a.export)
        results[row] = {"P@1/3/5": _precision(truth, out), **figures}
    if a.field:
        known = {"snowball": SNOWBALL.get(language), "simplemma": language}
        chosen = {one: f"{one}({known[one]})" for one in a.analyzers if known[one]}
        for analyzer in [*chosen.values(), *([] if language in SNOWBALL else ["simple"])]:
            print(f"{name}: Omikuji-Bonsai, {analyzer} …", file=sys.stderr, flush=True)
            figures = _theirs(a.field, analyzer, data, a.threads, out)
            if figures:
                results[f"Omikuji-Bonsai, {analyzer}"] = {"P@1/3/5": _precision(truth, out), **figures}
    return results


def _ours(params: dict[str, Any], data: Path, threads: int, out: Path, exported: int) -> dict[str, Any]:
    """Train and predict in a process of its own."""
    side = [
        sys.executable, "-m", "benchmarks.sides.language_ours", data, json.dumps(params), threads, out, exported,
    ]  # fmt: skip
    return _last_line(side, dict(os.environ))


def _theirs(python: str, analyzer: str, data: Path, threads: int, out: Path) -> dict[str, Any]:
    """Train Omikuji on the words of an analyzer; return nothing if it does not have the language."""
    with tempfile.TemporaryDirectory(dir=data) as work:
        variables = {**annif_variables(Path(work)), "PYTHONPATH": ""}
        command = [python, _SIDES / "language_analyzer.py", analyzer, data, work]
        run = subprocess.run(list(map(str, command)), env=variables, capture_output=True, text=True)
        if run.returncode:
            print(f"{analyzer} left out: {run.stderr.strip().splitlines()[-1]}", file=sys.stderr, flush=True)
            return {}
        took = json.loads(run.stdout.splitlines()[-1])
        texts, labels = _read_parts(Path(work)), data
        tfidf = Tfidf.fit(texts["trn"], TfidfParams.plain())
        for part, lines in texts.items():
            save_matrix(Path(work) / f"X.{part}.npz", tfidf.transform(lines))
        side = [python, _SIDES / "field_side.py", "omikuji-bonsai", labels, work, threads, out]
        return {**_last_line(side, {**variables, "PYTHONPATH": ""}), **took}


def _read_parts(folder: Path) -> dict[str, list[str]]:
    """Return the texts of both parts."""
    return {
        part: (folder / f"X.{part}.txt").read_text("utf-8").removesuffix("\n").split("\n") for part in ("trn", "tst")
    }


def _last_line(command: list[Any], variables: dict[str, str]) -> dict[str, Any]:
    """Run a command and return the JSON object on the last line that it prints."""
    run = subprocess.run(list(map(str, command)), cwd=_ROOT, env=variables, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{command[1:]} failed:\n{run.stderr}")
    figures: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return figures


def _precision(truth: csr_matrix, predicted: Path) -> list[float]:
    """Return P@1, P@3 and P@5 in percent."""
    found, *_ = measure(truth, load_matrix(predicted).tocsr(), (1, 3, 5))
    return [round(100 * found.at("P", k), 2) for k in (1, 3, 5)]


def _cells(figures: dict[str, Any]) -> list[Any]:
    keys = ("train_s", "train_cpu_s", "train_peak_mb", "batch_ms_per_text", "one_p50_ms", "analyzer_s")
    served = [figures[key] for key in figures if key.startswith("saved_model")]
    return [
        "/".join(f"{value:.1f}" for value in figures["P@1/3/5"]), *(figures.get(key, "") for key in keys),
        " / ".join(f"{value:.3g}" for value in served),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
