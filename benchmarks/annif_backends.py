"""Our backend of Annif against its own Omikuji backend: answers, time and memory of ``annif train`` and ``annif eval``.

    python -m benchmarks.annif_backends --data DIR [--language en] [--analyzer "snowball(english)"]
        [--only PROJECT …] [--annif PYTHON] [--threads 2] [--encoder FOLDER]

FOLDER is a pre-trained encoder, such as all-MiniLM-L6-v2: with it, one more project of our backend fine-tunes it. DIR
holds X.trn.txt, X.tst.txt, Y.trn.npz, Y.tst.npz and labels.txt; they become corpora and a vocabulary for Annif.
``--language fi --analyzer "simplemma(fi)"`` is what libraries use for Finnish. ``mllm`` matches the names of labels,
and ``mean`` is the ensemble that libraries run: the mean of Omikuji and MLLM, 2 to 1.
PYTHON has annif 1.4.3, omikuji 0.5.2 and our packages; without it, an environment with them is made in the cache.
Omikuji emulates Bonsai with the parameters of Annif's wiki and the analyzer; our backend has its defaults. All projects
have the wiki's ``limit=100``.

Prints a table and one JSON line: F1@5, nDCG and P@1/3/5 as ``annif eval`` prints them; seconds of the whole command
``annif train``, by the clock and of all processors; milliseconds per text of suggestions, one text at a time (as the
REST interface asks) and 32 at a time (as ``annif eval`` does), median by the clock and mean of the process, in turns;
peak memory of training and evaluation, and the part of it that is not files mapped into memory, which the system may
drop.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.sides.corpora import read_corpus
from benchmarks.sides.in_turns import Side
from tests.annif_backend.environment import annif_variables, make_environment
from xmc_tf.metrics import format_table

OMIKUJI = "omikuji==0.5.2"
OURS, ENCODER = "xmc_tf", "xmc_tf-encoder"
BONSAI, MLLM, MEAN = "omikuji", "mllm", "mean"
_SIDES = Path(__file__).parent / "sides"
_ROUNDS, _BATCH, _WARM = 10, 32, 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--language", default="en", help="of texts and labels")
    parser.add_argument("--analyzer", default="snowball(english)", help="Annif's analyzer of words")
    parser.add_argument("--only", nargs="+", default=[], help="the projects (default: all)")
    parser.add_argument("--annif", type=Path, help="a Python that has annif, omikuji and our packages")
    parser.add_argument("--threads", type=int, default=2, help="for training (suggestions: one)")
    parser.add_argument("--encoder", type=Path, help="folder of a pre-trained encoder")
    a = parser.parse_args()
    every = projects(a.analyzer, a.encoder)
    if unknown := set(a.only) - set(every):
        parser.error(f"unknown projects: {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    chosen = [name for name in every if not a.only or name in a.only]
    python = a.annif or make_environment(OMIKUJI) / "bin" / "python"
    with tempfile.TemporaryDirectory(prefix="xmc-tf-annif-") as work:
        annif = _Annif(python, Path(work), every, a.language)
        write_data(a.data, annif.folder)
        annif.run("load-vocab", "-L", a.language, "v", "vocabulary.tsv")
        # Compiles our kernels, which are then in the cache.
        annif.run("train", "-j", a.threads, OURS, "few.tsv")
        annif.run("eval", OURS, "few.tsv")
        if MEAN in chosen:
            chosen = [*(name for name in (BONSAI, MLLM) if name not in chosen), *chosen]
        results = {name: _commands(annif, name, a.threads) for name in chosen}
        for name, figures in _suggestions(annif, chosen).items():
            results[name] |= figures
    columns = list(dict.fromkeys(key for one in results.values() for key in one))
    rows = [[name, *(str(one.get(key, "")) for key in columns)] for name, one in results.items()]
    print(format_table(["", *columns], rows))
    ours = [name for name in (OURS, ENCODER) if name in results]
    others = [name for name in (BONSAI, MLLM, MEAN) if name in results]
    print(json.dumps({
        "figure": "annif_backends", "data": a.data.name, "threads": a.threads, "annif": "1.4.3", "omikuji": "0.5.2",
        "results": results,
        "ours_over": {name: {other: compared(results[name], results[other]) for other in others} for name in ours},
        "encoder_over_ours": compared(results[ENCODER], results[OURS]) if {ENCODER, OURS} <= set(results) else None,
        "aim": {"F1@5": "+0.015", "train": 5},
    }))  # fmt: skip


def projects(analyzer: str, encoder: Path | None) -> dict[str, str]:
    """Return the settings of each project of Annif."""
    words = f"analyzer={analyzer}"
    found = {
        OURS: "backend=xmc_tf", MLLM: f"backend=mllm\n{words}",
        BONSAI: f"backend=omikuji\n{words}\ncluster_balanced=False\ncluster_k=100\nmax_depth=3",
        MEAN: f"backend=ensemble\nsources={BONSAI}:2,{MLLM}:1",
    }  # fmt: skip
    return found if encoder is None else {**found, ENCODER: f"backend=xmc_tf\nencoder={encoder.absolute()}"}


class _Annif:
    """Annif's command in a folder with the projects."""

    def __init__(self, python: Path, folder: Path, projects: dict[str, str], language: str) -> None:
        # Not resolved: the link in an environment's folder is what tells Python its packages.
        self.python, self.folder, self.variables = Path(os.path.abspath(python)), folder, annif_variables(folder)
        common = f"language={language}\nvocab=v\nlimit=100\n"
        sections = [f"[{name}]\nname={name}\n{lines}\n{common}" for name, lines in projects.items()]
        (folder / "projects.cfg").write_text("\n".join(sections))

    def run(self, *arguments: Any) -> tuple[str, dict[str, float]]:
        """Return what the command printed, and its time and memory."""
        annif = [str(self.python), "-m", "annif.cli"]
        command = [sys.executable, str(_SIDES / "measured.py"), str(self.folder), *annif, *map(str, arguments)]
        print(f"annif {' '.join(map(str, arguments))} …", file=sys.stderr, flush=True)
        made = subprocess.run(command, cwd=self.folder, env=self.variables, capture_output=True, text=True)
        if made.returncode:
            sys.exit(made.stderr)
        return made.stdout, json.loads((self.folder / "0.json").read_text())


def write_data(data: Path, folder: Path) -> None:
    """Write a data set as Annif's corpora train.tsv, test.tsv and few.tsv, and a vocabulary."""
    texts, labels = read_corpus(data)
    names = (data / "labels.txt").read_text("utf-8").splitlines()
    uris = [f"<http://example.org/{number}>" for number in range(len(names))]
    preferred = [name.partition("\t")[0] for name in names]  # Annif's tables of vocabularies have no others
    lines = [f"{uri}\t{name}\n" for uri, name in zip(uris, preferred, strict=True)]
    (folder / "vocabulary.tsv").write_text("".join(lines), "utf-8")
    for part, file in (("trn", "train"), ("tst", "test")):
        Y = labels[part]
        rows = [" ".join(uris[one] for one in Y.indices[a:b]) for a, b in zip(Y.indptr, Y.indptr[1:], strict=False)]
        cleaned = [" ".join(text.split()) for text in texts[part]]
        lines = [f"{text}\t{row}\n" for text, row in zip(cleaned, rows, strict=True)]
        (folder / f"{file}.tsv").write_text("".join(lines), "utf-8")
        if part == "trn":
            (folder / "few.tsv").write_text("".join(lines[:_WARM]), "utf-8")
        else:
            (folder / "texts.txt").write_text("".join(f"{text}\n" for text in cleaned), "utf-8")


def _commands(annif: _Annif, name: str, threads: int) -> dict[str, Any]:
    """Return the figures of training and evaluation."""
    # A mean of other projects is not trained.
    train = annif.run("train", "-j", threads, name, "train.tsv")[1] if name != MEAN else None
    printed, measured = annif.run("eval", name, "test.tsv")

    def metric(label: str) -> float:
        found = re.search(rf"^{re.escape(label)}:\s+(\S+)", printed, re.MULTILINE)
        if found is None:
            sys.exit(f"annif eval printed no {label}:\n{printed}")
        return round(float(found[1]), 4)

    return {
        "F1@5": metric("F1@5"), "nDCG": metric("NDCG"), **{f"P@{k}": metric(f"Precision@{k}") for k in (1, 3, 5)},
        **({} if train is None else {
            "train_s": train["seconds"], "train_cpu_s": train["cpu_s"],
            "train_peak_mb": train["peak_mb"], "train_own_mb": train["own_mb"],
        }),
        "eval_s": measured["seconds"], "eval_cpu_s": measured["cpu_s"],
        "eval_peak_mb": measured["peak_mb"], "eval_own_mb": measured["own_mb"],
    }  # fmt: skip


def _suggestions(annif: _Annif, projects: list[str]) -> dict[str, dict[str, float]]:
    """Return milliseconds per text of each project, which take turns."""
    script = str(_SIDES / "annif_side.py")
    figures: dict[str, dict[str, float]] = {name: {} for name in projects}
    with ExitStack() as open_sides:
        previous = os.getcwd()
        os.chdir(annif.folder)  # where Annif looks for projects.cfg
        open_sides.callback(os.chdir, previous)
        sides = {}
        for name in projects:
            sides[name] = Side([str(annif.python), script, name, "texts.txt"], annif.variables)
            open_sides.callback(sides[name].close)
        for label, batch in (("one", 1), ("batch", _BATCH)):
            wall: dict[str, list[float]] = {name: [] for name in projects}
            own: dict[str, list[float]] = {name: [] for name in projects}
            for turn in range(_ROUNDS):
                for name, side in sides.items():
                    took = side.ask(turn=turn, batch=batch)
                    wall[name] += took["wall"]
                    own[name] += took["cpu"]
            for name in projects:
                figures[name][f"{label}_ms"] = round(1000 * statistics.median(wall[name]) / batch, 3)
                figures[name][f"{label}_cpu_ms"] = round(1000 * statistics.fmean(own[name]) / batch, 3)
    return figures


def compared(ours: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """Return differences of answers, and how many times less time and memory ours takes."""
    answers = {key: round(ours[key] - other[key], 4) for key in ("F1@5", "nDCG", "P@1", "P@3", "P@5")}
    return answers | {key: round(other[key] / ours[key], 2) for key in ours if key not in answers and key in other}


if __name__ == "__main__":
    main()
