"""Kill training and export at random moments, run the same command again, and count what went wrong.

``python -m tests.campaigns.kills`` kills 70 runs; ``--kills 200 --seed 7`` others; ``--of linear export`` only some
commands. ``prepare`` and ``train TABLE`` are killed in the first 50 ms in which something of them is to be seen. It
prints a line for each kill and at the end one line of JSON; every count but ``kills`` should be 0. Trainings with an
encoder are killed by ``tests/distributed/test_train_killed.py``.

After each kill: all processes end within 30 s, no traceback is printed, the output folder holds the complete old result
or the complete new one, and files of others in it, one being written to, are untouched. The same command again, which
may be killed too, completes; its result equals that of a run which nobody disturbed, byte by byte, and nothing is left
over beside it, in the folder for temporary files or in shared memory.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.sparse import random as random_matrix

from tests.campaigns.killed_runs import SIGNALS, Blow, contents, run, shared_memory
from tests.distributed.launch import BIN
from xmc_tf.data import save_matrix

FOREIGN = ("train.log", "predict.log")
MPI = [str(BIN / "mpiexec"), "-n", "2"]


@dataclass
class Command:
    """One command line and its undisturbed result."""

    name: str
    share: int  # of all kills
    launcher: Sequence[str]
    arguments: Callable[[Path, int], list[str]]  # by the output folder and the seed: another seed, another result
    chain: int = 1  # so many kills in a row before the command may complete, at most
    start: str = ""  # pattern of what is there first: the command is killed soon after it, and may resume
    beside: str = ""  # what the command leaves beside its output
    seconds: float = 0.0
    old: dict[str, str] = field(default_factory=dict)
    new: dict[str, str] = field(default_factory=dict)

    def line(self, output: Path, seed: int = 0) -> list[str]:
        """Return the words of the command line."""
        return [*self.launcher, sys.executable, "-m", *self.arguments(output, seed)]


class Campaign:
    """Kills, and what they have brought to light.

    Args:
        folder: for everything.
        seed: of all that is random.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []

    def prepare(self, command: Command) -> None:
        """Run the command undisturbed, for the old result and the new one."""
        place = self.folder / command.name
        place.mkdir()
        for name, seed in (("old", 1), ("new", 0)):
            (place / name).mkdir()
            outcome = run(command.line(place / name / "1", seed), place)
            if outcome.returncode:
                raise RuntimeError(f"{command.name} fails undisturbed:\n{outcome.output}")
            setattr(command, name, contents(place / name / "1"))
            command.seconds = outcome.seconds
        if command.old == command.new:
            raise RuntimeError(f"{command.name}: the old result and the new one are the same")

    def kill(self, command: Command, kills: int) -> int:
        """Kill the command some times in a row, then let it complete; return the number of kills."""
        place = self.folder / command.name
        output, used = place / "out" / "1", shared_memory()
        old = self.chance.random() < 0.5
        shutil.rmtree(output.parent, ignore_errors=True)
        output.parent.mkdir()
        if old:
            before_it = place / "old" / "1"
            (shutil.copytree if before_it.is_dir() else shutil.copy)(before_it, output)
        with Foreign(output if self.chance.random() < 0.5 and not command.start else None) as foreign:
            done, tried, ended = 0, 0, False
            goal = min(kills, self.chance.randint(1, command.chain))
            while done < goal and tried < 4 * goal:
                tried += 1
                blow = self._blow(command)
                before = _appeared(output, command.start)
                outcome = run(
                    command.line(output), place, blow, self.chance,
                    lambda before=before: _appeared(output, command.start) - before,
                )  # fmt: skip
                done += outcome.hit
                what = f"{command.name}{', old model' if old else ''}{', foreign files' if foreign else ''}: {blow}"
                print(what if outcome.hit else f"{what}: it was over before", flush=True)
                if outcome.hit:
                    self._look(command, output, what, outcome, [command.old if old else {}, command.new])
                    foreign.check(self, what)
                    ended |= (
                        bool(command.launcher) and blow.whom == "launcher" and contents(output, FOREIGN) == command.new
                    )
            outcome = run(command.line(output), place)
            what = f"{what}, run again"
            if outcome.returncode:
                self._count("not_completed", what, outcome.output[-2000:])
            elif contents(output, FOREIGN) != command.new:
                self._count("models_that_differ", what, _difference(contents(output, FOREIGN), command.new))
            if outcome.tracebacks:
                self._count("tracebacks", what, outcome.tracebacks[0])
            foreign.check(self, what)
        theirs = ("1", command.beside)
        left = [*(path.name for path in output.parent.iterdir() if path.name not in theirs), *_files(place / "tmp")]
        if ended:
            # The ranks of a launcher that is killed after they have ended cannot know of the folder that it leaves.
            left = [name for name in left if not name.startswith("ompi.")]
        end = time.monotonic() + 5
        while (in_memory := shared_memory() - used) and time.monotonic() < end:
            time.sleep(0.5)  # other programs of this machine use it too, and remove what is theirs
        if left := [*left, *sorted(in_memory)]:
            self._count("left_over", what, " ".join(left))
            shutil.rmtree(place / "tmp")
        return done

    def _blow(self, command: Command) -> Blow:
        number = self.chance.choice(SIGNALS)
        whom = self.chance.choice(["rank", "all", "launcher"]) if command.launcher else "launcher"
        if command.start:
            return Blow(number, whom, self.chance.random() * 0.05, placing=True)
        if self.chance.random() < 0.4:
            return Blow(number, whom, self.chance.random() * 0.02, placing=True)
        # Not in the first moments, which are the interpreter's own.
        return Blow(number, whom, 0.15 + self.chance.random() * max(command.seconds - 0.15, 0.1))

    def _look(self, command: Command, output: Path, what: str, outcome, allowed: list[dict[str, str]]) -> None:
        """Check what a killed run has left."""
        self.counts["kills"] += 1
        if outcome.left:
            self._count("hangs", what, "; ".join(outcome.left)[:500])
        if outcome.tracebacks:
            self._count("tracebacks", what, outcome.tracebacks[0])
        if output.is_file():
            return  # what a data set lacks, the next run adds
        found = contents(output, FOREIGN)
        if found not in allowed:
            kind = "files_lost" if allowed[0] and not found else "half_models"
            self._count(kind, what, _difference(found, command.new))

    def _count(self, kind: str, what: str, more: str) -> None:
        self.counts[kind] += 1
        self.failures.append(f"{kind}: {what}\n    " + more.replace("\n", "\n    "))
        print(self.failures[-1], flush=True)

    def lost(self, what: str, more: str) -> None:
        """Count a file of others that is not what it was."""
        self._count("files_lost", what, more)


class Foreign:
    """Files of others in the output folder: a log that another program writes to, and another log.

    Args:
        folder: None for none.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder, self._end = folder, threading.Event()
        self._lines = 0

    def __bool__(self) -> bool:
        return self._folder is not None

    def __enter__(self) -> "Foreign":
        if self._folder is not None:
            self._folder.mkdir(exist_ok=True)
            (self._folder / "predict.log").write_bytes(b"not one of ours")
            self._log = (self._folder / "train.log").open("w")
            self._inode = (self._folder / "train.log").stat().st_ino
            self._thread = threading.Thread(target=self._write)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._folder is not None:
            self._end.set()
            self._thread.join()
            self._log.close()

    def check(self, campaign: Campaign, what: str) -> None:
        """Count what is missing or has been replaced."""
        if self._folder is None:
            return
        lines, log, other = self._lines, self._folder / "train.log", self._folder / "predict.log"
        if not log.exists() or log.stat().st_ino != self._inode or len(log.read_text().splitlines()) < lines:
            campaign.lost(what, "train.log is not the file that is written to")
        if not other.exists() or other.read_bytes() != b"not one of ours":
            campaign.lost(what, "predict.log")

    def _write(self) -> None:
        while not self._end.wait(0.05):
            self._log.write(f"line {self._lines}\n")
            self._log.flush()
            self._lines += 1


def _appeared(output: Path, start: str) -> set[Path]:
    """Return what a pattern finds beside the output, or the hidden, unfinished paths beside it, in it and in stages."""
    if start:
        return set(output.parent.glob(start))
    places = (output.parent, output, output.with_name(f"{output.name}.work"))
    return {path for place in places if place.is_dir() for path in place.glob(".*")}


def _files(folder: Path) -> list[str]:
    """Return the content of a run's folder for temporary files, except for the empty folder of records.

    TensorFlow leaves files of its own there, without being killed too.
    """
    theirs = (f"xmc-tf-{os.geteuid()}", "__pycache__")
    found = [
        path.name
        for path in folder.glob("*")
        if path.name not in theirs and not path.name.startswith("__autograph_generated_file")
    ]
    return found + [path.name for path in folder.glob("xmc-tf-*/*")]


def _difference(found: dict[str, str], wanted: dict[str, str]) -> str:
    names = sorted(name for name in found | wanted if found.get(name) != wanted.get(name))
    return f"{len(found)} files instead of {len(wanted)}; different: {' '.join(names[:12])}"


def commands(folder: Path, names: Sequence[str] = ()) -> list[Command]:
    """Return the commands, after writing what they read.

    Args:
        folder: for the data.
        names: beginnings of their names; nothing for all.
    """

    def wanted(name: str) -> bool:
        return not names or any(name.startswith(begin) for begin in names)

    write_matrices(folder)

    def linear(output: Path, seed: int) -> list[str]:
        files = ["-x", str(folder / "X.npz"), "-y", str(folder / "Y.npz"), "-m", str(output)]
        return ["xmc_tf.linear.train", *files, "--seed", str(seed), "-n", "1"]

    write_table(folder / "table.csv")

    def prepare(output: Path, seed: int) -> list[str]:
        return ["xmc_tf.prepare", str(folder / "table.csv"), "-o", str(output), "--split-seed", str(seed)]

    def table(output: Path, seed: int) -> list[str]:
        files = [str(folder / "table.csv"), "-m", str(output), "--data-set", f"{output}.sqlite"]
        return ["xmc_tf.train", *files, "--seed", str(seed), "--effort", "fast", "-n", "1"]

    found = [
        Command("prepare", 8, [], prepare, chain=3, start="*"),
        Command("table", 4, [], table, chain=2, start="*sqlite*", beside="1.sqlite"),
        Command("linear", 20, [], linear),
        Command("linear-mpi", 10, MPI, linear, chain=2),
    ]
    if wanted("sequences"):
        tables = write_interactions(folder)

        def sequences(output: Path, seed: int) -> list[str]:
            rare = str(1 + 40 * seed)  # items with fewer interactions are left out
            return ["xmc_tf.sequences.prepare", *map(str, tables), "-o", str(output), "--min-item-count", rare]

        found.append(Command("sequences", 6, [], sequences, chain=2))
    if wanted("export"):
        from tests.pipeline.corpus import write_corpus

        corpus = folder / "corpus"
        corpus.mkdir()
        write_corpus(corpus)

        def export(output: Path, seed: int) -> list[str]:
            texts = ["-t", str(corpus / "X.tst.txt"), "--warmup", "2"]
            return ["xmc_tf.export", "-m", str(folder / "ranker"), "-o", str(output), "-k", str(5 + seed), *texts]

        flags = ["-t", corpus / "X.trn.txt", "-y", corpus / "Y.trn.npz", "-m", folder / "ranker", "-n", "1"]
        done = run([sys.executable, "-m", "xmc_tf.linear.train", *map(str, flags)], folder)
        assert done.returncode == 0, done.output
        found.append(Command("export", 8, [], export))
    return [command for command in found if wanted(command.name)]


def write_matrices(folder: Path, documents: int = 1500, features: int = 200, labels: int = 120) -> None:
    """Write features and labels at random."""
    chance = np.random.default_rng(0)
    X = random_matrix(documents, features, 0.1, "csr", np.float32, chance)
    Y = random_matrix(documents, labels, 0.03, "csr", np.float32, chance)
    Y.data[:] = 1
    save_matrix(folder / "X.npz", X)
    save_matrix(folder / "Y.npz", Y)


def write_table(path: Path, rows: int = 3000) -> None:
    """Write a table of texts and labels at random."""
    chance = np.random.default_rng(0)
    labels = chance.integers(0, 20, rows).tolist()
    texts = (" ".join(f"word{word}" for word in chance.integers(20 * label, 20 * label + 60, 12)) for label in labels)
    lines = (f"{text},label {label}\n" for text, label in zip(texts, labels, strict=True))
    path.write_text("text,label\n" + "".join(lines))


def write_interactions(folder: Path, rows: int = 600_000) -> list[Path]:
    """Write two tables of users and items at random, which make two parts."""
    chance = np.random.default_rng(0)
    tables = []
    for number in range(2):
        users = chance.integers(0, 40_000, rows).tolist()
        items = np.minimum(chance.geometric(0.002, rows), 5_000).tolist()
        lines = (
            f"user-{user},item-{item},{1_600_000_000 + time}\n"
            for time, (user, item) in enumerate(zip(users, items, strict=True))
        )
        tables.append(folder / f"interactions-{number}.csv")
        tables[-1].write_text("user,item,time\n" + "".join(lines))
    return tables


def campaign(folder: Path, commands: Sequence[Command], kills: int, seed: int) -> Campaign:
    """Kill the commands, each as often as its share says."""
    found, total = Campaign(folder, seed), sum(command.share for command in commands)
    for command in commands:
        found.prepare(command)
        done, wanted = 0, max(1, round(kills * command.share / total))
        print(f"{command.name}: {command.seconds:.1f} s undisturbed, {wanted} kills", flush=True)
        while done < wanted:
            done += found.kill(command, wanted - done)
    return found


def main() -> None:
    """Run the campaign and print what it has found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=70, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random")
    parser.add_argument(
        "--of",
        nargs="*",
        default=[],
        metavar="COMMAND",
        help="prepare, table, linear, export, sequences, or more exactly",
    )
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="xmc-tf-kills-") as name:
        folder = Path(name)
        found = campaign(folder, commands(folder, arguments.of), arguments.kills, arguments.seed)
    kinds = ("kills", "tracebacks", "hangs", "files_lost", "half_models", "not_completed", "models_that_differ")
    counts = {kind: found.counts[kind] for kind in (*kinds, "left_over")}
    print(json.dumps({**counts, "seconds": round(time.monotonic() - started)}))
    sys.exit(bool(found.failures))


if __name__ == "__main__":
    main()
