"""The tutorial and the pages for users of other systems run as they stand, where what a page says installs them."""

import json
import re

import pytest

from tests.installation.environments import ROOT, Environment
from tests.installation.test_commands import CACHE
from tests.serving.stand_in import rest
from tools.docs.blocks import blocks
from tools.docs.examples import RUN

pytestmark = pytest.mark.full
SERVER = "http://localhost:8501"
TRY = "xmc-tf try served"
# It serves until somebody presses Ctrl-C.
TRY_ONCE = """xmc-tf try served -p 0 >try.log & server=$!
until grep -q http try.log; do kill -0 $server; sleep 0.2; done
kill -INT $server; wait $server || true"""
# One session of Python, in which the commands of bash run as the page places them.
SESSION = """
import json, subprocess, sys
names = {"__name__": "__main__"}
for language, code in json.load(open(sys.argv[1], encoding="utf-8")):
    if language == "python":
        exec(compile(code, "page", "exec"), names)
    else:
        subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=True)
"""


class Reader:
    """Somebody who installs what a page says first, and runs its blocks in one folder."""

    def __init__(self, page, folder):
        text = page.read_text(encoding="utf-8")
        found = re.search(r"pip install '?\.(?:\[([\w,]+)\])?", text)
        assert found, f"{page} does not say what to install"
        self.environment = Environment(folder / "venv", found[1].split(",") if found[1] else [])
        self.steps = [(block.language, block.code) for block in blocks(page) if block.language in RUN]
        self.folder = folder / "work"
        self.folder.mkdir()

    def run(self, wanted=lambda code: True, **replaced):
        """Run some blocks, as one session, after replacing parts of their text."""
        steps = [step for step in self.steps if wanted(step[1])]
        assert steps
        content = json.dumps(steps)
        for old, new in replaced.values():
            assert json.dumps(old)[1:-1] in content
            content = content.replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1])
        blocks_of_page = self.folder.parent / "blocks.json"
        blocks_of_page.write_text(content, encoding="utf-8")
        return self.environment.run("python", "-c", SESSION, blocks_of_page, cwd=self.folder, env=CACHE)


@pytest.mark.parametrize("page", ["from-pecos", "from-parallel-bert", "from-annif", "deeprec-torchrec"])
def test_a_page_for_users_of_another_system_runs(page, tmp_path):
    Reader(ROOT / "docs" / "how-to" / f"{page}.md", tmp_path).run()


def test_the_tutorial_runs(tmp_path):
    """The page of `xmc-tf try` is served and stopped. A stand-in for TensorFlow Serving serves the export."""
    tutorial = Reader(ROOT / "docs" / "tutorial.md", tmp_path)
    assert "P@1" in tutorial.run(lambda code: SERVER not in code, ends=(TRY, TRY_ONCE))
    with rest(tutorial.folder / "served" / "1") as url:
        assert "scipy" in tutorial.run(lambda code: SERVER in code, server=(SERVER, url))
