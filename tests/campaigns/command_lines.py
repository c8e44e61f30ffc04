"""All command lines of the bad-input campaign: every combination of command, flag and hostile input."""

import itertools
from collections.abc import Iterator

from tests.campaigns import growing_commands, once_broken
from tests.campaigns.hostile import FILES, NAMES, NUMBERS
from tests.campaigns.table_commands import COMMANDS, TRAINING, Command, arguments, good_file
from tests.campaigns.trial import Case

_PARTS = [
    "params.json", "labels.txt", "tree/config.json", "tree/C0.npz", "ranker/param.json", "ranker/ranker/param.json",
    "ranker/ranker/0.model/param.json", "ranker/ranker/0.model/W.npz", "ranker/ranker/1.model/C.npz",
]  # fmt: skip


def all_cases() -> list[Case]:
    """Return what was broken once, and then every combination of command, flag and hostile input, in a fixed order."""
    cases = list(once_broken.cases())
    for name, command in COMMANDS.items():
        cases += _hostile_values(name, command)
    for module, flag in (("linear.predict", "-m"), ("check", "--model"), ("tree.show", "")):
        for part, kind in itertools.product(_PARTS, FILES):
            bad = ((f"model/{part}", kind, f"model/{part}"),)
            cases.append(Case(module, arguments(module, flag, "{out}/model"), bad, model="model"))
    outputs = [
        "{in}/X.npz", "{in}", "{in}/model", "{in}/model/params.json", "{out}/device", "/proc/x.npz",
        "{out}/" + "n" * 300,
    ]  # fmt: skip
    for name in [*outputs, *NAMES]:
        cases.append(Case("linear.predict", arguments("linear.predict", "-o", name)))
        if name not in ("{in}", "{in}/model"):  # a model is replaced, and any folder gets one, as documented
            cases.append(Case("linear.train", arguments("linear.train", "-m", name)))
        if name != "{in}/X.npz":  # no input of this command, but a file like any other
            cases.append(Case("tree.show", arguments("tree.show", "--dot", name)))
    cases += [Case("train", argv, forked=False) for argv in TRAINING]
    return list(dict.fromkeys([*cases, *growing_commands.cases(), *_launches(), *_other_commands()]))


def _hostile_values(name: str, command: Command) -> Iterator[Case]:
    """A command with each hostile file, name and number for each flag that takes one."""
    module = name.split()[0]
    for flag, kind in itertools.product(command.files, FILES):
        good = good_file(name, flag)
        file = good if kind != "missing" else f"no-{good}"
        yield Case(module, arguments(name, flag, f"{{out}}/{file}"), ((file, kind, good),), **command.case)
    for flag, value in itertools.product((*command.files, *command.words), NAMES):
        yield Case(module, arguments(name, flag, value), **command.case)
    for flag, value in itertools.product(command.numbers, NUMBERS):
        yield Case(module, arguments(name, flag, value), **command.case)


_LAUNCH_NUMBERS = ["--np", "--min-np", "--max-np", "--timeout", "--threads", "--stall-timeout"]
_NODE_NUMBERS = ["--nodes", "--node-rank", "--master-port"]


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
    names = ("train", "predict", "encode", "export", "playground", "launch", "preprocess", "explain", "report.command",
             "label")  # fmt: skip
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
            yield Case(command, ("-m", "{out}/model", *more), bad, model="model", forked=False)
