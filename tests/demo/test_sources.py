import sys

from tests.refusals import refused
from xmc_tf.demo.sources import package_folders, read_entries

SOURCE = '''
"""What the module is for."""
import not_installed_anywhere
raise SystemExit("this module must not run")

if True:
    def sort(values, axis=-1, *, stable: bool = False, **more):
        """Sorts."""
        def inner():
            """Not ours."""

class Layer(base.Module, Generic[T], metaclass=Meta):
    """A layer."""

    def __init__(self, units, name=None):
        """Not ours."""

    @property
    def shape(self):
        """Its shape."""

    @classmethod
    def load(cls, path):
        """Loads it."""

    def _hidden(self):
        """Not ours."""

class _Hidden:
    """Not ours."""

class ShapeError(ValueError):
    """A wrong shape."""

@contextlib.contextmanager
def opened(path):
    """Opens."""

def silent(): ...
'''


def test_what_is_documented_is_found_without_running_it(tmp_path):
    (tmp_path / "core.py").write_text(SOURCE)
    before = set(sys.modules)
    entries = list(read_entries(tmp_path, "pack"))
    assert set(sys.modules) == before
    assert [(e.kind, e.owner, e.name, e.parameters, e.bases) for e in entries] == [
        ("module", "", "core", (), ()),
        ("function", "", "sort", ("values", "axis", "stable"), ()),
        ("class", "", "Layer", ("units", "name"), ("Module",)),
        ("property", "Layer", "shape", (), ()),
        ("class method", "Layer", "load", ("path",), ()),
        ("exception", "", "ShapeError", (), ("ValueError",)),
        ("context manager", "", "opened", ("path",), ()),
    ]
    assert {e.module for e in entries} == {"pack.core"}


def test_files_that_cannot_be_read_are_passed_over(tmp_path):
    (tmp_path / "a_syntax.py").write_text('"""Doc."""\ndef broken(:\n')
    (tmp_path / "b_bytes.py").write_bytes(b'"""Caf\xe9."""\n')
    (tmp_path / "c_null.py").write_bytes(b'"""Doc."""\0\n')
    (tmp_path / "d_latin.py").write_bytes(b'# coding: latin-1\n"""Caf\xe9."""\n')
    assert [e.docstring for e in read_entries(tmp_path, "pack")] == ["Café."]


def test_tests_and_copies_are_not_read_and_the_order_is_that_of_the_names(tmp_path):
    for name in ("z.py", "a.py", "sub/__init__.py", "sub/m.py", "tests/t.py", "a_test.py", "_api/x.py", "n.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text('"""Doc."""\n')
    modules = [e.module for e in read_entries(tmp_path, "pack")]
    assert modules == ["pack.a", "pack.z", "pack.sub", "pack.sub.m"]


def test_packages_are_found_but_not_imported(tmp_path, monkeypatch):
    (tmp_path / "never_imported").mkdir()
    (tmp_path / "never_imported" / "__init__.py").write_text('raise RuntimeError("it was imported")\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    assert package_folders(["never_imported"])["never_imported"] == tmp_path / "never_imported"
    assert "never_imported" not in sys.modules


def test_a_missing_package_is_named():
    refused("no_such_package is not installed", package_folders, ["no_such_package"])
