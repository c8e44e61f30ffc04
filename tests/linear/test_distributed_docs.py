"""The page on rankers over ranks: its commands are valid, and its limits are those that ``xmc-tf plan`` estimates."""

import re
from pathlib import Path

from xmc_tf.plan.sizes import DataSizes
from xmc_tf.plan.stages import ranker_work

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "rankers-over-ranks.md").read_text(encoding="utf-8")


def test_the_limits_are_those_of_the_formula():
    rows = re.findall(r"^\| ([\d,]+) \| ([\d,]+) \| (\d+) \|", PAGE, flags=re.MULTILINE)
    assert len(rows) == 4
    for labels, documents, stated in rows:
        data = DataSizes(int(labels.replace(",", "")), int(documents.replace(",", "")), 4.9, 30)
        work = ranker_work(data, data.entries)
        assert round(work.total / work.longest) == int(stated)
