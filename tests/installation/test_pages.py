"""The tutorial and the pages for users of other systems run as they stand, where what a page says installs them."""

import json
import re
from functools import cache

import pytest

from tests.installation.environments import ROOT, Environment
from tests.installation.test_commands import CACHE
from tests.serving.stand_in import rest
from tools.docs.blocks import blocks
from tools.docs.examples import RUN

pytestmark = pytest.mark.full
SERVER = "http://localhost:8501"
TRY = "xmc-tf try served"
# It serves until it is ended. A shell lets programs in the background ignore Ctrl-C, but not SIGTERM.
TRY_ONCE = """xmc-tf try served -p 0 >try.log & server=$!
until grep -q http try.log; do kill -0 $server; sleep 0.2; done
kill -TERM $server; wait $server || true"""
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

    def __init__(self, page, folder, installed):
        text = page.read_text(encoding="utf-8")
        found = re.search(r"pip install '?\.(?:\[([\w,]+)\])?", text)
        assert found, f"{page} does not say what to install"
        self.environment = installed(found[1])
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


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return a function that makes an environment for extras; pages with the same extras share it."""
    return cache(lambda extras: Environment(tmp_path_factory.mktemp("venv"), extras.split(",") if extras else []))


@pytest.mark.parametrize("page", ["from-pecos", "from-parallel-bert", "from-annif", "deeprec-torchrec"])
def test_a_page_for_users_of_another_system_runs(page, installed, tmp_path):
    Reader(ROOT / "docs" / "how-to" / f"{page}.md", tmp_path, installed).run()


def test_the_tutorial_runs(installed, tmp_path):
    """The page of `xmc-tf try` is served and stopped. A stand-in for TensorFlow Serving serves the export.

    `tests/docs/test_pages.py` compares the figures, which all packages' documents have.
    """
    tutorial = Reader(ROOT / "docs" / "tutorial.md", tmp_path, installed)
    fewer = ('["numpy", "scipy", "keras"]', '["numpy"]')
    assert "P@1" in tutorial.run(lambda code: SERVER not in code, ends=(TRY, TRY_ONCE), documents=fewer)
    with rest(tutorial.folder / "served" / "1") as url:
        assert "package: numpy" in tutorial.run(lambda code: SERVER in code, server=(SERVER, url))
