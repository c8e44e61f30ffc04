"""The page to try a model: what its server answers, and that it works in a browser with the keyboard alone."""

import http.client
import json
import re
import shutil
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.refusals import refused
from tests.serving import browser
from tests.serving.cases import HARD, NAMES, documents
from xmc_tf.playground import main as playground
from xmc_tf.server.application import Application
from xmc_tf.server.connections import bound_socket, in_background
from xmc_tf.server.page import routes
from xmc_tf.server.page.answering import Answering
from xmc_tf.server.page.routes import FILES, LIMITS, Page

_JSON = {"Content-Type": "application/json"}
TEXT = documents(1, seed=41)[0][0]


class Served(NamedTuple):
    """The page's server."""

    url: str

    @property
    def address(self):
        """Return host and port."""
        return "127.0.0.1", urlsplit(self.url).port


@contextmanager
def served(folder, **limits):
    """Yield the page's server."""
    with in_background(
        Application(Page(Answering(folder)), LIMITS._replace(**limits)), bound_socket("127.0.0.1", 0)
    ) as url:
        yield Served(f"{url}/")


@pytest.fixture(scope="module")
def of_export(exported):
    """Return the page's server for the small model, which it loads once."""
    with served(exported) as server:
        yield server


def ask(server, method, path, body=None, **headers):
    """Return status, headers and content of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.address[1], timeout=60)
    connection.request(method, path, body, headers)
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    return reply.status, reply.headers, content


def question(server, text):
    """Return the answer to a text."""
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
        ("POST", "/ask", '{"text": "a"}', {"Content-Type": "text/plain"}, 415, "application/json"),
        ("POST", "/ask", "{", {"Content-Type": "application/json"}, 400, "not JSON"),
        ("POST", "/ask", '{"text": 1}', {"Content-Type": "application/json"}, 400, "form"),
        ("POST", "/ask", '{"text": "a", "k": "5"}', {"Content-Type": "application/json"}, 400, "form"),
        ("POST", "/ask", "{}", {**_JSON, "Content-Length": "9" * 18}, 413, "too long"),
        ("POST", "/ask", "{}", {**_JSON, "Origin": "http://evil.example"}, 403, "requests only from itself"),
        ("GET", "/ask", None, {}, 405, "only accepts POST"),
        ("POST", "/about", "{}", _JSON, 405, "only accepts GET, HEAD"),
        ("DELETE", "/", None, {}, 405, "only accepts GET, HEAD"),
        ("GET", "/about", None, {"Host": "evil.example:8765"}, 403, "on this machine"),
    ],
)
def test_what_the_server_refuses(of_export, method, path, body, headers, status, message):
    found, _, content = ask(of_export, method, path, body, **headers)
    assert found == status
    assert message in content.decode()


def test_a_text_that_takes_too_long_gets_an_answer(of_export, monkeypatch):
    monkeypatch.setattr(routes, "_ANSWER_S", 0.0)
    status, content = question(of_export, TEXT)
    assert status == 504
    assert content["error"].startswith("no answer within")


def test_a_folder_that_is_missing_ends_the_command(tmp_path):
    refused("missing does not exist", playground, [str(tmp_path / "missing"), "-p", "0"])


def test_k_labels_and_what_scores_mean(of_export):
    about = json.loads(ask(of_export, "GET", "/about")[2])
    assert about["k"] == 5
    assert "a product" in about["meaning"]
    assert 1 <= len(about["examples"]) <= 3
    body = json.dumps({"text": TEXT, "k": 2})
    assert len(json.loads(ask(of_export, "POST", "/ask", body, **_JSON)[2])["labels"]) == 2
    for k in (0, 6, -1, 2**62):
        status, _, content = ask(of_export, "POST", "/ask", json.dumps({"text": TEXT, "k": k}), **_JSON)
        assert status == 422
        assert "from 1 to 5" in json.loads(content)["error"]
    assert ask(of_export, "HEAD", "/")[2] == b""


def test_a_wrong_folder_is_reported_and_can_be_fixed(exported, tmp_path):
    with served(tmp_path / "served") as server:
        status, _, content = ask(server, "GET", "/about")
        assert status == 422
        assert "does not exist" in json.loads(content)["error"]
        assert question(server, TEXT)[0] == 422
        shutil.copytree(exported.parent, tmp_path / "served")
        assert question(server, TEXT)[0] == 200


def test_the_page_loads_nothing_external(of_export):
    for path in FILES:
        _, headers, content = ask(of_export, "GET", path)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert not re.findall(rb"(?:https?:)?//[a-z]", content.replace(b"http://www.w3.org", b""))


def test_colours_can_be_distinguished_in_light_and_in_dark():
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
    """Return the contrast ratio of WCAG 2."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.usefixtures("chromium")
def test_in_a_browser_with_the_keyboard_alone(model, exported, tmp_path):
    with browser.page(tmp_path / "profile") as page:
        with served(exported) as server:
            page.open(server.url)
            page.until("!document.getElementById('ask').disabled")
            assert "60 labels" in page.js("document.getElementById('about').textContent")
            assert page.js("document.activeElement.id") == "text"
            page.write(TEXT)
            for _ in range(1 + page.js("document.querySelectorAll('.example').length")):
                page.key("Tab")
            page.key("Enter")
            page.until("document.querySelectorAll('#labels > li').length === 5")
            best = [name for name, _ in model.best([TEXT], k=5, beam_size=8)[0]]
            shown = "[...document.querySelectorAll('#labels .name')].map(e => e.textContent)"
            assert page.js(shown) == best
            assert "5 labels in" in page.js("document.getElementById('status').textContent")

            page.key("Tab")  # to the number of labels, then
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
