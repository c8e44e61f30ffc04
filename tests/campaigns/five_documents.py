"""Follow the documents of five other systems with our commands, step by step, and print which steps work.

    python -m tests.campaigns.five_documents
    python -m tests.campaigns.five_documents --documents TorchRec "Parallel BERT" --on "2 MPI" --short

Each step is a command or a script as a reader of that document would write it, with a check of its result. It runs in
one process, on two ranks over Gloo, and on two over MPI.
"""

import argparse
import csv
import io
import json
import random
import re
import shutil
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests.distributed import launch
from tests.distributed.launch import REPOSITORY, LaunchError, Run, horovodrun, mpiexec, python
from tests.distributed.warm import warm
from tests.docs.page_blocks import module_of
from tests.files import contents
from tests.pipeline.corpus import published_for, texts_and_labels, write_corpus, write_encoder
from tests.sequences.chains import markov_table
from xmc_tf import XTransformer
from xmc_tf.data import load_matrix
from xmc_tf.tables.runs import runs_of
from xmc_tf.tables.store import TableStore

WAYS: dict[str, Callable[..., Run]] = {
    "one process": partial(python, imported=True),
    "2 Gloo": partial(horovodrun, world=2),
    "2 MPI": partial(mpiexec, world=2, imported=True),
}
EXAMPLES = REPOSITORY / "examples"
XR_TRANSFORMER, TUTORIAL = "PECOS, distributed XR-Transformer", "PECOS, tutorial"
TORCHREC, PARALLEL_BERT, DEEPREC = "TorchRec", "Parallel BERT", "DeepRec"
WORDS = {"left": "library kitchen harbour", "right": "forest theatre", "neutral": "station garden museum"}


class Reader:
    """Somebody who follows a document in a folder, and starts programs in one of the ways."""

    def __init__(self, way: str, folder: Path) -> None:
        self.way, self.folder = way, folder
        self.ranks = 1 if way == "one process" else 2
        self.controller = "mpi" if way == "2 MPI" else "gloo"

    def start(self, program: str | Path, *words: object) -> str:
        """Run a program on all ranks, and return what rank 0 prints."""
        return WAYS[self.way](program, *map(str, words), timeout=300).ranks[0].output

    def launched(self, *words: object) -> str:
        """Run a program by our launcher, and return what it prints."""
        flags = ["--controller", self.controller, "--timeout", 300, *words]
        return python("module:xmc_tf.launch", *map(str, flags), timeout=300).ranks[0].output

    def command(self, module: str, *words: object) -> str:
        """Run a command that has one process in each of the ways, and return what it prints."""
        with redirect_stdout(io.StringIO()) as out:
            module_of(module).main([str(word) for word in words])
        return out.getvalue()


@dataclass(frozen=True)
class Step:
    """A step of a document."""

    document: str
    name: str
    follow: Callable[[Reader], None]  # raises an error if the step does not show what it must
    ways: Sequence[str]
    long: bool


STEPS: list[Step] = []


def step(document: str, name: str, ways: Sequence[str] = tuple(WAYS), *, long: bool = False) -> Callable[..., None]:
    def add(follow: Callable[[Reader], None]) -> None:
        STEPS.append(Step(document, name, follow, ways, long))

    return add


def precision(text: str) -> float:
    """Return the P@1 of PECOS's lines of precision and recall, between 0 and 1."""
    return float(re.search(r"prec\s+=\s+([\d.]+)", text)[1]) / 100  # type: ignore[index]


# PECOS, pecos/distributed/xmc/xtransformer/README.md


@step(XR_TRANSFORMER, "test the connectivity of the cluster")
def _(reader: Reader) -> None:
    write_corpus(reader.folder)
    said = reader.start("module:xmc_tf.check", "--timeout", 60, "--shared-workdir", reader.folder)
    assert f"{reader.ranks} rank" in said
    assert "all ranks" in said or reader.ranks == 1


@step(XR_TRANSFORMER, "the same, with a hostfile", long=True)
def _(reader: Reader) -> None:
    (reader.folder / "hostfile").write_text(f"localhost slots={reader.ranks}\n")
    hosts = ["--hostfile", reader.folder / "hostfile"]
    said = reader.launched(*hosts, "-m", "xmc_tf.check", "--timeout", 60, "--shared-workdir", reader.folder)
    assert f"{reader.ranks} rank" in said


@step(XR_TRANSFORMER, "generate params.json, and edit it")
def _(reader: Reader) -> None:
    held = json.loads(reader.command("xmc_tf.train", "--generate-params-skeleton"))
    level = {"model_shortcut": str(reader.folder / "encoder"), "max_steps": 4, "batch_size": 8}
    held["train_params"]["matcher_params_chain"] |= level
    held["train_params"]["refined_indexer_params"] |= {"nr_splits": 4, "max_leaf_size": 6}
    held["pred_params"]["matcher_params_chain"] |= {"truncate_length": 16}
    (reader.folder / "params.json").write_text(json.dumps(held))


@step(XR_TRANSFORMER, "train with --code-path and --params-path")
def _(reader: Reader) -> None:
    at = reader.folder
    reader.start(
        "module:xmc_tf.train", "--trn-text-path", at / "X.trn.txt", "--trn-label-path", at / "Y.trn.npz",
        "--code-path", at / "C.npz", "--model-dir", at / "model", "--params-path", at / "params.json",
    )  # fmt: skip
    texts, Y = texts_and_labels(at, "tst")
    best = XTransformer.load(at / "model").predict(texts).indices.reshape(len(texts), -1)[:, 0]
    assert np.mean(np.asarray(Y[np.arange(len(texts)), best])) > 0.9


@step(XR_TRANSFORMER, "encode, in a shard for each rank")
def _(reader: Reader) -> None:
    at = reader.folder
    (at / "encoded").mkdir()
    reader.start("module:xmc_tf.encode", "-t", at / "X.tst.txt", "-m", at / "model", "-o", at / "encoded")
    shards = ["embeddings.npy"] if reader.ranks == 1 else [f"X.emb.{rank}.npy" for rank in range(reader.ranks)]
    assert sorted(path.name for path in (at / "encoded").glob("*.npy")) == sorted(shards)
    found = np.concatenate([np.load(at / "encoded" / name) for name in shards])
    expected = XTransformer.load(at / "model").encode(texts_and_labels(at, "tst")[0])
    np.testing.assert_allclose(found, expected, atol=1e-5)


# PECOS, the tutorial of XR-Transformer and of distributed XR-Linear


@step(TUTORIAL, "train from the command line with published parameters (2)")
def _(reader: Reader) -> None:
    at = write_corpus(reader.folder)
    held = published_for(at)
    own = at / "my_pre_trained_model"  # as TransformerMatcher.load takes it
    for part in ("text_tokenizer", "text_encoder"):
        shutil.copytree(at / "encoder", own / part)
    held["train_params"]["matcher_params_chain"][0]["init_model_dir"] = str(own)
    (at / "params.json").write_text(json.dumps(held))
    data = ["-t", at / "X.trn.txt", "-x", at / "X.trn.npz", "-y", at / "Y.trn.npz"]
    held_out = ["-tt", at / "X.tst.txt", "-xt", at / "X.tst.npz", "-yt", at / "Y.tst.npz", "--layout", "pecos"]
    said = reader.start(
        "module:xmc_tf.train", *data, *held_out, "-m", at / "model", "--params-path", at / "params.json"
    )
    assert precision(said) > 0.9


@step(TUTORIAL, "label tree, pre-trained and fine-tuned encoder in Python (2.1 to 2.3)")
def _(reader: Reader) -> None:
    found = json.loads(reader.start("tutorial_notebook.py", reader.folder).splitlines()[-1])
    assert found["tree"][-1] == 24
    assert found["pre-trained"] > 0.9
    assert found["fine-tuned"] > 0.9


@step(TUTORIAL, "mpiexec -n 2 python -m mpi4py.bench helloworld", ["2 MPI"])
def _(reader: Reader) -> None:
    assert "I am process 0 of 2" in reader.start("module:mpi4py.bench", "helloworld")


@step(TUTORIAL, "train XR-Linear on all ranks")
def _(reader: Reader) -> None:
    at = reader.folder
    data = ["-x", at / "X.trn.npz", "-y", at / "Y.trn.npz"]
    reader.start("module:xmc_tf.linear.train", *data, "-m", at / "linear")
    reader.command("xmc_tf.linear.train", *data, "-m", at / "linear-of-one-process")
    assert contents(at / "linear") == contents(at / "linear-of-one-process")


@step(TUTORIAL, "predict and evaluate with XR-Linear")
def _(reader: Reader) -> None:
    at = reader.folder
    data = ["-x", at / "X.tst.npz", "-y", at / "Y.tst.npz", "-m", at / "linear"]
    assert precision(reader.command("xmc_tf.linear.predict", *data, "--layout", "pecos")) > 0.9


@step(TUTORIAL, "sub-trees and simpler label embeddings above them")
def _(reader: Reader) -> None:
    at = reader.folder
    data = ["-x", at / "X.trn.npz", "-y", at / "Y.trn.npz", "-m", at / "meta", "--max-leaf-size", 4]
    reader.start("module:xmc_tf.linear.train", *data, "--min-n-sub-tree", 4, "--meta-label-embedding-method", "pii")
    assert load_matrix(at / "meta" / "tree" / "C0.npz").shape[0] >= 4


# Distributed training using TorchRec, on Goodreads


@step(TORCHREC, "preprocess the interactions, as config.toml says")
def _(reader: Reader) -> None:
    at = reader.folder
    table = markov_table(at / "interactions.csv", users=200, length=9, items=23)
    (at / "config.toml").write_text(
        f'data_dir = "{at / "data"}"\ntrain_data = "part_*"\neval_data = "part_*"\n'
        "n_heads = 2\nn_layers = 1\nembed_dim = 8\nmax_len = 8\nsliding_step = 4\nmask_prob = 0.3\n"
        f"per_device_train_batch_size = {24 // reader.ranks}\nper_device_eval_batch_size = 32\nnum_workers = 1\n"
        "n_epochs = 40\nmax_steps = 50\nlearning_rate = 0.05\ndropout = 0.0\npatience = 0\nseed = 1\n"
        f'[prepare]\ntables = ["{table}"]\noutput = "{at / "data"}"\nmax_user_count = 200\n'
    )
    reader.command("xmc_tf.sequences.prepare", at / "config.toml")
    reader.command("xmc_tf.sequences.prepare", table, "-o", at / "by-flags", "--max-user-count", 200)
    assert contents(at / "data") == contents(at / "by-flags")


def _trained_sequences(reader: Reader, parallel: str) -> dict[str, float]:
    at = reader.folder
    options = [f"model_dir={at / parallel}", f"model_parallel={parallel}"]
    flags = [word for one in options for word in ("--set", one)]
    reader.start("module:xmc_tf.sequences.train", "--config", at / "config.toml", *flags)
    return dict(json.loads((at / parallel / "params.json").read_text())["metrics"]["test"])


@step(TORCHREC, "train BERT4Rec with model_parallel = true")
def _(reader: Reader) -> None:
    assert _trained_sequences(reader, "true")["Recall@10"] > 0.55  # of any ten items: 10 / 23


@step(TORCHREC, "the same with model_parallel = false")
def _(reader: Reader) -> None:
    found = _trained_sequences(reader, "false")
    expected = json.loads((reader.folder / "true" / "params.json").read_text())["metrics"]["test"]
    for name, value in expected.items():
        assert abs(found[name] - value) < 1e-3, f"{name}: {found[name]} instead of {value}"


# Parallel BERT


def _bert(reader: Reader, model: str) -> list[object]:
    at = reader.folder
    flags = ["--num-train-epochs", 2, "--truncate-length", 16, "--learning-rate", 0.01]
    return [at / "leanings.sqlite", "-m", at / model, "--model-shortcut", at / "encoder", *flags]


@step(PARALLEL_BERT, "--preponly: CSV file to SQLite")
def _(reader: Reader) -> None:
    at, draw = reader.folder, random.Random(0)
    write_encoder(at / "encoder")
    rows = [(" ".join(draw.choices(WORDS[label].split(), k=6)) + f" {n}", label) for n in range(40) for label in WORDS]
    with (at / "leanings.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    assert "120 documents" in reader.command("xmc_tf.train", at / "leanings.csv", "--preponly")
    assert TableStore.open(at / "leanings.sqlite").count("test") == 12
    keys = f'table = "{at / "leanings.csv"}"\noutput = "{at / "configured.sqlite"}"\ntext_column = ["text"]\n'
    (at / "prepare.toml").write_text(keys)
    assert "120 documents" in reader.command("xmc_tf.prepare", at / "prepare.toml")


@step(PARALLEL_BERT, "train BERT from SQLite")
def _(reader: Reader) -> None:
    said = reader.start("module:xmc_tf.train", *_bert(reader, "bert"), "--report", reader.folder / "report")
    assert "measured on 12 test documents" in said
    (run,) = runs_of(TableStore.open(reader.folder / "leanings.sqlite"))
    assert run.metrics["accuracy"] > 0.9


@step(PARALLEL_BERT, "a second training tokenizes nothing")
def _(reader: Reader) -> None:
    said = reader.start("module:xmc_tf.train", *_bert(reader, "bert-2"))
    assert "no text was tokenized" in said
    first, second = runs_of(TableStore.open(reader.folder / "leanings.sqlite"))
    assert first.metrics == second.metrics


@step(PARALLEL_BERT, "token folding: long texts become several rows")
def _(reader: Reader) -> None:
    windows = ["--long-texts", "max", "--max-windows", 3, "--truncate-length", 5]
    assert "read in several windows each" in reader.start("module:xmc_tf.train", *_bert(reader, "folded"), *windows)


@step(PARALLEL_BERT, "the same table without an encoder")
def _(reader: Reader) -> None:
    said = reader.start("module:xmc_tf.train", reader.folder / "leanings.sqlite", "-m", reader.folder / "linear")
    assert "measured on 12 test documents" in said


@step(PARALLEL_BERT, "predictions, statistics, comparison, confusion matrix")
def _(reader: Reader) -> None:
    at = reader.folder
    written = at / "leanings_testset_predictions.csv"
    reader.command("xmc_tf.runs", at / "leanings.sqlite", "predictions", 1, "-o", written)
    with written.open(newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 12
    (shown,) = json.loads(reader.command("xmc_tf.runs", at / "leanings.sqlite", "show", 1, "--json"))
    assert shown["metrics"]["accuracy"] > 0.9
    assert "accuracy" in reader.command("xmc_tf.runs", at / "leanings.sqlite", "compare", 1, 2)
    confusion = json.loads((at / "report" / "report.json").read_text(encoding="utf-8"))["confusion"]
    assert np.sum(confusion["matrix"]) == 12


@step(PARALLEL_BERT, "launch.py on one machine (--here_gpus)", long=True)
def _(reader: Reader) -> None:
    said = reader.launched("--np", reader.ranks, "-m", "xmc_tf.train", *_bert(reader, "here"))
    assert "measured on 12 test documents" in said


@step(PARALLEL_BERT, "a JSON file of GPUs per host", long=True)
def _(reader: Reader) -> None:
    (reader.folder / "hosts.json").write_text(json.dumps({"localhost": reader.ranks}))
    hosts = ["--hosts", reader.folder / "hosts.json"]
    said = reader.launched(*hosts, "-m", "xmc_tf.train", *_bert(reader, "hosts"))
    assert "measured on 12 test documents" in said


@step(PARALLEL_BERT, "two machines, each started by hand (--node_rank, --master_addr)", ["2 Gloo", "2 MPI"], long=True)
def _(reader: Reader) -> None:
    """Both are this machine."""
    secret = reader.folder / "secret"
    secret.touch(0o600)
    secret.write_text("a secret of both machines\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = ["--np", 1, "--nodes", 2, "--master-addr", "127.0.0.1", "--master-port", port, "--secret-file", secret]

    def node(number: int) -> str:
        return reader.launched(*flags, "--node-rank", number, "-m", "xmc_tf.train", *_bert(reader, "nodes"))

    with ThreadPoolExecutor() as pool:
        master, other = pool.map(node, range(2))
    assert "measured on 12 test documents" in master
    assert "the run has ended with status 0" in other


# DeepRec, CollectiveStrategy


@step(DEEPREC, "MonitoredTrainingSession")
def _(reader: Reader) -> None:
    said = reader.start(EXAMPLES / "collective" / "deeprec_session.py")
    losses = [float(loss) for loss in re.search(r"losses: (.*)", said)[1].split(",")]  # type: ignore[index]
    assert losses[0] == 36
    assert losses == sorted(losses, reverse=True)


@step(DEEPREC, "estimator: train, evaluate, export_saved_model")
def _(reader: Reader) -> None:
    said = reader.start(EXAMPLES / "movielens.py", reader.folder / "ratings")
    assert float(re.search(r"'mae': ([\d.]+)", said)[1]) < 0.5  # type: ignore[index]
    served = tf.saved_model.load(str(reader.folder / "ratings" / "served" / "1")).signatures["serving_default"]
    rating = served(user_id=tf.constant([3], tf.int64), movie_id=tf.constant([5], tf.int64))["rating"]
    assert rating.shape == (1, 1)


DOCUMENTS = tuple(dict.fromkeys(one.document for one in STEPS))


def followed(document: str, way: str, folder: Path, *, short: bool) -> dict[str, str]:
    """Follow a document, and return the result of each step: "works", or why not."""
    reader, found = Reader(way, folder), {}
    for one in STEPS:
        if one.document != document or way not in one.ways or (short and one.long):
            continue
        began = time.monotonic()
        try:
            one.follow(reader)
            found[one.name] = "works"
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever it is, it is in the table
            found[one.name] = f"fails: {_reason(error)}"
            traceback.print_exception(error)
        print(f"{document}: {one.name}: {way}, {time.monotonic() - began:.0f} s: {found[one.name]}", file=sys.stderr)
    return found


def _reason(error: BaseException) -> str:
    """Return the last line of rank 0, or the first of the error."""
    if isinstance(error, LaunchError) and error.run.ranks:
        return (error.run.ranks[0].output.strip() or "rank 0 printed nothing").splitlines()[-1]
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", nargs="+", choices=DOCUMENTS, default=DOCUMENTS)
    parser.add_argument("--on", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--short", action="store_true", help="leave out the steps with the launcher")
    options = parser.parse_args(argv)
    failed = 0
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="five-documents-")))
        started = {}
        for horovod in (True, False):
            (folder := place / f"horovod-{horovod}").mkdir()
            started[horovod] = stack.enter_context(warm(folder, launch.environment(), horovod=horovod))
        launch.fast_start = started.__getitem__
        for document in options.documents:
            found = {}
            for way in options.on:
                folder = place / f"{document} {way}".replace(" ", "-").replace(",", "")
                folder.mkdir()
                found[way] = followed(document, way, folder, short=options.short)
            print(f"\n{document}")
            for name in dict.fromkeys(name for of_way in found.values() for name in of_way):
                outcomes = {way: of_way[name] for way, of_way in found.items() if name in of_way}
                print(f"  {name:70} {', '.join(f'{way} {outcome}' for way, outcome in outcomes.items())}")
                failed += sum(outcome != "works" for outcome in outcomes.values())
        launch.fast_start = None
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
