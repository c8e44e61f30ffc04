"""Hundreds of command lines with bad input: ``python -m tests.campaigns.bad_input [--cases N] [--match WORDS]``.

Every command line must end by itself with exit status 0, 1 or 2, without a traceback, and must leave the files that it
was given as they were. Prints one line of JSON with the counts and lists what failed.

Commands that need no TensorFlow run as ``cli.run(main, argv)`` in a child that is forked from this process, where the
modules are loaded already; all others, and some of these, are processes of their own.
"""

import argparse
import atexit
import contextlib
import hashlib
import importlib
import importlib.util
import itertools
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tests.campaigns import table_commands
from tests.campaigns.hostile import FILES, NAMES, NUMBERS
from xmc_tf.tables.store import close_all

LIMIT_S = 60.0
_MEMORY = 8 << 30  # of a child; what claims more than its files justify fails here and not on the user's machine
_LINEAR = [
    "linear.train", "linear.predict", "linear.evaluate", "evaluate", "tree.show", "check", *table_commands.BASE,
]  # fmt: skip
_PARTS = [
    "params.json", "labels.txt", "tree/config.json", "tree/C0.npz", "ranker/param.json", "ranker/ranker/param.json",
    "ranker/ranker/0.model/param.json", "ranker/ranker/0.model/W.npz", "ranker/ranker/1.model/C.npz",
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One command line.

    Args:
        command: the module below ``xmc_tf``.
        argv: its arguments; ``{in}`` stands for the folder of the inputs, ``{out}`` for one of its own.
        bad: (path below ``{out}``, kind of hostile file, the good file that it is made from) of each hostile file.
        model: whether ``{out}/model`` is a copy of the model.
        forked: whether it may run in a forked child.
    """

    command: str
    argv: tuple[str, ...]
    bad: tuple[tuple[str, str, str], ...] = ()
    model: bool = False
    forked: bool = True

    def __str__(self) -> str:
        shown = [one if len(one) < 60 else f"{one[:57]}..." for one in self.argv]
        what = ", ".join(f"{path} is {kind}" for path, kind, _ in self.bad)
        return f"{self.command} {' '.join(map(ascii, shown))}" + (f"  ({what})" if what else "")


def base_commands() -> dict[str, dict[str, str]]:
    """Return the flags of each command with valid values."""
    trained = {"-x": "{in}/X.npz", "-y": "{in}/Y.npz", "-m": "{out}/new"}
    predicted = {"-m": "{in}/model", "-x": "{in}/X.npz", "-o": "{out}/p.npz"}
    measured = {"-y": "{in}/Y.npz", "-p": "{in}/P.npz"}
    return {
        "linear.train": trained,
        "linear.predict": predicted,
        "evaluate": measured,
        "linear.evaluate": measured,
        "tree.show": {"": "{in}/model/tree"},
        "check": {"--model": "{in}/model"},
    }


FILE_FLAGS = {
    "linear.train": ["-x", "-y", "--labels", "--vocabulary", "-c", "-f", "-r", "-um", "-uy", "--params-path"],
    "linear.predict": ["-x", "-y", "-so", "-m"],
    "evaluate": ["-y", "-p", "--train-labels", "--labels", "-t", "-m"],
    "linear.evaluate": ["-y", "-p"],
    "tree.show": ["", "--labels", "-y"],
    "check": ["--model"],
}
NUMBER_FLAGS = {
    "linear.train": [
        "--seed",
        "-k",
        "-b",
        "-n",
        "--max-leaf-size",
        "--nr-splits",
        "--trees",
        "--Cp",
        "--threshold",
        "--max-iter",
    ],
    "linear.predict": ["-k", "-b", "-n", "-B"],
    "evaluate": ["-k", "--buckets", "--propensity-a"],
    "linear.evaluate": ["-k"],
    "tree.show": ["--depth", "--max-children", "--words"],
    "check": ["--timeout", "--megabytes"],
}
_GOOD = {
    "--labels": "labels.txt",
    "-y": "Y.npz",
    "-p": "P.npz",
    "-c": "C.npz",
    "-r": "R.npz",
    "--params-path": "params.json",
}


def all_cases() -> list[Case]:
    """Return every combination of command, flag and hostile input, in a fixed order."""
    base = base_commands()
    cases = []
    for command, flags in FILE_FLAGS.items():
        for flag, kind in itertools.product(flags, FILES):
            good = _GOOD.get(flag, "X.npz")
            name = good if kind != "missing" else f"no-{good}"
            cases.append(Case(command, _argv(base[command] | {flag: f"{{out}}/{name}"}), ((name, kind, good),)))
        for flag, name in itertools.product(flags, NAMES):
            cases.append(Case(command, _argv(base[command] | {flag: name})))
    for command, flags in NUMBER_FLAGS.items():
        for flag, value in itertools.product(flags, NUMBERS):
            cases.append(Case(command, (*_argv(base[command]), flag, value)))
    for command, part, kind in itertools.product(("linear.predict", "check", "tree.show"), _PARTS, FILES):
        at = {"linear.predict": "-m", "check": "--model", "tree.show": ""}[command]
        argv = _argv(base[command] | {at: "{out}/model"})
        cases.append(Case(command, argv, ((f"model/{part}", kind, f"model/{part}"),), model=True))
    outputs = [
        "{in}/X.npz",
        "{in}",
        "{in}/model",
        "{in}/model/params.json",
        "{out}/device",
        "/proc/x.npz",
        "{out}/" + "n" * 300,
    ]
    for name in [*outputs, *NAMES]:
        cases.append(Case("linear.predict", _argv(base["linear.predict"] | {"-o": name})))
        if name not in ("{in}", "{in}/model"):  # a model is replaced, and any folder gets one, as documented
            cases.append(Case("linear.train", _argv(base["linear.train"] | {"-m": name})))
        if name != "{in}/X.npz":  # no input of this command, but a file like any other
            cases.append(Case("tree.show", _argv(base["tree.show"] | {"--dot": name})))
    return list(dict.fromkeys([*cases, *_tables(), *_launches(), *_other_commands()]))


def _tables() -> Iterator[Case]:
    """Commands that read tables and data sets."""
    made = table_commands.arguments
    for command, flags in table_commands.FILE_FLAGS.items():
        for flag, kind in itertools.product(flags, FILES):
            good = table_commands.GOOD.get(flag, "X.npz")
            name = good if kind != "missing" else f"no-{good}"
            yield Case(command, made(command, flag, f"{{out}}/{name}"), ((name, kind, good),))
        for flag, name in itertools.product((*flags, *table_commands.TEXT_FLAGS[command]), NAMES):
            yield Case(command, made(command, flag, name))
        for flag, value in itertools.product(table_commands.NUMBER_FLAGS[command], NUMBERS):
            yield Case(command, made(command, flag, value))
    for argv in table_commands.TRAINING:
        yield Case("train", argv, forked=False)


_LAUNCH_NUMBERS = ["--np", "--here-gpus", "--min-np", "--max-np", "--timeout", "--threads", "--stall-timeout"]
_NODE_NUMBERS = ["--nodes", "--node-rank", "--master-port", "--other-gpus"]


def _launches() -> Iterator[Case]:
    """Lists of hosts and numbers of the launcher, which only prints its plan."""
    for flag, kind in itertools.product(("--hosts", "--hostfile"), FILES):
        argv = (flag, "{out}/params.json", "--dry-run", "-m", "x")
        yield Case("launch", argv, (("params.json", kind, "params.json"),))
    for flag, name in itertools.product(("--hosts", "--hostfile", "-H", "--shared-folder"), NAMES):
        yield Case("launch", (flag, name, "--dry-run", "-m", "x"))
    for flag, value in itertools.product(_LAUNCH_NUMBERS, NUMBERS):
        yield Case("launch", ("-H", "one:2", flag, value, "--dry-run", "-m", "x"))
    for flag, value in itertools.product(_NODE_NUMBERS, NUMBERS):
        yield Case("launch", ("--nodes", "2", "--np", "1", flag, value, "--dry-run", "-m", "x"))


def _other_commands() -> Iterator[Case]:
    """Commands that load TensorFlow or start processes."""
    names = ("train", "predict", "encode", "export", "playground", "launch", "preprocess", "explain", "report.command")
    for command in names:
        for argv in ((), ("--no-such-flag",), ("-m", "{in}/nothing"), ("\udcff",), ("--np", "9" * 5000)):
            yield Case(command, argv, forked=False)
    for value in NUMBERS[:16]:
        yield (
            Case("launch", ("--np", value, "-m", "xmc_tf.check"), forked=False)
            if value not in ("2147483647",)
            else Case("launch", ("--np", value, "x.py"), forked=False)
        )
        yield Case("playground", ("{in}/nothing", "-p", value or "x"), forked=False)
    text = ("-t", "{in}/X.txt")
    for kind in (
        "a pipe",
        "a circle of links",
        "deep JSON",
        "a number of 5,000 digits",
        "wrong types",
        "large numbers",
    ):
        bad = (("model/params.json", kind, "model/params.json"),)
        for command, more in (
            ("predict", text),
            ("encode", (*text, "-o", "{out}/e.npy")),
            ("export", ("-o", "{out}/1")),
        ):
            yield Case(command, ("-m", "{out}/model", *more), bad, model=True, forked=False)


def _argv(flags: dict[str, str]) -> tuple[str, ...]:
    return tuple(part for flag, value in flags.items() for part in ((flag, value) if flag else (value,)))


def make_inputs(folder: Path) -> None:
    """Create the valid files, a model and its predictions."""
    from tests.linear.command_data import run_predict, run_train, write_corpus

    write_corpus(folder)
    table_commands.make_inputs(folder)
    (folder / "params.json").write_text("{}")
    run_train("-x", folder / "X.npz", "-y", folder / "Y.npz", "-m", folder / "model", "--max-leaf-size", 4,
              "--nr-splits", 2, "--labels", folder / "labels.txt", "--verbose-level", 0)  # fmt: skip
    run_predict("-m", folder / "model", "-x", folder / "X.npz", "-o", folder / "P.npz", "--verbose-level", 0)


def snapshot(folder: Path) -> dict[str, str]:
    """Return type and content of everything below a folder; holes are not read."""
    found = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        content = b""
        if stat.S_ISREG(info.st_mode) and info.st_size < 1 << 26:
            content = path.read_bytes()
        found[str(path.relative_to(folder))] = f"{info.st_mode:o} {info.st_size} {hashlib.sha256(content).hexdigest()}"
    return found


@dataclass(frozen=True)
class Outcome:
    """How a command line ended: ``ok`` or what was wrong, with the end of what it printed."""

    verdict: str
    said: str = ""


def run(case: Case, inputs: Path, limit_s: float = LIMIT_S) -> Outcome:
    """Run a case in its own folder and judge the result."""
    with tempfile.TemporaryDirectory(prefix="bad-input-") as name:
        out, log = Path(name, "out"), Path(name, "log")
        out.mkdir()
        if case.model:
            shutil.copytree(inputs / "model", out / "model")
        for path, kind, good in case.bad:
            (out / path).unlink(missing_ok=True)
            FILES[kind](out / path, inputs / good)
        given = [path for path, _, _ in case.bad]
        before = snapshot(inputs), {path: mark for path, mark in snapshot(out).items() if path in given or case.model}
        (out / "device").symlink_to("/dev/full")
        argv = [one.replace("{in}", str(inputs)).replace("{out}", str(out)) for one in case.argv]
        code = (_fork if case.forked else _start)(case.command, argv, out, log, limit_s)
        said = log.read_bytes().decode(errors="replace")
        after = snapshot(inputs), {path: mark for path, mark in snapshot(out).items() if path in before[1]}
    if code is None:
        return Outcome("hangs", said[-600:])
    if "Traceback (most recent call last)" in said:
        return Outcome("tracebacks", said[-2000:])
    if code < 0:
        return Outcome("signals", f"signal {-code}: {said[-600:]}")
    if code not in (0, 1, 2):
        return Outcome("other_codes", f"exit status {code}: {said[-600:]}")
    if after != before:
        changed = [
            path for a, b in zip(before, after, strict=True) for path in {**a, **b} if a.get(path) != b.get(path)
        ]
        return Outcome("files_lost", f"{changed}: {said[-300:]}")
    if "\x1b" in said:
        return Outcome("control_characters", ascii(said[-600:]))
    return Outcome("ok" if code == 0 or said.strip() else "silent")


def _fork(command: str, argv: list[str], folder: Path, log: Path, limit_s: float) -> int | None:
    module = _module(command)
    child = os.fork()
    if not child:
        code = 70
        try:
            _become(folder, log)
            from xmc_tf.common.process import cli

            atexit.register(close_all)  # the parent's functions have been removed
            sys.argv = [command, *argv]
            cli.run(module.main, argv)
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        except BaseException:  # noqa: BLE001  what Python would print of a process of its own
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                close_all()  # os._exit calls nothing that is registered for the exit
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
    return _wait(child, limit_s)


def _become(folder: Path, log: Path) -> None:
    """Make the child look like a process that a shell has started."""
    import logging
    import resource

    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(target, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
    logging.getLogger().handlers.clear()
    os.chdir(folder)
    os.setsid()
    atexit._clear()  # what the parent has to put away, such as its temporary folders, is not the child's
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _wait(child: int, limit_s: float) -> int | None:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _start(command: str, argv: list[str], folder: Path, log: Path, limit_s: float) -> int | None:
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", f"xmc_tf.{command}", *argv], stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            cwd=folder, start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None


def _module(command: str) -> ModuleType:
    """Return the module of a command, which may be a package."""
    name = f"xmc_tf.{command}"
    spec = importlib.util.find_spec(name)
    is_package = spec is not None and spec.submodule_search_locations is not None
    return importlib.import_module(f"{name}.__main__" if is_package else name)


def warm(inputs: Path) -> None:
    """Load what the forked commands load, so that no child has to."""
    for command in _LINEAR:
        importlib.import_module(f"xmc_tf.{command}")
    make_inputs(inputs)


def chosen(count: int | None, match: str = "") -> list[Case]:
    """Return all cases that match, or a fixed sample of them, spread evenly over the commands."""
    cases = [case for case in all_cases() if match in str(case)]
    if count is None or count >= len(cases):
        return cases
    return random.Random(16).sample(cases, count)


def main() -> None:
    """Run the campaign; exit status 1 where a command line failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, help="how many, drawn at random but always the same; default: all")
    parser.add_argument("--match", default="", help="only command lines that hold these words")
    arguments = parser.parse_args()
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    counts = dict.fromkeys(
        ("tracebacks", "hangs", "signals", "other_codes", "files_lost", "control_characters", "silent", "ok"), 0
    )
    cases = chosen(arguments.cases, arguments.match)
    with tempfile.TemporaryDirectory(prefix="bad-input-") as name:
        inputs = Path(name, "in")
        inputs.mkdir()
        warm(inputs)
        for number, case in enumerate(cases):
            outcome = run(case, inputs)
            counts[outcome.verdict] += 1
            if outcome.verdict != "ok":
                print(
                    f"{outcome.verdict}: {case}\n    " + outcome.said.replace("\n", "\n    "),
                    file=sys.stderr,
                    flush=True,
                )
            if number % 100 == 99:
                print(f"{number + 1} of {len(cases)} command lines", file=sys.stderr, flush=True)
    print(json.dumps({"commands": len(cases), **counts}))
    sys.exit(counts["ok"] != len(cases))


if __name__ == "__main__":
    main()
