"""The page on rankers over ranks: its commands are valid, and its limits are those that ``xmc-tf plan`` estimates."""

import re
from pathlib import Path

from xmc_tf.linear.train import parser
from xmc_tf.plan.sizes import DataSizes
from xmc_tf.plan.stages import ranker_work

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "rankers-over-ranks.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"-m xmc_tf\.linear\.train (.*?)(?:\s+#.*)?$", PAGE, flags=re.MULTILINE)


def test_commands_and_flags_are_valid():
    assert len(COMMANDS) == 3
    for command in COMMANDS:
        assert parser().parse_args(command.split()).model_folder == "model"
    known = {spelling for action in parser()._actions for spelling in action.option_strings}
    for flags in re.findall(r"^\| (`-.*?) \|", PAGE, flags=re.MULTILINE):
        for flag in re.findall(r"`(-[\w-]+)`", flags):
            assert flag in known


def test_the_limits_are_those_of_the_formula():
    rows = re.findall(r"^\| ([\d,]+) \| ([\d,]+) \| (\d+) \|", PAGE, flags=re.MULTILINE)
    assert len(rows) == 4
    for labels, documents, stated in rows:
        data = DataSizes(int(labels.replace(",", "")), int(documents.replace(",", "")), 4.9, 30)
        work = ranker_work(data, data.entries)
        assert round(work.total / work.longest) == int(stated)
