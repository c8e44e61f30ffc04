"""The page for users of PECOS: its commands run, and what its tables say of flags, defaults and methods is so."""

import importlib
import re
import shlex

import numpy as np
import pytest

from tests.distributed.launch import REPOSITORY
from tests.params.pecos_flags import OUR_COMMANDS
from tests.params.test_pecos_flags import PARSERS
from xmc_tf.linear import XLinear
from xmc_tf.models.xr_linear import XRLinear

PATH = REPOSITORY / "docs" / "how-to" / "from-pecos.md"
PAGE = PATH.read_text(encoding="utf-8")
BLOCKS = [block.strip().splitlines() for block in re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]


def run(line):
    """One command of the page, in this process."""
    words = shlex.split(line)
    assert words[:2] == ["python", "-m"]
    importlib.import_module(words[2]).main(words[3:])


def test_the_commands_from_texts_to_figures_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    topics = ["harbour", "forest", "library"]
    rng = np.random.default_rng(0)
    for name, lines in (("train", 60), ("test", 12)):
        chosen = rng.integers(0, 3, lines)
        text = "".join(f"{topic}\ta {topics[topic]} and word{rng.integers(9)}\n" for topic in chosen)
        (tmp_path / f"{name}.txt").write_text(text)
    (tmp_path / "labels.txt").write_text("".join(f"{topic}\n" for topic in topics))
    printed = []
    for line in BLOCKS[0]:
        run(line)
        printed.append(capsys.readouterr().out)
    assert printed[-1].startswith("==== evaluation results ====\nprec   = 100.00 50.00 33.33")
    assert printed[-2] == printed[-1]
    assert (tmp_path / "pred").is_file()


def test_the_commands_table_is_whole():
    rows = re.findall(r"^\| `(pecos\.[\w. ]+)` \| `xmc_tf\.([\w. ]+)` \|$", PAGE, re.MULTILINE)
    assert dict(rows) == OUR_COMMANDS


def test_defaults_are_those_of_the_page():
    rows = re.findall(r"^\| `(--[\w-]+)` \| `([\w-]+)` \| (`[\w-]+`|not set) \|", PAGE, re.MULTILINE)
    assert len(rows) == 7
    defaults = {flag: action.default for action in PARSERS["train"]._actions for flag in action.option_strings}
    for flag, theirs, ours in rows:
        assert str(defaults[flag]) == ("None" if ours == "not set" else ours.strip("`"))
        assert str(defaults[flag]) != theirs


def test_pecos_settings_are_taken():
    (line,) = BLOCKS[1]
    given = PARSERS["train"].parse_args(shlex.split(line)[3:])
    assert (given.loss_function, given.negative_sampling, given.num_train_epochs) == ("squared-hinge", "tfn", 5)


@pytest.mark.parametrize(("cls", "name"), re.findall(r"`(XLinear|XRLinear|XTransformer)\.(\w+)\(", PAGE))
def test_methods_exist(cls, name):
    classes = {"XLinear": XLinear, "XRLinear": XRLinear}
    found = classes.get(cls) or importlib.import_module("xmc_tf.models.xtransformer").XTransformer
    assert callable(getattr(found, name))


def test_what_the_page_names_exists():
    for module in re.findall(r"python -m (tests\.[\w.]+)", PAGE):
        assert (REPOSITORY / (module.replace(".", "/") + ".py")).is_file(), module
    links = re.findall(r"\]\(([\w./-]+)#([\w-]+)\)", PAGE)
    assert links
    for name, anchor in links:
        headings = re.findall(r"^#+ (.*)$", (PATH.parent / name).read_text(), re.MULTILINE)
        assert anchor in [heading.lower().replace(" ", "-").replace(":", "").replace(",", "") for heading in headings]
