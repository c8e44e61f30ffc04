"""Two rules: imports run downwards only, and parts that need no TensorFlow never load it."""

import ast
import graphlib
import json
import re
import sys
from collections import Counter
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.installation.environments import Environment, packages
from xmc_tf.__main__ import MODULES
from xmc_tf.common.process.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "xmc_tf"

LOWER = {"plan", "server", "tree.show"}
# From the bottom up. A part may import from the rows below its own, never from its own row.
LAYERS = [
    ["common"],
    ["store"],
    ["params", "data"],
    ["metrics", "ranks", "tables", "words"],
    ["features", "encoder", "tree", "collective", "label_names"],
    ["fusion"],
    ["rankers"],
    ["matcher", "serving", "plan"],
    ["pipeline"],
    ["audit"],
    ["models"],
    ["report"],
    ["annif", "sklearn", "mlflow", "jobs", "sequences", "labels", "linear"],
    ["server"],
    # Command lines, but for those of packages that lie lower.
    ["__main__", "plan.__main__", *sorted({name.removeprefix("xmc_tf.") for name in MODULES.values()} - LOWER)],
]
COMMAND_LINES = LAYERS[-1]

# These run on clusters that have no TensorFlow.
WITHOUT_TENSORFLOW = [
    "common", "store", "params", "data", "metrics", "ranks", "tables", "words", "features", "tree", "label_names",
    "fusion", "rankers", "linear", "check", "launch", "plan", "audit", "report", "sklearn",
]  # fmt: skip
# The only modules of these parts that do.
WITH_TENSORFLOW = ["features.graph"]
# A module or package -> the extras without which it cannot be imported; "" for none. The longest name counts.
NEEDS = {
    **dict.fromkeys((
        "collective", "collective.checkpoints.checkpoint", "collective.checkpoints.training_state",
        "collective.optimizers.row_wise.keras_forms", "collective.optimizers.row_wise.updating",
        "encoder.byte_pairs", "encoder.charsmap", "encoder.code_points", "encoder.encoder", "encoder.graph_tokenizer",
        "encoder.network.operations", "encoder.network.packed_layout", "encoder.precision", "encoder.unigram",
        "features.graph", "matcher.bootstrap", "matcher.fine_tune", "matcher.head", "matcher.matcher",
        "matcher.optimizer", "matcher.progress", "models.saved_model", "sequences.model", "sequences.training",
        "serving",
    ), "tf"),
    **dict.fromkeys((
        "collective.blocks", "collective.checkpoints", "collective.dynamic_tables.kernels",
        "collective.engines.aligned", "collective.keras_2", "collective.keras_names", "collective.optimizers.row_wise",
        "collective.tables.kernels", "serving.arrangement", "serving.client", "serving.local", "serving.warmup",
    ), ""),
    **dict.fromkeys(("collective.engines.horovod_engine", "ranks.horovod_backend"), "distributed"),
    **dict.fromkeys(("ranks.mpi", "ranks.mpi_backend"), "mpi"),
    **dict.fromkeys(("encoder.token_files", "encoder.tokenizer"), "onnx"),
    "collective.engines.mpi_engine": "tf mpi", "server.predictions": "server", "sklearn": "sklearn", "annif": "annif",
}  # fmt: skip
# Tools that xmc_tf is a part of.
NOT_INSTALLED_BY_US = {"annif", "mlflow"}
# Prints which modules of a list cannot be imported, and which package they lack.
IMPORT_ALL = """
import importlib, json, sys
lacking = {}
for name in json.loads(sys.argv[1]):
    try:
        importlib.import_module("xmc_tf." + name)
    except ImportError as error:
        lacking[name] = error.name
    except Exception as error:
        lacking[name] = error.__context__.name  # an InputError that names the package
print(json.dumps(lacking))
"""
CONVENIENCE = {"collective.strategy", "collective.estimator"}
MOST_FILES = 20
IMPORTING = ("import_module", "__import__")
BRING_TENSORFLOW = {"tensorflow", "tensorflow_text", "tf_keras", "keras", "transformers", "horovod"}


class Import(NamedTuple):
    """One import statement: who, what, where."""

    module: str
    target: str
    place: str


def modules():
    """Return every module of the package: dotted name without the package's own, and file."""
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


@cache  # several tests ask for those of all modules
def nodes(path):
    """Return all nodes of a module's code."""
    return [*ast.walk(ast.parse(path.read_text(), str(path)))]


@cache
def imports(module, path):
    """Return the imports of a module, also inside functions and through ``import_module``."""
    return [*_imports(module, path)]


def _imports(module, path):
    is_package = path.name == "__init__.py"
    for node in nodes(path):
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
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in IMPORTING:
            names = [name for name in node.args[:1] if isinstance(name, ast.Constant)]
            yield from (Import(module, str(name.value), place) for name in names)


def part_of(module):
    """Return the part of the package that contains a module: the longest matching entry of the table."""
    known = [part for layer in LAYERS for part in layer if module == part or module.startswith(f"{part}.")]
    return max(known, key=len, default=None)


def height(part):
    """Return the number of the part's layer, from the bottom."""
    return next(level for level, layer in enumerate(LAYERS) if part in layer)


def own(target):
    """Return the part after the package's name, or None for a module of another package."""
    if target == PACKAGE:
        return ""
    return target.removeprefix(f"{PACKAGE}.") if target.startswith(f"{PACKAGE}.") else None


def why_not(module, target):
    """Return the problem with ``module`` importing our own ``target``, or None."""
    here, there = part_of(module), part_of(target)
    if module == "" or here == there:
        return None  # the package's own __init__ has a test of its own
    if there is None:
        return f"import {target or 'it'} from the module that defines it, not from {PACKAGE} itself"
    if there in COMMAND_LINES:
        return "nothing imports a command line"
    if height(there) > height(here):
        return f"{there} lies above {here}"
    if height(there) == height(here):
        return f"{there} lies beside {here}"
    return None


def is_in(module, parts):
    return any(module == part or module.startswith(f"{part}.") for part in parts)


def extra_of(module):
    """Return the extras without which a module cannot be imported, as declared."""
    return next((NEEDS[name] for name in sorted(NEEDS, key=len, reverse=True) if is_in(module, [name])), "")


def test_the_tour_of_the_code_names_files_that_exist():
    page = (ROOT / "docs" / "explanation" / "inside.md").read_text()
    named = sorted(set(re.findall(r"`([\w.-]+/[\w./-]*)`", page)))
    assert len(named) > 50
    assert [one for one in named if not (ROOT / one).exists() and not any((ROOT / PACKAGE).glob(f"**/{one}"))] == []


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


def test_modules_import_each_other_in_no_circle():
    """The one exception is a convenience method of the strategy, which makes an estimator of it."""
    files = dict(modules())
    graph = {module: set() for module in files}
    for module, path in files.items():
        for one in imports(module, path):
            target = own(one.target) or ""
            # "a.b.name" is the module a.b, or a.b.name where that is one.
            there = target if target in files else target.rpartition(".")[0]
            if there in files and there not in ("", module) and {module, there} != CONVENIENCE:
                graph[module].add(there)
    list(graphlib.TopologicalSorter(graph).static_order())


def test_each_class_has_a_name_of_its_own():
    places: dict[str, list[str]] = {}
    for _, path in modules():
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    shared = [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]
    assert not shared, "\n".join(shared)


def test_no_folder_is_crowded():
    counted = Counter(path.parent.relative_to(ROOT) for _, path in modules())
    crowded = {str(folder): count for folder, count in counted.items() if count > MOST_FILES}
    assert not crowded, f"more than {MOST_FILES} files: {crowded}"


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
        ("tree.label_tree", "rankers.xlinear", "lies above"),
        ("encoder.encoder", "features.tfidf", "lies beside"),
        ("rankers.xlinear", "linear.train", "command line"),
        ("pipeline", "train", "command line"),
        ("common.errors", "XTransformer", "defines it"),
        ("rankers.xlinear", "tree.label_tree", None),
        ("linear.train", "rankers.xlinear", None),
        ("demo.main", "demo.corpus", None),
        ("data.text", "__version__", "defines it"),
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
        if is_in(module, WITHOUT_TENSORFLOW) and not is_in(module, [*WITH_TENSORFLOW, "ranks.horovod_backend"])
        for one in imports(module, path)
        if one.target.split(".")[0] in BRING_TENSORFLOW
        and not one.target.startswith("horovod.runner")  # Horovod's launcher, which works without TensorFlow
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param("", id="core"),
        *(pytest.param(one, marks=pytest.mark.full) for one in ("tf", "onnx", "mpi", "server", "sklearn")),
    ],
)
def test_a_module_is_imported_with_the_extra_that_it_needs_alone(extra, tmp_path):
    """Imported in a process that sees the packages of the core and of one extra only."""
    files = dict(modules())
    names = [name for name in files if name and not name.endswith("__main__")]
    environment = Environment(tmp_path / "venv", [extra] if extra else [], install=False)
    lacking = json.loads(
        environment.run("python", "-c", IMPORT_ALL, json.dumps(names), cwd=tmp_path, env={"PYTHONPATH": str(ROOT)})
        .splitlines()[-1]
    )  # fmt: skip
    wrong = {name: package for name, package in lacking.items() if extra_of(name) in ("", extra)}
    assert not wrong, f"these lack packages, so that NEEDS has to say which extra they need: {wrong}"
    if not extra:
        assert {name: EXTRAS.get(package.split(".")[0], package) for name, package in lacking.items()} == {
            name: extra_of(name).split()[0]
            for name, path in files.items()
            if extra_of(name) and (path.name != "__init__.py" or name in lacking) and name in names
        }


def test_the_extra_of_each_package_brings_it():
    """EXTRAS says which extra to install for an import; its packages, and those of the core, are read from metadata."""

    distributions = packages_distributions()

    def brought_by(*extras):
        names = {package.metadata["Name"] for package in packages(extras)}
        return {module for module, of in distributions.items() if names & {*of}}

    imported = {one.target.split(".")[0] for module, path in modules() for one in imports(module, path)}
    foreign = imported - {*sys.stdlib_module_names, PACKAGE, *brought_by()}
    assert foreign - set(EXTRAS) == NOT_INSTALLED_BY_US
    for extra in sorted(set(EXTRAS.values()) - {"distributed", "gpus"}):  # Horovod is compiled; no test needs pynvml
        assert {module for module, one in EXTRAS.items() if one == extra} <= brought_by(extra), extra
