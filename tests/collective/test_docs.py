"""The statement of docs/explanation/collective.md about its scripts, which tests/docs runs, is true."""

import difflib
import re

from tests.distributed.launch import REPOSITORY

PAGE = (REPOSITORY / "docs" / "explanation" / "collective.md").read_text()
SCRIPTS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
BEFORE, AFTER = SCRIPTS[:2]


def test_the_scripts_differ_in_three_lines_and_an_import():
    def lines(script):
        return [line.split("#")[0].strip() for line in script.splitlines() if line.strip()]

    changes = list(difflib.ndiff(lines(BEFORE), lines(AFTER)))
    added = [line[2:] for line in changes if line.startswith("+ ")]
    removed = [line[2:] for line in changes if line.startswith("- ")]
    assert [line.split()[0] for line in added] == [
        "from",
        "strategy",
        "with",
        "model.fit(data.shard(strategy.world_size(),",
    ]
    assert removed == ["model.fit(data, epochs=3)"]
