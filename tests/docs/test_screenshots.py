"""The command that makes the pictures: its choices, and what it asks the browser for."""

import json
import sys

import pytest

from tools import screenshots
from xmc_tf.server.page.files import FILES


def test_pictures_are_where_the_pages_show_them():
    for name, picture in screenshots.PICTURES.items():
        assert picture.is_file()
        pages = [screenshots.ROOT / "README.md", *(screenshots.ROOT / "docs").rglob("*.md")]
        assert any(f"{name}.png)" in page.read_text(encoding="utf-8") for page in pages)


def test_a_missing_browser_is_named(monkeypatch, capsys):
    monkeypatch.setattr(screenshots.shutil, "which", lambda name: None)
    assert screenshots.main([]) == 1
    assert "fix: apt-get install chromium" in capsys.readouterr().err


def test_an_unknown_picture_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        screenshots.main(["playgruond"])
    assert "no such picture: playgruond" in capsys.readouterr().err


BROWSER = """#!{python}
import json, sys, urllib.request
url = sys.argv[-1]
script = urllib.request.urlopen(url + "page.js").read().decode()
about = json.load(urllib.request.urlopen(url + "about"))
picture = next(flag.partition("=")[2] for flag in sys.argv if flag.startswith("--screenshot="))
with open(picture, "w") as file:
    json.dump([sys.argv[1:], script, about], file)
"""


def test_the_browser_opens_the_page_with_a_text(tmp_path, monkeypatch, exported):
    browser = tmp_path / "chromium"
    browser.write_text(BROWSER.format(python=sys.executable))
    browser.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    before = FILES["/page.js"]
    assert screenshots.main(["playground", "--model", str(exported), "--output", str(tmp_path)]) == 0
    flags, script, about = json.loads((tmp_path / "playground.png").read_text())
    assert "--window-size=1280,1000" in flags
    assert json.dumps(screenshots.TEXT) in script
    assert about["labels"] == 60
    assert FILES["/page.js"] == before


def test_a_browser_that_takes_no_picture_is_an_error(tmp_path):
    with pytest.raises(OSError, match="wrote no picture"):
        screenshots.take("true", tmp_path / "a.png", "http://127.0.0.1:1/", height=10)
