"""The page of environment variables: every variable that the package reads or sets is on it."""

import ast
import re

from tools.docs.environment_page import VARIABLES
from tools.docs.examples import ROOT

LISTED = {name for variables in VARIABLES.values() for name in variables}
# Names of this form are variables wherever they are written; others only in a call that reads one.
_NAME = re.compile(r"(XMC_TF|HOROVOD|OMPI|PMI|PMIX|SLURM|HF|TF|OMP|NUMBA|TRANSFORMERS|PYTHON|XDG)_[A-Z][A-Za-z_]*")
_NOT_VARIABLES = {"HF_HUB", "OMPI_MCA_"}


def variables(code):
    """Return the environment variables that a module names."""
    tree, found = ast.parse(code), set()
    constants = {
        target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.fullmatch(node.value):
            found.add(node.value)
        for key in keys_of_environ(node):
            found.add(constants.get(key.id, key.id) if isinstance(key, ast.Name) else getattr(key, "value", None))
    return {name for name in found if isinstance(name, str) and re.fullmatch("[A-Z][A-Za-z_]+", name)}


def keys_of_environ(node):
    """Yield the keys with which an expression reads or sets ``os.environ``, and mappings that are named like it."""

    def is_environ(value):
        return ast.unparse(value) in ("os.environ", "environ", "environment")

    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_environ(node.func.value):
        yield from node.args[:1]
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.getenv", "getenv"):
        yield from node.args[:1]
    if isinstance(node, ast.Subscript) and is_environ(node.value):
        yield node.slice
    if isinstance(node, ast.Compare) and is_environ(node.comparators[0]):
        yield node.left


def in_the_package():
    files = (ROOT / "xmc_tf").rglob("*.py")
    return {name: file for file in files for name in variables(file.read_text(encoding="utf-8"))}


def test_every_variable_of_the_code_is_listed():
    found = in_the_package()
    assert {name: str(file) for name, file in found.items() if name not in LISTED | _NOT_VARIABLES} == {}


def test_every_listed_variable_is_in_the_code():
    code = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "xmc_tf").rglob("*.py"))
    assert {name for name in LISTED if name not in code} == set()
