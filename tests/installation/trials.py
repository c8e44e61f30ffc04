"""Commands as users type them, with the extras that each needs: with these it works, without them it names one."""

import json
import random
import shlex
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, save_npz

from tests.installation.environments import ROOT, Environment, packages

TOPICS = ("library", "kitchen", "harbour", "forest")


class Trial(NamedTuple):
    """A command line after ``xmc-tf``.

    Args:
        line: the arguments.
        needs: extras that it needs; "" is the core alone.
        shows: what it prints, with these.
        ends: its exit status, with these.
    """

    line: str
    needs: str = ""
    shows: str = ""
    ends: int = 0


# In this order: each leaves files for those below.
TRIALS = [
    Trial("train data.csv -m model --effort fast --report report --threads 1", shows="measured on 20 test documents"),
    Trial("predict data.csv --column text -m model -o labels.csv"),
    Trial("predict -m model -q 'word1 library'", shows="library"),
    Trial("evaluate data.csv -m model", shows="accuracy"),
    Trial("explain -m model 'word1 library'", shows="library"),
    Trial("runs data.sqlite", shows="XR-Linear"),
    Trial("report data.sqlite -m model -o another"),
    Trial("audit data.csv -m model -o audit"),
    Trial("show model", shows="library"),
    Trial("prepare data.csv -o prepared.sqlite", shows="200 documents"),
    Trial("check --model model", shows="intact"),
    Trial("plan --labels 3e6 --docs 2e6", shows="GB"),
    Trial("append new.csv -m model"),
    Trial("labels add new-labels.txt -m model -o more"),
    Trial("labels remove few-labels.txt -m model -o fewer"),
    Trial("linear train -t X.txt -y Y.npz -m linear --labels labels.txt"),
    Trial("linear predict -t X.txt -m linear -o P.npz"),
    Trial("linear evaluate -y Y.npz -p P.npz", shows="prec"),
    Trial("evaluate -y Y.npz -p P.npz", shows="accuracy"),
    Trial("preprocess build -i labelled.txt -m vectorizer"),
    Trial("sequences prepare clicks.csv -o histories", shows="8 items"),
    Trial("train data.csv -m m --model-shortcut some/name", "tf hub", "some/name", 2),
    Trial("train -t X.txt -y Y.npz -m m --model-shortcut some/name", "tf hub", "some/name", 2),
    Trial("predict -m hf://some/model -q library", "hub", "some/model", 2),
    Trial("prepare data.parquet -o parquet.sqlite", "tables", "200 documents"),
    Trial(
        "linear train -t X.txt -y Y.npz -m named --labels labels.txt --vocabulary subjects.ttl --language en", "skos"
    ),
    Trial("export -m model -o served/1", "tf"),
    Trial("serve model --port 0", "server"),
    Trial("try model --port 0", "server"),
    Trial("label X.txt -m model --port 0", "server"),
    Trial("launch --np 2 --controller mpi -m xmc_tf.linear.train -t X.txt -y Y.npz -m ranks", "mpi"),
    Trial(
        f"sequences train --config {ROOT}/configs/sasrec.toml --set data_dir=nothing --set model_dir=next",
        "tf",
        "nothing",
        2,
    ),
]


# Runs command lines in turn, and prints their exit statuses and what they printed. Servers are asked and stopped.
PROGRAM = """
import contextlib, io, json, re, subprocess, sys, traceback, urllib.error, urllib.request
from importlib import import_module
from xmc_tf.__main__ import MODULES
from xmc_tf.common.process import cli


def of_a_process(words):
    process = subprocess.Popen(
        [sys.executable, "-m", "xmc_tf", *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    printed = ""
    for line in process.stdout:
        printed += line
        if words[0] != "launch" and (url := re.search(r"http://[^ ]+", line)):
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(url[0]).read()
            process.terminate()
    code = process.wait()
    return 0 if code == 143 else code, printed  # as a signal stops it


def of_this_one(words):
    name = " ".join(words[:2]) if " ".join(words[:2]) in MODULES else words[0]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            module = MODULES[name]
            module += ".__main__" if hasattr(import_module(module), "__path__") else ""
            import_module(module).main(words[len(name.split()) :])
        except SystemExit as error:
            return error.code, f"{out.getvalue()}\\n{error}"
        except Exception as error:
            return cli._explain(error) or (1, traceback.format_exc())
    return 0, out.getvalue()


lines = json.loads(sys.argv[1])
processes = ("serve", "try", "label", "launch")
print(json.dumps([(of_a_process if words[0] in processes else of_this_one)(words) for words in lines]))
"""


def wrong(environment: Environment, extras: Iterable[str], folder: Path, env: Mapping[str, str]) -> list[str]:
    """Run all trials in a folder, and return what is wrong: one text for each command."""
    have = {package.metadata["Name"] for package in packages(extras)}
    lines = json.dumps([shlex.split(one.line) for one in TRIALS])
    printed = environment.run("python", "-c", PROGRAM, lines, cwd=folder, env=env).splitlines()[-1]
    found = []
    for trial, (code, text) in zip(TRIALS, json.loads(printed), strict=True):
        lacking = {one for one in trial.needs.split() if not {*names_of(one)} <= have}
        error = text[text.rfind("error: ") :].strip().splitlines()
        named = any(f"[{one}]" in error[-1] for one in lacking if error)
        # A part of an extra can suffice: another extra brings TensorFlow too.
        works = code == trial.ends and trial.shows in text
        if not works and not (code == 2 and named and len(error) <= 3):
            found.append(f"$ xmc-tf {trial.line}\n{text}\nended with {code}, without {', '.join(lacking) or 'need'}")
    return found


@cache
def names_of(extra: str) -> list[str]:
    return [package.metadata["Name"] for package in packages([extra])]


def write_inputs(folder: Path) -> None:
    """Write the files that the trials read."""
    draw = random.Random(0)
    rows = [(" ".join(f"word{draw.randrange(40)}" for _ in range(8)), draw.choice(TOPICS)) for _ in range(200)]
    table = "text,labels\n" + "".join(f"{text} {topic},{topic}\n" for text, topic in rows)
    files = {
        "data.csv": table,
        "new.csv": "text,labels\nnew words of a library,library\n",
        "X.txt": "".join(f"{text} {topic}\n" for text, topic in rows),
        "labelled.txt": "".join(f"{TOPICS.index(topic)}\t{text} {topic}\n" for text, topic in rows),
        "labels.txt": "".join(f"{topic}\n" for topic in TOPICS),
        "new-labels.txt": "orchard\n",
        "few-labels.txt": "forest\n",
        "clicks.csv": "user,item,time\n" + "".join(f"u{at % 20},i{draw.randrange(8)},{at}\n" for at in range(400)),
        "subjects.ttl": "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
        + "".join(f'<http://example.org/{topic}> a skos:Concept ; skos:prefLabel "{topic}"@en .\n' for topic in TOPICS),
    }
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    topics = [TOPICS.index(topic) for _, topic in rows]
    save_npz(folder / "Y.npz", csr_matrix((np.ones(200, np.float32), topics, np.arange(201)), shape=(200, len(TOPICS))))
    if find_spec("pyarrow"):
        import pyarrow.csv
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.csv.read_csv(folder / "data.csv"), folder / "data.parquet")
    else:
        (folder / "data.parquet").write_bytes(b"PAR1")
