"""The page to try a model: what its server answers, and that it works in a browser with the keyboard alone."""

import http.client
import json
import re
import shutil
import threading
from contextlib import contextmanager

import pytest

from tests.serving import browser
from tests.serving.cases import HARD, NAMES, documents
from xmc_tf.playground.answering import Answering
from xmc_tf.playground.page import FILES
from xmc_tf.playground.server import MOST_BYTES, PageServer

TEXT = documents(1, seed=41)[0][0]


@contextmanager
def served(folder):
    """The page's server."""
    with PageServer(Answering(folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def ask(server, method, path, body=None, **headers):
    """Status, headers and content of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    connection.request(method, path, body, headers)
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    return reply.status, reply.headers, content


def question(server, text):
    """The answer to a text."""
    body = json.dumps({"text": text})
    status, _, content = ask(server, "POST", "/ask", body, **{"Content-Type": "application/json"})
    return status, json.loads(content)


def test_labels_come_with_scores_and_paths(model, exported):
    with served(exported.parent) as server:
        about = json.loads(ask(server, "GET", "/about")[2])
        assert about["labels"] == 60
        assert about["scale"] == "share"
        assert about["levels"] == list(model.tree.level_sizes[1:])
        for text in (TEXT, "", *(text.decode(errors="replace") for text in HARD), "\ud800 lone"):
            status, answer = question(server, text)
            assert status == 200
            best = model.best([text.encode(errors="replace")], k=5, beam_size=8)[0]
            assert [label["name"] for label in answer["labels"]] == [name for name, _ in best]
            for label, (_, score) in zip(answer["labels"], best, strict=True):
                assert label["score"] == pytest.approx(score, abs=1e-4)
                assert tuple(node["node"] for node in label["path"]) == model.tree.path(label["label"])[1:]
                assert all(node["score"] >= label["score"] for node in label["path"])
                assert all(set(node["examples"]) <= set(NAMES) for node in label["path"])


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "message"),
    [
        ("GET", "/../etc/passwd", None, {}, 404, "there is no"),
        ("POST", "/other", "{}", {}, 404, "there is no"),
        ("POST", "/ask", '{"text": "a"}', {"Content-Type": "text/plain"}, 415, "application/json"),
        ("POST", "/ask", "{", {"Content-Type": "application/json"}, 400, "form"),
        ("POST", "/ask", '{"text": 1}', {"Content-Type": "application/json"}, 400, "form"),
        ("POST", "/ask", "[]", {"Content-Type": "application/json"}, 400, "form"),
        ("GET", "/about", None, {"Host": "evil.example:8765"}, 403, "this machine alone"),
    ],
)
def test_what_the_server_refuses(exported, method, path, body, headers, status, message):
    with served(exported) as server:
        found, _, content = ask(server, method, path, body, **headers)
        assert found == status
        assert message in json.loads(content)["error"]


def test_texts_have_a_limit(exported):
    with served(exported) as server:
        headers = {"Content-Type": "application/json", "Content-Length": str(MOST_BYTES + 1)}
        assert ask(server, "POST", "/ask", None, **headers)[0] == 413


def test_a_wrong_folder_is_said_and_can_be_mended(exported, tmp_path):
    with served(tmp_path / "served") as server:
        status, _, content = ask(server, "GET", "/about")
        assert status == 422
        assert "does not exist" in json.loads(content)["error"]
        assert question(server, TEXT)[0] == 422
        shutil.copytree(exported.parent, tmp_path / "served")
        assert question(server, TEXT)[0] == 200


def test_the_page_asks_nobody_else_for_anything(exported):
    with served(exported) as server:
        for path in FILES:
            _, headers, content = ask(server, "GET", path)
            assert "default-src 'none'" in headers["Content-Security-Policy"]
            assert not re.findall(rb"(?:https?:)?//[a-z]", content.replace(b"http://www.w3.org", b""))


def test_colours_can_be_told_apart_in_light_and_in_dark():
    css = FILES["/page.css"][1]
    schemes = [dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in re.findall(r":root \{(.*?)\}", css, re.S)]
    assert len(schemes) == 2
    for colours in schemes:
        for ink, ground in [
            ("ink", "ground"), ("ink", "card"), ("quiet", "ground"), ("quiet", "card"), ("on-accent", "accent"),
            ("bad", "bad-ground"), ("ink", "bad-ground"),
        ]:  # fmt: skip
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
        assert contrast(colours["accent"], colours["ground"]) >= 3  # the focus, the bars


def contrast(a, b):
    """The ratio of WCAG 2."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_in_a_browser_with_the_keyboard_alone(model, exported, tmp_path):
    if browser.BINARY is None:
        pytest.skip("there is no Chromium here: the page was not tried in a browser, only what its server answers")
    with browser.page(tmp_path / "profile") as page:
        with served(exported) as server:
            page.open(server.url)
            page.until("!document.getElementById('ask').disabled")
            assert "60 labels" in page.js("document.getElementById('about').textContent")
            assert page.js("document.activeElement.id") == "text"
            page.write(TEXT)
            page.key("Tab")
            page.key("Enter")
            page.until("document.querySelectorAll('#labels > li').length === 5")
            best = [name for name, _ in model.best([TEXT], k=5, beam_size=8)[0]]
            shown = "[...document.querySelectorAll('#labels .name')].map(e => e.textContent)"
            assert page.js(shown) == best
            assert "5 labels in" in page.js("document.getElementById('status').textContent")

            page.key("Tab")  # to the best label, whose path opens and closes
            for open_, key in ((True, "Enter"), (False, " "), (True, " ")):
                page.key(key)
                page.until(f"document.querySelector('details').open === {str(open_).lower()}")
            path = page.js("document.querySelector('.path').innerText")
            for level, node in enumerate(model.tree.path(NAMES.index(best[0]))[1:], 1):
                size = model.tree.level_sizes[level]
                assert f"Level {level}: cluster {node + 1} of {size}" in path
            assert page.js("document.querySelector('.path').lastElementChild.innerText").startswith(best[0])

            told = page.accessible()
            assert ("textbox", "Text") in told
            assert ("button", "Find labels") in told
            assert ("heading", "Which labels does this text get?") in told
            assert ("list", f"Path through the tree to {best[0]}") in told

            # Enter with Ctrl asks from within the text; nothing of a text is taken for markup.
            page.js("document.getElementById('text').value = '<b>word3</b>'; document.getElementById('text').focus()")
            page.key("Enter", control=True)
            page.until("!document.getElementById('status').textContent.startsWith('Searching')")
            width = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
            for size in (320, 900):
                page.call(
                    "Emulation.setDeviceMetricsOverride", width=size, height=700, deviceScaleFactor=1, mobile=False
                )
                assert page.js(width)

        with served(tmp_path / "nothing") as server:
            page.open(server.url)
            page.until("!document.getElementById('trouble').hidden")
            assert "does not exist" in page.js("document.getElementById('trouble-text').textContent")
            assert page.js("document.getElementById('ask').disabled")
            shutil.copytree(exported, tmp_path / "nothing")
            page.js("document.getElementById('again').focus()")
            page.key("Enter")
            page.until("!document.getElementById('ask').disabled && document.getElementById('trouble').hidden")
