"""``xmc-tf COMMAND`` or ``python -m xmc_tf COMMAND``: a single entry point for all commands."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

# Group -> command -> (module, one line of help). The order is that of the list that is printed.
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "First steps": {
        "demo": ("xmc_tf.demo", "Train on the documentation of installed packages, and try the models."),
    },
    "Data and training": {
        "train": ("xmc_tf.train", "Train a model on a table, or on files of texts and labels."),
        "prepare": ("xmc_tf.prepare", "Read a table of texts and labels, such as CSV, into a data set."),
        "preprocess": ("xmc_tf.preprocess", "Make matrices from files of labels and texts."),
        "plan": ("xmc_tf.plan", "Estimate the memory, network traffic and hours of a training run."),
        "launch": ("xmc_tf.launch", "Run a module or script on several ranks, on one machine or many."),
        "check": ("xmc_tf.check", "Check that all ranks can reach each other, or that a model is intact."),
    },
    "Using a model": {
        "predict": ("xmc_tf.predict", "Predict the best labels of texts."),
        "evaluate": ("xmc_tf.evaluate", "Measure a model on a table, or compare predictions with the true labels."),
        "explain": ("xmc_tf.explain", "Show why a text gets its labels: words, and the path through the tree."),
        "report": ("xmc_tf.report.command", "Write a report on models: one HTML page, with its data as JSON and CSV."),
        "audit": ("xmc_tf.report.audit", "List what is probably missing or wrong in the labels of a table."),
        "runs": ("xmc_tf.runs", "List, compare and delete the training runs on a data set."),
        "label": ("xmc_tf.label", "Open a local web page to label texts, with the suggestions of a model that learns."),
        "append": ("xmc_tf.append", "Append documents to a linear model, without training it again."),
        "labels add": ("xmc_tf.labels.add", "Add labels to a trained model, which finds them by their names."),
        "labels remove": ("xmc_tf.labels.remove", "Remove labels from a linear model."),
        "labels merge": ("xmc_tf.labels.merge", "Merge several labels of a linear model into one."),
        "encode": ("xmc_tf.encode", "Compute the embeddings of texts."),
        "show": ("xmc_tf.tree.show", "Show the label tree of a model."),
    },
    "Serving": {
        "export": ("xmc_tf.export", "Export a model as a SavedModel for TensorFlow Serving."),
        "serve": ("xmc_tf.server", "Serve a model over HTTP, in the REST format of TensorFlow Serving."),
        "try": ("xmc_tf.playground", "Open a local web page to try a model or an export."),
    },
    "Sequences": {
        "sequences prepare": ("xmc_tf.sequences.prepare", "Read interactions of users with items into histories."),
        "sequences train": ("xmc_tf.sequences.train", "Train a model of the next item: BERT4Rec or SASRec."),
        "sequences predict": ("xmc_tf.sequences.predict", "Predict the next items of histories."),
        "sequences evaluate": ("xmc_tf.sequences.evaluate", "Measure a sequence model on held-out items."),
        "sequences export": ("xmc_tf.sequences.export", "Export a sequence model for TensorFlow Serving."),
    },
    "PECOS's spelling of train, predict and evaluate, for linear models": {
        "linear train": ("xmc_tf.linear.train", "Train linear rankers on texts or features, with PECOS's flags."),
        "linear predict": ("xmc_tf.linear.predict", "Predict with linear rankers, on texts or on features."),
        "linear evaluate": ("xmc_tf.linear.evaluate", "Compare predictions; print what PECOS prints."),
    },
}
# The overview shows one line for each of these groups of commands, or none if the line is empty.
_SUB_GROUPS = {
    "labels": "Add, remove or merge labels of a trained model.",
    "sequences": "Prepare, train, predict, evaluate, export: models of the next item.",
    "linear": "",
}
MODULES = {command: module for group in COMMANDS.values() for command, (module, _) in group.items()}
_EXAMPLES = (
    "train data.csv -m model",
    "train -t X.trn.txt -y Y.trn.npz -m model --labels labels.txt",
    'predict -m model -q "gradient of a sparse matrix"',
)


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command, or list the commands."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    program = "python -m xmc_tf" if Path(sys.argv[0]).name == "__main__.py" else "xmc-tf"
    first = arguments[0] if arguments else "--help"
    if first in ("-h", "--help", "help"):
        _print(_overview(program))
    elif first == "--version":
        from xmc_tf.common.version import __version__

        _print(f"xmc_tf {__version__}")
    elif first in _SUB_GROUPS and arguments[1:2] in ([], ["-h"], ["--help"]):
        _print(_overview(program, first))
    else:
        words = 2 if first in _SUB_GROUPS else 1
        _run(program, " ".join(arguments[:words]), arguments[words:])


def _run(program: str, command: str, arguments: list[str]) -> None:
    """Run a command as ``python -m`` would run its module."""
    if command not in MODULES:
        _refuse(program, command)
    from xmc_tf.common.process import launcher

    launcher.prepare()  # before the imports below, which take seconds
    from importlib import import_module
    from importlib.util import find_spec

    from xmc_tf.common.process import cli
    from xmc_tf.common.process.invocation import started_as

    started_as(f"{program} {command}", {module: f"{program} {name}" for name, module in MODULES.items()})
    module = MODULES[command]
    spec = find_spec(module)
    assert spec is not None
    is_package = spec.submodule_search_locations is not None
    cli.run(import_module(f"{module}.__main__" if is_package else module).main, arguments)


def _overview(program: str, group: str = "") -> str:
    """Return the list of all commands, or of the commands in a group."""
    lines = [f"usage: {program} {group + ' ' if group else ''}COMMAND [options]", ""]
    if not group:
        lines += ["Extreme multi-label text classification, from raw text to a served model.", ""]
    width = max(map(len, MODULES)) if group else max(len(name) for name in MODULES if " " not in name)
    for title, commands in COMMANDS.items():
        if chosen := _listed(commands, group):
            lines += [f"{title}:", *(f"  {name:<{width}}  {about}" for name, about in chosen.items()), ""]
    if not group:
        lines += ["Examples:", *(f"  {program} {example}" for example in _EXAMPLES), ""]
        lines += ["Scripts of PECOS run with python -m xmc_tf.linear.train, xmc_tf.linear.predict, and so on.", ""]
    return "\n".join([*lines, f"Options of a command: {program} {group + ' ' if group else ''}COMMAND --help"])


def _listed(commands: dict[str, tuple[str, str]], group: str) -> dict[str, str]:
    """Return the help line of each command in ``group`` or, if that is empty, of each command and subgroup."""
    if group:
        return {name: about for name, (_, about) in commands.items() if name.startswith(f"{group} ")}
    found = {}
    for name, (_, about) in commands.items():
        first = name.split()[0]
        if line := _SUB_GROUPS.get(first, about):
            found[first] = line
    return found


def _refuse(program: str, command: str) -> NoReturn:
    """Print that there is no such command, suggest a similar one, and exit with status 2."""
    import difflib

    # People also try the names of the modules.
    names = {name: name for name in MODULES}
    names |= {module.removeprefix("xmc_tf."): name for name, module in MODULES.items()}
    names |= {module.removeprefix("xmc_tf.").replace(".", " "): name for name, module in MODULES.items()}
    near = difflib.get_close_matches(command, names, n=1)
    fix = f"{program} {names[near[0]]}" if near else f"{program} --help lists all commands"
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in command[:60])
    print(f"error: {program} has no command {shown!r}\n  expected: {', '.join(MODULES)}\n  fix: {fix}", file=sys.stderr)
    sys.exit(2)


def _print(text: str) -> None:
    """Print a text. It is not an error if the reader closes the pipe early, as ``head`` does."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
