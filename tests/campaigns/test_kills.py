"""Commands that are killed at random moments leave no half results and no rest, and complete when they run again.

``XMC_TF_KILLS=70 pytest tests/campaigns/test_kills.py`` kills more often, and more commands; ``XMC_TF_TEST_SEED=7``
at other moments. Trainings with an encoder are killed in ``tests/distributed/test_train_killed.py``.
"""

import contextlib
import hashlib
import os
import random
import re
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest
from scipy.sparse import random as random_matrix

from tests.distributed.launch import REPOSITORY, is_running, mpiexec, python, wait_for
from tests.files import contents
from xmc_tf.common.process.leftovers import remove_leftovers
from xmc_tf.data import save_matrix

pytestmark = [pytest.mark.distributed, pytest.mark.full]

KILLS, SEED = int(os.environ.get("XMC_TF_KILLS", "5")), os.environ.get("XMC_TF_TEST_SEED", "0")
FOREIGN = ("train.log", "predict.log")


class Command(NamedTuple):
    """A command line that is killed."""

    share: int  # of all kills
    module: str
    arguments: Callable[[Path, Path, int], list[Any]]  # by folder of the data, output and seed
    ranks: int = 1
    chain: int = 1  # so many kills in a row before it may complete, at most
    start: str = ""  # pattern of what is there first: it is killed soon after that
    beside: str = ""  # what it leaves beside its output


def _linear(data: Path, output: Path, seed: int) -> list[Any]:
    return ["-x", data / "X.npz", "-y", data / "Y.npz", "-m", output, "--seed", seed, "-n", 1]


def _train(data: Path, output: Path, seed: int) -> list[Any]:
    more = ["--data-set", f"{output}.sqlite", "--effort", "fast", "-n", 1]
    return [data / "table.csv", "-m", output, "--seed", seed, *more]


COMMANDS = {
    "prepare": Command(
        8, "prepare", lambda data, output, seed: [data / "table.csv", "-o", output, "--split-seed", seed],
        chain=3, start="*",
    ),
    "linear": Command(20, "linear.train", _linear),
    "linear over ranks": Command(10, "linear.train", _linear, ranks=2, chain=2),
}  # fmt: skip
MORE = {
    "table": Command(4, "train", _train, chain=2, start="*sqlite*", beside="1.sqlite"),
    # Items with fewer interactions are left out.
    "sequences": Command(
        6, "sequences.prepare",
        lambda data, output, seed: [data / "interactions.csv", "-o", output, "--min-item-count", 1 + 40 * seed],
        chain=2,
    ),
    "export": Command(
        8, "export", lambda data, output, seed: ["-m", data / "ranker", "-o", output, "-k", 5 + seed]
    ),
}  # fmt: skip
COMMANDS |= MORE if KILLS > 5 else {}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Matrices, a table and interactions at random, and a model of the texts."""
    folder, chance = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    Y = random_matrix(1500, 120, 0.03, "csr", np.float32, chance)
    Y.data[:] = 1
    save_matrix(folder / "X.npz", random_matrix(1500, 200, 0.1, "csr", np.float32, chance))
    save_matrix(folder / "Y.npz", Y)
    labels = chance.integers(0, 20, 3000).tolist()
    texts = [" ".join(f"word{word}" for word in chance.integers(20 * one, 20 * one + 60, 12)) for one in labels]
    rows = (f"{text},label {one}\n" for text, one in zip(texts, labels, strict=True))
    (folder / "table.csv").write_text("text,label\n" + "".join(rows))
    if KILLS > 5:
        users, items = chance.integers(0, 40_000, 600_000), np.minimum(chance.geometric(0.002, 600_000), 5000)
        lines = (
            f"user-{user},item-{item},{time}\n" for time, (user, item) in enumerate(zip(users, items, strict=True))
        )
        (folder / "interactions.csv").write_text("user,item,time\n" + "".join(lines))
        (folder / "X.txt").write_text("\n".join(texts[:1500]) + "\n")
        python("module:xmc_tf.linear.train", *(str(folder / name) if "." in name or name == "ranker" else name
               for name in ("-t", "X.txt", "-y", "Y.npz", "-m", "ranker")))  # fmt: skip
    return folder


def found(output):
    """Return what an output holds: the files of a folder, or the content of a database; nothing of others."""
    if output.is_file():
        with contextlib.closing(sqlite3.connect(f"{output.absolute().as_uri()}?mode=rw", uri=True)) as database:
            return hashlib.sha256("".join(database.iterdump()).encode()).hexdigest()
    return {name: content for name, content in contents(output).items() if name not in FOREIGN}


def shared_memory():
    """Return the files in shared memory that no process uses."""
    names = {path.name for path in Path("/dev/shm").iterdir() if path.is_file()}
    names = {name for name in names if not name.startswith("sem.mp-")}  # 32 bytes of a horovodrun that was killed
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # it has just ended
            names -= set(re.findall(r"/dev/shm/(\S+)$", maps.read_text(), re.MULTILINE))
    return names


@contextlib.contextmanager
def files_of_others(folder):
    """Yield a check that files of others in the output folder stay: one that is written to meanwhile, and another."""
    folder.mkdir(exist_ok=True)
    (folder / "predict.log").write_bytes(b"not one of ours")
    end, lines = threading.Event(), []
    with (folder / "train.log").open("w") as log:

        def write():
            while not end.wait(0.05):
                log.write("line\n")
                log.flush()
                lines.append("line")

        def check():
            written = len(lines)
            assert (folder / "train.log").stat().st_ino == os.fstat(log.fileno()).st_ino
            assert len((folder / "train.log").read_text().splitlines()) >= written
            assert (folder / "predict.log").read_bytes() == b"not one of ours"

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield check
        finally:
            end.set()
            thread.join()


def run(command, data, output, seed=0, **options):
    """Run a command; its processes must end, without a traceback of ours."""
    place = output.parents[1]
    (place / "tmp").mkdir(exist_ok=True)
    arguments = [f"module:xmc_tf.{command.module}", *map(str, command.arguments(data, output, seed))]
    options |= {"env": {"TMPDIR": str(place / "tmp")}, "timeout": 75}
    made = mpiexec(*arguments, world=command.ranks, **options) if command.ranks > 1 else python(*arguments, **options)
    said = "".join(rank.output for rank in made.ranks).split("Traceback (most recent call last)")
    # What the interpreter says before it has imported anything is not in our hands.
    assert not [text for text in said[1:] if f'File "{REPOSITORY}/xmc_tf/' in text], made.describe()
    assert made.leftovers == 0, made.describe()
    return made


def striker(command, output, seconds, chance, done):
    """Return a function for ``during`` that kills at a random moment; ``done`` gets whom it has killed in time."""

    def appeared():
        if command.start:
            return set(output.parent.glob(command.start))
        places = (output.parent, output, output.with_name(f"{output.name}.work"))
        return {path for place in places if place.is_dir() for path in place.glob(".*")}

    number = chance.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
    whom = chance.choice(("rank", "all", "launcher")) if command.ranks > 1 else "launcher"
    # As something of the result appears, or any time.
    placing = bool(command.start) or chance.random() < 0.4
    after = chance.random() * (0.05 if command.start else 0.02 if placing else seconds)
    one, before = chance.randrange(command.ranks), appeared()

    def strike(folder):
        files = [folder / f"{rank}.pid" for rank in range(command.ranks)]
        wait_for(lambda: all(file.exists() and file.read_text() for file in files), what="the start")
        pids = [int(file.read_text()) for file in files]
        try:
            above = [pids[0], *(parent.pid for parent in psutil.Process(pids[0]).parents())]
        except psutil.NoSuchProcess:
            return
        launcher = above[above.index(os.getpid()) - 1]
        while placing and not appeared() - before and is_running(launcher):
            time.sleep(0.0005)
        time.sleep(after)
        if not is_running(launcher):
            return
        done.append(whom)
        print(f"{number.name} to {whom}, {1000 * after:.0f} ms after {'the first file' if placing else 'the start'}")
        with contextlib.suppress(ProcessLookupError):
            if whom == "launcher" and number == signal.SIGINT:
                os.killpg(launcher, number)  # as a terminal does it
            else:
                for pid in {"launcher": [launcher], "rank": [pids[one]], "all": [*pids, launcher]}[whom]:
                    os.kill(pid, number)

    return strike


@pytest.mark.parametrize("name", COMMANDS)
def test_kills_do_no_harm(name, data, tmp_path):
    command, chance, results = COMMANDS[name], random.Random(f"{SEED} {name}"), {}
    for seed in (1, 0):
        (tmp_path / str(seed)).mkdir()
        undisturbed = run(command, data, tmp_path / str(seed) / "1", seed)
        results[seed] = found(tmp_path / str(seed) / "1")
    assert results[0] != results[1]
    kills, wanted = [], max(1, round(KILLS * command.share / sum(one.share for one in COMMANDS.values())))
    while len(kills) < wanted:
        output, used, ended = tmp_path / "out" / "1", shared_memory(), False
        shutil.rmtree(output.parent, ignore_errors=True)
        output.parent.mkdir()
        if old := chance.random() < 0.5:
            before = tmp_path / "1" / "1"
            (shutil.copytree if before.is_dir() else shutil.copy)(before, output)
        foreign = chance.random() < 0.5 and not command.start
        with files_of_others(output) if foreign else contextlib.nullcontext(lambda: None) as check:
            for _ in range(chance.randint(1, command.chain)):
                strike = striker(command, output, undisturbed.seconds, chance, kills)
                run(command, data, output, during=strike, check=False)
                check()
                if not output.is_file():  # what a data set lacks, the next run adds
                    assert found(output) in [results[1] if old else {}, results[0]]
                ended |= command.ranks > 1 and kills[-1:] == ["launcher"] and found(output) == results[0]
            run(command, data, output)
            check()
        assert found(output) == results[0]
        left = {path.name for path in output.parent.iterdir()} - {"1", command.beside}
        temporary = {path.name for path in (tmp_path / "tmp").rglob("*") if path.is_file()}
        left |= {one for one in temporary if not one.startswith("__autograph")}  # TensorFlow leaves these
        # The ranks of a launcher that is killed after they have ended cannot know of the folder that it leaves.
        assert not {one for one in left if not (ended and one.startswith("ompi."))}
        # Other programs of this machine use shared memory too, and remove what is theirs.
        wait_for(
            lambda used=used: not (remove_leftovers() or shared_memory() - used),
            what="the end of what is in shared memory",
        )
