"""The house's two rules: imports run downwards only, and what needs no TensorFlow never loads it."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "xmc_tf"

# From the bottom up. Each part may import from the layers below its own.
LAYERS = [
    ["common"],
    ["params"],
    ["collective", "features", "encoder", "data", "metrics"],
    ["matcher", "linear", "tree", "serving"],
    ["pipeline"],
    [
        "__main__",
        "train",
        "predict",
        "encode",
        "evaluate",
        "export",
        "launch",
        "check",
        "preprocess",
        "demo",
        "playground",
        "linear.train",
        "linear.predict",
        "linear.evaluate",
    ],
]
COMMAND_LINES = LAYERS[-1]

# Between parts of one layer only these, each for a reason.
SIDEWAYS = {
    ("linear", "tree"): "a ranker is trained over a tree",
    ("matcher", "linear"): "a label head begins as linear rankers, and its scores are chained as theirs are",
    ("matcher", "tree"): "the label head is fine-tuned level by level",
    ("serving", "linear"): "the exported graph holds the rankers' beam search",
    ("serving", "matcher"): "the exported graph may hold the fine-tuned head",
    ("serving", "tree"): "the exported graph walks the tree",
    ("features", "data"): "TF-IDF reads text files",
    ("features", "collective"): "ranks share out the texts",
    ("collective", "data"): "ranks write one matrix together",
    ("encoder", "data"): "documents are batched by length",
    ("metrics", "data"): "scores are read from and compared with matrices on disk",
}

# These run on clusters that have no TensorFlow.
WITHOUT_TENSORFLOW = ["common", "params", "data", "metrics", "tree", "linear"]
# So do these, with whose help they talk to each other; the rest of their package is TensorFlow's. (Loading the MPI
# backend starts MPI: tests/distributed/test_communicator.py sees to that one.) What fine-tuning trains on is arrays,
# which are made, and can be looked at, without it.
MODULES_WITHOUT_TENSORFLOW = [
    "check",
    "collective.channels",
    "collective.checking",
    "collective.communicator",
    "collective.exchange",
    "collective.joint_files",
    "collective.shared_looks",
    "collective.launching",
    "collective.partition",
    "collective.solo",
    "collective.stacking",
    "collective.stalls.marks",
    "collective.stalls.report",
    "collective.stalls.settings",
    "collective.stalls.state",
    "collective.stalls.watch",
    "launch",
    "matcher.batches",
    "matcher.candidate_kernels",
    "matcher.candidates",
    "matcher.levels",
]
BRING_TENSORFLOW = {"tensorflow", "tensorflow_text", "tf_keras", "keras", "transformers", "horovod"}


class Import(NamedTuple):
    """One import statement: who, what, where."""

    module: str
    target: str
    place: str


def modules():
    """Every module of the package: dotted name without the package's own, and file."""
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def imports(module, path):
    """What a module imports, inside functions too."""
    is_package = path.name == "__init__.py"
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, place)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = [PACKAGE, *filter(None, module.split("."))]
                keep = len(parents) - node.level + (1 if is_package else 0)
                base = ".".join([*parents[:keep], *filter(None, [node.module])])
            for alias in node.names:
                yield Import(module, f"{base}.{alias.name}", place)


def part_of(module):
    """The part of the house that a module belongs to: the longest entry of the table that names it."""
    known = [part for layer in LAYERS for part in layer if module == part or module.startswith(f"{part}.")]
    return max(known, key=len, default=None)


def height(part):
    """The number of the part's layer, from the bottom."""
    return next(level for level, layer in enumerate(LAYERS) if part in layer)


def own(target):
    """The part after the package's name, or None for somebody else's module."""
    if target == PACKAGE:
        return ""
    return target.removeprefix(f"{PACKAGE}.") if target.startswith(f"{PACKAGE}.") else None


def why_not(module, target):
    """What is wrong with ``module`` importing our own ``target``, or None."""
    here, there = part_of(module), part_of(target)
    if module == "" or here == there or target.startswith("__"):
        return None  # the package's own __init__ has a test of its own
    if there is None:
        return f"import {target or 'it'} from the module that defines it, not from {PACKAGE} itself"
    if there in COMMAND_LINES:
        return "nothing imports a command line"
    if height(there) > height(here):
        return f"{there} lies above {here}"
    if height(there) == height(here) and (here, there) not in SIDEWAYS:
        return f"{there} lies beside {here}, and the pair is not in SIDEWAYS"
    return None


def without_tensorflow(module):
    """Whether the module has to work on a machine that has no TensorFlow."""
    names = [*WITHOUT_TENSORFLOW, *MODULES_WITHOUT_TENSORFLOW]
    return any(module == name or module.startswith(f"{name}.") for name in names)


def test_every_module_has_its_place():
    homeless = [module for module, _ in modules() if module and part_of(module) is None]
    assert not homeless, f"not in LAYERS of {Path(__file__).name}: {homeless}"


def test_imports_run_downwards():
    wrong = []
    for module, path in modules():
        for one in imports(module, path):
            target = own(one.target)
            if target is not None and (reason := why_not(module, target)):
                wrong.append(f"{one.place} imports {one.target}: {reason}")
    assert not wrong, "\n".join(wrong)


def test_sideways_imports_form_no_circle():
    graph = {}
    for here, there in SIDEWAYS:
        assert height(here) == height(there), f"{here} and {there} are not in one layer"
        graph.setdefault(here, set()).add(there)
    list(graphlib.TopologicalSorter(graph).static_order())


def test_the_package_itself_imports_nothing_until_asked():
    path = ROOT / PACKAGE / "__init__.py"
    tree = ast.parse(path.read_text())
    lazy = {
        id(node)
        for part in ast.walk(tree)
        if isinstance(part, ast.FunctionDef) or (isinstance(part, ast.If) and ast.unparse(part.test) == "TYPE_CHECKING")
        for node in ast.walk(part)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in lazy:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
            assert all(name.split(".")[0] in sys.stdlib_module_names for name in names), f"{path}:{node.lineno}"


@pytest.mark.parametrize(
    ("module", "target", "reason"),
    [
        ("data.text", "tree.label_tree", "lies above"),
        ("tree.label_tree", "linear.model", "SIDEWAYS"),
        ("linear.model", "linear.train", "command line"),
        ("pipeline", "train", "command line"),
        ("common.errors", "XTransformer", "defines it"),
        ("linear.model", "tree.label_tree", None),
        ("linear.train", "linear.model", None),
        ("demo.main", "demo.corpus", None),
        ("data.text", "__version__", None),
    ],
)
def test_the_rule_itself(module, target, reason):
    said = why_not(module, target)
    assert (said is None) if reason is None else (reason in said)


def test_relative_and_function_level_imports_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    file = tmp_path / PACKAGE / "tree" / "deep.py"
    file.parent.mkdir(parents=True)
    file.write_text("from ..linear import model\nfrom . import splits\ndef f():\n    import xmc_tf.matcher\n")
    targets = [one.target for one in imports("tree.deep", file)]
    assert targets == ["xmc_tf.linear.model", "xmc_tf.tree.splits", "xmc_tf.matcher"]


def test_parts_without_tensorflow_name_none_of_its_kin():
    wrong = [
        f"{one.place} imports {one.target}"
        for module, path in modules()
        if without_tensorflow(module)
        for one in imports(module, path)
        if one.target.split(".")[0] in BRING_TENSORFLOW
    ]
    assert not wrong, "\n".join(wrong)


def test_parts_without_tensorflow_do_not_load_it():
    names = [
        f"{PACKAGE}.{module}"
        for module, _ in modules()
        # Command lines too: they answer --help, and predict for those who have features, without it.
        if without_tensorflow(module) and not module.endswith("__main__")
    ]
    assert {f"{PACKAGE}.{part}" for part in ("linear", "tree", "data", "params")} <= set(names)
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        f"    loaded = {BRING_TENSORFLOW!r} & set(sys.modules)\n"
        "    assert not loaded, f'{name} loads {sorted(loaded)}'\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
