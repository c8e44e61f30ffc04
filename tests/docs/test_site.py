"""The documentation site: it builds strictly, refers to no other server, and has everything that is public."""

import ast
import dataclasses
import re

import pytest

import xmc_tf
from tools.docs import __main__ as build
from tools.docs import command_pages, parameter_page, public_names
from tools.docs.environment_page import VARIABLES
from tools.docs.examples import ROOT
from xmc_tf.__main__ import MODULES

_LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=\"?(https?:)?//", re.IGNORECASE)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built once."""
    folder = tmp_path_factory.mktemp("site")
    assert build.build_site(folder) == 0
    return folder


def html(site, name):
    return (site / name).read_text(encoding="utf-8")


@pytest.mark.full
def test_no_page_loads_anything_from_another_server(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 10
    assert [page.name for page in pages if _LOADED.search(page.read_text(encoding="utf-8"))] == []
    assert (site / "search" / "search_index.json").is_file()


@pytest.mark.full
def test_every_public_name_has_its_place(site):
    ids = {name for page in site.rglob("*.html") for name in re.findall(r'id="([\w.]+)"', page.read_text("utf-8"))}
    for name, value in public_names.public_names().items():
        assert {name, f"{value.__module__}.{value.__qualname__}"} & ids, name


@pytest.mark.full
def test_signatures_and_arguments_are_rendered(site):
    page = html(site, "reference/models.html")
    assert 'class="doc doc-object-name doc-class-name">XTransformer<' in page
    assert "<b>Parameters:</b>" in page or "Parameters:" in page
    assert "&gt;&gt;&gt;" in page


@pytest.mark.full
@pytest.mark.parametrize("command", MODULES)
def test_every_command_is_described(command, site):
    page = html(site, "reference/commands.html")
    assert f'id="{command_pages.anchor(command)}"' in page
    parser = command_pages.parser_of(MODULES[command])
    for one in (parser, *command_pages.sub_parsers(parser).values()):
        for action in one._actions:
            for flag in action.option_strings:
                assert f"<code>{flag}</code>" in page, flag


@pytest.mark.parametrize("cls", parameter_page.classes(), ids=lambda cls: cls.__name__)
def test_every_parameter_is_described(cls):
    section = parameter_page.section(cls)
    assert section.startswith(f"::: xmc_tf.{cls.__name__}\n")
    for name in (field.name for field in dataclasses.fields(cls)):
        assert f"\n| `{name}` | " in section


def test_a_row_shows_type_default_meaning_and_limits():
    section = parameter_page.section(xmc_tf.TfidfParams)
    expected = "| `ngram_max` | `int` | `2` | maximum length of word n-grams (at least 1, at most 8) |"
    assert expected in section.splitlines()


def test_options_show_their_defaults():
    section = command_pages.section("predict")
    assert "| `-n`, `--threads` `INT` | `-1` | number of threads; -1: one per core |" in section.splitlines()
    assert "xmc-tf predict -m model -q" in section
    assert "python -m" not in section


def test_nothing_is_undocumented_and_every_example_runs(capsys):
    assert build.count() == 0
    out = capsys.readouterr().out
    assert re.search(r"^undocumented public names: 0 \(of \d{2,}\)$", out, re.MULTILINE)
    assert re.search(r"^examples that are not run: 0 \(of \d{2,}\)$", out, re.MULTILINE)


def test_a_name_without_a_page_is_counted():
    found = public_names.problems(["::: xmc_tf.XRLinear\n"])
    assert "xmc_tf.load: no reference page has it" in found
    assert "xmc_tf.XRLinear: no reference page has it" not in found


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
    sources = {file: file.read_text(encoding="utf-8") for file in (ROOT / "xmc_tf").rglob("*.py")}
    naming = re.compile(rf"environ|getenv|{_NAME.pattern}")  # the others take long to look through
    return {name: file for file, code in sources.items() if naming.search(code) for name in variables(code)}


def test_every_variable_of_the_code_is_listed():
    found = in_the_package()
    assert {name: str(file) for name, file in found.items() if name not in LISTED | _NOT_VARIABLES} == {}


def test_every_listed_variable_is_in_the_code():
    code = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "xmc_tf").rglob("*.py"))
    assert {name for name in LISTED if name not in code} == set()
