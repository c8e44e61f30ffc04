"""The page for users of PECOS: its tables of flags, defaults and methods are right."""

import re
import shlex

from tests.distributed.launch import REPOSITORY
from tests.params.test_pecos_flags import PARSERS

PATH = REPOSITORY / "docs" / "how-to" / "from-pecos.md"
PAGE = PATH.read_text(encoding="utf-8")


def test_defaults_are_those_of_the_page():
    rows = re.findall(r"^\| `(--[\w-]+)` \| `([\w-]+)` \| (`[\w-]+`|not set) \|", PAGE, re.MULTILINE)
    assert len(rows) == 7
    defaults = {flag: action.default for action in PARSERS["train"]._actions for flag in action.option_strings}
    for flag, theirs, ours in rows:
        assert str(defaults[flag]) == ("None" if ours == "not set" else ours.strip("`"))
        assert str(defaults[flag]) != theirs


def test_pecos_settings_are_taken():
    (line,) = re.findall(r"^python -m xmc_tf\.train (.* --loss-function .*)$", PAGE, re.MULTILINE)
    given = PARSERS["train"].parse_args(shlex.split(line))
    assert (given.loss_function, given.negative_sampling, given.num_train_epochs) == ("squared-hinge", "tfn", 5)
