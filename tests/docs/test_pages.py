"""The tutorial and the how-to guides: all examples run, print what the pages show, and name what exists.

The tutorial runs first, once. Each guide then runs in a copy of the folder that the tutorial leaves behind, as it says.
"""

import os
import re
import shlex
import shutil
from contextlib import ExitStack

import pytest

from tests.distributed.launch import REPOSITORY
from tests.docs.page_blocks import Reader, command_name, parser_of, run_page
from tests.serving.stand_in import over_grpc, rest
from tools.docs.blocks import blocks, commands
from tools.docs.examples import RUN, SHOWN, pages
from tools.docs.shown_outputs import compared, is_shown, renewed, rewrite
from xmc_tf.__main__ import MODULES

DOCS = REPOSITORY / "docs"
TUTORIAL = DOCS / "tutorial.md"
GUIDES = sorted((DOCS / "how-to").glob("*.md"))
PAGES = [TUTORIAL, *GUIDES]
REST, GRPC = "http://localhost:8501", "grpc://localhost:8500"
# They need several hosts, a cluster, Annif, an encoder of the hub, or a person at a page.
WITHOUT_EXAMPLES = {
    "distributed-problems", "schedulers", "annif-backend", "languages", "sharing", "choosing-encoders",
    "serving-without-tensorflow", "label",
}  # fmt: skip
WITHOUT_FIGURES = {"audit"}  # they show none that depend on the table: a part of its rows does
OUTSIDE = {"http", "https", "mailto"}


def title(page):
    return page.stem


def read(page, folder, monkeypatch, renew):
    """Run a page in a folder, and return how the outputs that it shows differ; with ``renew``, rewrite them."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "110")  # 80 in the processes of pytest-xdist
    export = folder / "served" / "1"
    with ExitStack() as stack:
        servers = {
            REST: lambda: stack.enter_context(rest(export)),
            GRPC: lambda: stack.enter_context(over_grpc(export)),
        }
        outputs = list(run_page(page, Reader(folder, servers)))
    return compared(page, outputs, renew)


@pytest.fixture(scope="module")
def after_the_tutorial(tmp_path_factory, renew):
    folder = tmp_path_factory.mktemp("tutorial")
    with pytest.MonkeyPatch.context() as monkeypatch:
        wrong = read(TUTORIAL, folder, monkeypatch, renew)
    return folder, wrong


@pytest.mark.full
def test_the_tutorial_prints_what_it_shows(after_the_tutorial):
    folder, wrong = after_the_tutorial
    assert wrong == "", wrong
    assert (folder / "served" / "1" / "saved_model.pb").is_file()


@pytest.mark.full
@pytest.mark.parametrize("page", GUIDES, ids=title)
def test_a_guide_prints_what_it_shows(page, after_the_tutorial, tmp_path, monkeypatch, renew):
    folder = tmp_path / "work"
    shutil.copytree(after_the_tutorial[0], folder, copy_function=os.link)
    if page.stem in WITHOUT_FIGURES:
        head, *rows = (folder / "data.csv").read_text(encoding="utf-8").splitlines(keepends=True)
        for path in folder.glob("data.*"):  # hard links: those of the tutorial stay
            if path.is_file():
                path.unlink()
        (folder / "data.csv").write_text("".join([head, *rows[::5]]), encoding="utf-8")
    wrong = read(page, folder, monkeypatch, renew)
    assert wrong == "", wrong


@pytest.mark.parametrize("page", pages(), ids=title)
def test_blocks_that_are_not_run_have_commands_that_are_understood(page):
    for block in blocks(page):
        assert page not in PAGES or block.language in (*RUN, *SHOWN), f"{block}: {block.language!r}"
        if block.language != "text":
            continue
        for line in commands(block):
            found = re.search(r"(?:^|\s)(?:xmc-tf|python -m (?=xmc_tf)|\S+\.sbatch (?=xmc_tf)) *(.*)$", line)
            if found and "…" not in line:
                assert parsed(shlex.split(found[1])), f"{block}: {line}"


def parsed(words):
    """Return whether the parser of a command accepts its flags."""
    if words[0] in ("--help", "--version"):
        return True
    if words[0].startswith("xmc_tf."):
        module, arguments = words[0], words[1:]
    else:
        name = command_name(words)
        module, arguments = MODULES[name], words[len(name.split()) :]
    return parser_of(module).parse_args(arguments) is not None


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_a_page_names_what_exists(page):
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"(?<![\w/])((?:launch|docker|examples|configs)/[\w/.-]*\w)", text):
        assert (REPOSITORY / name).exists(), name
    for link in re.findall(r"\]\(([^)#\s]+)", text):
        if link.partition(":")[0] not in OUTSIDE:
            assert (page.parent / link).exists(), link


def test_benchmarks_and_comparisons_that_pages_name_exist():
    named = {
        (page.name, module)
        for page in (REPOSITORY / "README.md", *DOCS.rglob("*.md"))
        for module in re.findall(r"python -m ((?:tests|benchmarks)\.[\w.]+)", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    for page, module in named:
        path = REPOSITORY / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), f"{page}: {module}"


def test_all_pages_are_found():
    assert len(GUIDES) >= 10
    assert {
        title(page) for page in PAGES if not any(block.language in RUN for block in blocks(page))
    } == WITHOUT_EXAMPLES


PRINTED = "reading\n   @1    @3\nP  62.72  50.00\nR  21.10  48.51\nin 3.2 s\nnumpy.sort 0.91\ndone\n"
SHOWN_OUTPUTS = [  # what a page shows, whether it is what was printed, and what it shows after a renewal
    ("…\n@1  @3\nP  62.72  50.00\n…\n", True, "…\n   @1    @3\nP  62.72  50.00\n…\n"),
    ("…\n@1  @3\nP  62.71  50.00\n…\n", False, "…\n   @1    @3\nP  62.72  50.00\n…\n"),
    ("…\nP  62.7…\n…\ndone\n", True, "…\nP  62.7…\n…\ndone\n"),
    ("…\nP  61.9…\n…\ndone\n", False, "…\nP  62.7…\n…\ndone\n"),
    ("…\nin … s\n…\n", True, "…\nin … s\n…\n"),
    ("…\nnumpy.argsort 0.92\ndone\n", False, "…\nnumpy.sort 0.91\ndone\n"),
    ("…\nR  21.10  48.51\nnumpy.sort 0.91\n…\n", False, "…\nR  21.10  48.51\nin 3.2 s\n…\n"),
    ("reading\n…\nnumpy.sort 0.91\n", False, "reading\n…\nnumpy.sort 0.91\n…\n"),
    ("R  21.11  48.51\n…\n", False, "…\nR  21.10  48.51\n…\n"),
    ("P  62.72  50.00\n", False, "…\nP  62.72  50.00\n…\n"),
    ("P  62.71  50.00\n", False, PRINTED),
]  # fmt: skip


def test_an_output_is_shown_number_for_number_and_renewed_from_a_run(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("".join(f"```bash\nx\n```\n\n```text\n{shown}```\n\n" for shown, _, _ in SHOWN_OUTPUTS))
    found = [block for block in blocks(page) if block.language == "text"]
    assert [is_shown(block.code, PRINTED) for block in found] == [right for _, right, _ in SHOWN_OUTPUTS]
    assert [renewed(block.code, PRINTED) for block in found] == [after for _, _, after in SHOWN_OUTPUTS]
    wrong = [block for block, (_, right, _) in zip(found, SHOWN_OUTPUTS, strict=True) if not right]
    assert rewrite(page, [(block, PRINTED) for block in found]) == wrong
    again = [block for block in blocks(page) if block.language == "text"]
    assert all(is_shown(block.code, PRINTED) for block in again)
    assert len(again) == len(found)
