"""All command lines of the bad-input campaign: every combination of command, flag and hostile input."""

import itertools
from collections.abc import Iterator

from tests.campaigns import growing_commands, once_broken, table_commands
from tests.campaigns.hostile import FILES, NAMES, NUMBERS
from tests.campaigns.trial import Case

_PARTS = [
    "params.json", "labels.txt", "tree/config.json", "tree/C0.npz", "ranker/param.json", "ranker/ranker/param.json",
    "ranker/ranker/0.model/param.json", "ranker/ranker/0.model/W.npz", "ranker/ranker/1.model/C.npz",
]  # fmt: skip


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
    "evaluate": ["-y", "-p", "--train-labels", "--labels", "-t", "-m", "--vocabulary"],
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
    "--labels": "labels.txt", "-y": "Y.npz", "-p": "P.npz", "-c": "C.npz", "-r": "R.npz",
    "--params-path": "params.json",
}  # fmt: skip


def all_cases() -> list[Case]:
    """Return what was broken once, and then every combination of command, flag and hostile input, in a fixed order."""
    base = base_commands()
    cases = list(once_broken.cases())
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
        cases.append(Case(command, argv, ((f"model/{part}", kind, f"model/{part}"),), model="model"))
    outputs = [
        "{in}/X.npz", "{in}", "{in}/model", "{in}/model/params.json", "{out}/device", "/proc/x.npz",
        "{out}/" + "n" * 300,
    ]  # fmt: skip
    for name in [*outputs, *NAMES]:
        cases.append(Case("linear.predict", _argv(base["linear.predict"] | {"-o": name})))
        if name not in ("{in}", "{in}/model"):  # a model is replaced, and any folder gets one, as documented
            cases.append(Case("linear.train", _argv(base["linear.train"] | {"-m": name})))
        if name != "{in}/X.npz":  # no input of this command, but a file like any other
            cases.append(Case("tree.show", _argv(base["tree.show"] | {"--dot": name})))
    return list(dict.fromkeys([*cases, *_tables(), *growing_commands.cases(), *_launches(), *_other_commands()]))


def _tables() -> Iterator[Case]:
    """Commands that read tables and data sets."""
    made = table_commands.arguments
    for command, flags in table_commands.FILE_FLAGS.items():
        model = table_commands.MODELS.get(command, {})
        for flag, kind in itertools.product(flags, FILES):
            good = table_commands.good_file(command, flag)
            name = good if kind != "missing" else f"no-{good}"
            yield Case(command, made(command, flag, f"{{out}}/{name}"), ((name, kind, good),), **model)
        for flag, name in itertools.product((*flags, *table_commands.TEXT_FLAGS[command]), NAMES):
            yield Case(command, made(command, flag, name), **model)
        for flag, value in itertools.product(table_commands.NUMBER_FLAGS[command], NUMBERS):
            yield Case(command, made(command, flag, value), **model)
    for argv in table_commands.TRAINING:
        yield Case("train", argv, forked=False)


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
            yield Case(command, ("-m", "{out}/model", *more), bad, model="model", forked=False)


def _argv(flags: dict[str, str]) -> tuple[str, ...]:
    return tuple(part for flag, value in flags.items() for part in ((flag, value) if flag else (value,)))
