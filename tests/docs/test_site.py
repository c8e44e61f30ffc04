"""The documentation site: it builds strictly, refers to no other server, and has everything that is public."""

import dataclasses
import re

import pytest

import xmc_tf
from tools.docs import __main__ as build
from tools.docs import command_pages, parameter_page, public_names
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
