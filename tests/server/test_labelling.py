"""The page to label texts: what is kept, what is learned, what is refused, and its use in a browser."""

import csv
import http.client
import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlsplit

import pytest
from scipy.sparse import csr_matrix

from tests.refusals import refused
from tests.serving import browser
from xmc_tf import XRLinear
from xmc_tf import label as labelling
from xmc_tf.audit.corrections import HEADER
from xmc_tf.label import LabelPage
from xmc_tf.label import main as label
from xmc_tf.server.application import Application
from xmc_tf.server.connections import bound_socket, in_background
from xmc_tf.server.labelling import learning
from xmc_tf.server.labelling.desk import Desk, NameSearch
from xmc_tf.server.labelling.learning import Learner, measured, worth
from xmc_tf.server.labelling.store import DONE, SKIPPED, LabelStore
from xmc_tf.server.labelling.suggesting import Suggester
from xmc_tf.server.labelling.training import train, train_aside
from xmc_tf.server.page.routes import LIMITS, ON_THIS_MACHINE
from xmc_tf.tables.reading.sources import open_source

_JSON = {"Content-Type": "application/json"}
NAMES = ["baking\tbread making", "gardening", "sparse matrices\tsparse matrix", "sailing", "herbs"]
PLACES = ("in spring", "at home", "for beginners", "in the north", "of old", "by the sea", "on sunday", "with friends")
TEXTS = [
    f"{what} {where}"
    for what in ("baking rye bread", "gardening with herbs", "a sparse matrix", "sailing boats", "dry herbs")
    for where in PLACES
]


@pytest.fixture(scope="module")
def model():
    return XRLinear.train(TEXTS, names=NAMES)


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch):
    monkeypatch.setattr(learning, "train_aside", lambda *inputs: train(*inputs[:-1]))


@contextmanager
def desk_of(folder, model, names=NAMES, uris=None):
    """Yield a store, the learner, and functions that post and get as people do."""
    store = LabelStore.open(folder / "texts.labels.sqlite")
    store.add_texts([str(row) for row in range(len(TEXTS))], TEXTS, [False] * len(TEXTS))
    learner = Learner(model, store, names)
    desk = Desk(store, learner, names, uris)
    application = Application(LabelPage(desk, learner, ON_THIS_MACHINE), LIMITS)
    with in_background(application, bound_socket("127.0.0.1", 0)) as url:
        yield store, learner, lambda *asked, **headers: ask(urlsplit(url).port, *asked, **headers)
    store.close()


def ask(port, method, path, body=None, **headers):
    """Return status and content of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    content = json.dumps(body) if isinstance(body, dict) else body
    connection.request(method, path, content, {**_JSON, **headers} if method == "POST" else headers)
    reply = connection.getresponse()
    content = reply.read().decode()
    connection.close()
    return reply.status, json.loads(content) if reply.headers["Content-Type"] == "application/json" else content


def posted(client, path, **body):
    status, content = client("POST", path, body)
    assert status == 200, content
    return content


def fitting(text):
    """Return the labels that a person would accept."""
    words = {"baking": "baking", "gardening": "gardening", "herbs": "herbs", "sparse": "sparse matrices",
             "sailing": "sailing"}  # fmt: skip
    return [name for word, name in words.items() if word in text]


def test_answers_are_kept_as_they_are_given_and_the_model_learns(model, tmp_path):
    with desk_of(tmp_path, model) as (store, learner, client):
        shown = posted(client, "/text", person="ann")
        assert posted(client, "/text", person="ann")["text"] == shown["text"]  # until it is finished
        seen = []
        for _ in range(30):
            seen.append(shown["text"])
            for name in fitting(shown["content"]):
                posted(client, "/answer", person="ann", text=shown["text"], label=name, answer=1)
            posted(client, "/answer", person="ann", text=shown["text"], label="sailing", answer=-1)
            posted(client, "/answer", person="ann", text=shown["text"], label="sailing", answer=1)
            if "sailing" not in shown["content"]:
                posted(client, "/answer", person="ann", text=shown["text"], label="sailing", answer=0)
            shown = posted(client, "/finish", person="ann", text=shown["text"])
        assert len(set(seen)) == 30
        held_out = [store.text(one).held_out for one in seen]
        assert [place for place, one in enumerate(held_out, 1) if one] == [10, 20, 30]  # one in ten, at random
        learner.update()
        back = posted(client, "/text", person="ann", text=shown["text"], back=True)
        assert back["text"] == seen[-1]
        assert {one["label"] for one in back["labels"] if one["answer"] == 1} == set(fitting(back["content"]))
    with desk_of(tmp_path, model) as (store, learner, client):  # all is there after a new start
        learner.update()
        trained = [text for _, text, _ in store.labelled(held_out=False)]
        assert learner.learned == len(trained) == 27
        (_, of_names), (trained_model, share) = learner.suggester.parts
        assert trained_model.metadata.content["nr_documents"] == 27
        assert (of_names, share) == pytest.approx((200 / 227, 27 / 227))
        held = [text for _, text, _ in store.labelled(held_out=True)]
        assert len(held) == 3
        assert not trained_model.trained_documents.include(held).any()
        progress = client("GET", "/progress")[1]
        assert progress["finished"] == 30
        assert progress["figures"]["documents"] == 3
        assert progress["figures"]["precision"] == pytest.approx(sum(
            learner.suggester.explain(text, 1)[0].name in fitting(text) for text in held
        ) / 3)  # fmt: skip


def test_a_model_with_documents_gets_them_appended(tmp_path):
    trained = XRLinear.train(TEXTS[:8], [["baking"]] * 4 + [["herbs"]] * 4, keep_training_data=True)
    store = LabelStore.open(tmp_path / "one.sqlite")
    store.add_texts(["1"], [TEXTS[20]], [True])
    store.answer(1, "herbs", "ann", 1)
    store.visit(1, "ann", DONE)
    learner = Learner(trained, store)
    learner.update()
    ((grown, share),) = learner.suggester.parts
    assert (grown.training_data.nr_documents, share, learner.learned) == (9, 1.0, 1)
    store.close()


def test_trainings_come_less_often_the_more_is_labelled(model, tmp_path, monkeypatch):
    sizes = []
    monkeypatch.setattr(learning, "train_aside", lambda lines, texts, *_: sizes.append(len(texts)))
    monkeypatch.setattr(Learner, "_instructive", lambda *_: [])
    store = LabelStore.open(tmp_path / "many.sqlite")
    store.add_texts([str(row) for row in range(80)], [f"herbs {row}" for row in range(80)], [True] * 80)
    learner = Learner(model, store, NAMES)
    for row in range(1, 81):
        store.answer(row, "herbs", "ann", 1)
        store.visit(row, "ann", DONE)
        learner.update()
    assert sizes == [11, 21, 31, 41, 51, 62, 75]  # the update at 1 has too few; a training that fails is not repeated
    assert (learner.learned, learner.suggester.parts) == (0, ((model, 1.0),))
    store.close()


def test_a_training_aside_gives_the_same_model_and_ends_with_the_page(model, caplog):
    Y = csr_matrix([[name in fitting(text) for name in model.names] for text in TEXTS], dtype="float32")
    of_process = train_aside(NAMES, TEXTS, Y, model.tfidf, lambda: False)
    same = train(NAMES, TEXTS, Y, model.tfidf)
    assert (of_process.predict(TEXTS) != same.predict(TEXTS)).nnz == 0
    assert train_aside(NAMES, TEXTS, Y, model.tfidf, lambda: True) is None
    assert not caplog.messages


@pytest.mark.full
def test_a_training_that_fails_is_reported(model, caplog):
    Y = csr_matrix([[name in fitting(text) for name in model.names] for text in TEXTS], dtype="float32")
    assert train_aside(NAMES, TEXTS, Y[:, :2], model.tfidf, lambda: False) is None
    assert "the training on 40 documents failed: ValueError" in caplog.text


def test_two_people_get_different_texts_but_the_random_ones_and_disagree(model, tmp_path):
    with desk_of(tmp_path, model) as (store, _, client):
        seen = {"ann": [], "bob": []}
        shown = {name: posted(client, "/text", person=name) for name in seen}
        for _ in range(10):
            for name, others in seen.items():
                others.append(shown[name]["text"])
                label = "herbs" if name == "ann" else "sailing"
                posted(client, "/answer", person=name, text=shown[name]["text"], label=label, answer=1)
                shown[name] = posted(client, "/finish", person=name, text=shown[name]["text"])
        both = set(seen["ann"]) & set(seen["bob"])
        assert {one for name in seen for one in seen[name] if store.text(one).held_out} == both
        assert len(both) == 1
        told = client("GET", "/progress")[1]["disagreements"]
        (text,) = both
        assert {(one["text"], one["label"], one["accepted"], one["others"]) for one in told} == {
            (text, "herbs", "ann", "bob"), (text, "sailing", "bob", "ann")
        }  # fmt: skip
        posted(client, "/answer", person="bob", text=text, label="herbs", answer=-1)  # one yes, one no: no label
        assert {name: labels for name, _, labels in store.labelled()}[store.text(text).name] == ["sailing"]


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "message"),
    [
        ("GET", "/../etc/passwd", None, {}, 404, "there is no"),
        ("GET", "/answer", None, {}, 405, "only accepts POST"),
        ("POST", "/labels.csv", "{}", {}, 405, "only accepts GET, HEAD"),
        ("DELETE", "/", None, {}, 405, "only accepts GET, HEAD"),
        ("GET", "/progress", None, {"Host": "evil.example:8766"}, 403, "on this machine"),
        ("GET", "/labels.csv", None, {"Origin": "http://evil.example"}, 403, "requests only from itself"),
        ("POST", "/answer", "{}", {"Origin": "http://evil.example"}, 403, "requests only from itself"),
        ("POST", "/answer", "{}", {"Content-Type": "text/plain"}, 415, "application/json"),
        ("POST", "/answer", "{}", {"Content-Length": "9" * 18}, 413, "too long"),
        ("POST", "/answer", "{", {}, 400, "not JSON"),
        ("POST", "/answer", "[]", {}, 400, "question"),
        ("POST", "/text", {}, {}, 400, "person must be a text"),
        ("POST", "/text", {"person": "  "}, {}, 400, "a name of 1 to 40"),
        ("POST", "/text", {"person": "x" * 41}, {}, 400, "a name of 1 to 40"),
        ("POST", "/text", '{"person": "\\ud800"}', {}, 400, "a name of 1 to 40"),
        ("POST", "/text", {"person": "ann", "text": "1"}, {}, 400, "text must be a whole number"),
        ("POST", "/text", {"person": "ann", "text": 999}, {}, 400, "there is no text 999"),
        ("POST", "/text", {"person": "ann", "text": 2**62}, {}, 400, "there is no text"),
        ("POST", "/text", {"person": "new", "text": 1, "back": True}, {}, 422, "the first text"),
        ("POST", "/answer", {"person": "ann", "text": 1, "label": "herbs"}, {}, 400, "answer must be a whole"),
        ("POST", "/answer", {"person": "ann", "text": 1, "label": "herbs", "answer": True}, {}, 400, "answer must"),
        ("POST", "/answer", {"person": "ann", "text": 1, "label": "herbs", "answer": 2}, {}, 400, "answer must"),
        ("POST", "/answer", {"person": "ann", "text": 1, "label": "x'; --", "answer": 1}, {}, 400, "no label"),
        ("POST", "/finish", {"person": "ann"}, {}, 400, "text must be"),
        ("POST", "/search", {"query": ["a"]}, {}, 400, "query must be"),
        ("POST", "/search", {"query": "a" * 201}, {}, 400, "200 characters"),
        ("GET", "/annif.tsv", None, {}, 422, "identifiers"),
    ],
)  # fmt: skip
def test_bad_requests_change_nothing(client, method, path, body, headers, status, message):
    before = client.store.finished(), client.store.people()
    found, content = client.ask(method, path, body, **headers)
    assert found == status, content
    assert message in str(content)
    assert (client.store.finished(), client.store.people()) == before


@pytest.fixture(scope="module")
def client(model, tmp_path_factory):
    """Return a server with its store."""
    with desk_of(tmp_path_factory.mktemp("refusing"), model) as (store, _, client):
        served = type("Served", (), {"store": store, "ask": staticmethod(client)})
        posted(client, "/text", person="ann")
        yield served


def test_labels_are_found_by_all_their_names():
    search = NameSearch([*NAMES, *(f"topic {number}\tother {number}" for number in range(30_000))])
    assert search.find("BREAD  mak") == [{"label": "baking", "name": "bread making"}]
    assert [one["label"] for one in search.find("topic 1")][:3] == ["topic 1", "topic 10", "topic 11"]
    assert [one["label"] for one in search.find("matri")] == ["sparse matrices"]
    assert len(search.find("o")) == 12
    assert search.find("nowhere") == []


def test_texts_that_teach_most_are_undecided_usual_and_new(model):
    texts = ["baking rye bread at home", "herbs for baking and gardening at home", "zebra xylophone"]
    of = worth(Suggester((model, 1.0)), model, texts, [])
    assert of[1] > of[0] > of[2]
    assert worth(Suggester((model, 1.0)), model, texts, [texts[1]])[1] == pytest.approx(0, abs=1e-6)


def test_figures_have_standard_errors_and_promises_need_probabilities(model):
    held = [("1", "baking rye bread", ["baking"]), ("2", "sailing boats", ["sailing", "herbs"]),
            ("3", "a sparse matrix", ["gardening"])]  # fmt: skip
    told = measured(Suggester((model, 1.0)), model.names, held)
    assert told["documents"] == 3
    assert (told["precision"], told["precision_error"]) == pytest.approx((2 / 3, 0.3**0.5 / 5**0.5))
    assert "promise" not in told
    assert measured(Suggester((model, 1.0)), model.names, []) == {}


def test_the_file_trains_a_model_and_is_exported(model, tmp_path, monkeypatch):
    uris = {line.partition("\t")[0]: f"http://example.org/{number}" for number, line in enumerate(NAMES)}
    with desk_of(tmp_path, model, uris=uris) as (store, _, client):
        for row, text in enumerate(TEXTS, 1):
            for name in fitting(text):
                store.answer(row, name, "ann", 1)
            store.visit(row, "ann", DONE if row > 2 else SKIPPED)
        rows = list(csv.DictReader(io.StringIO(client("GET", "/labels.csv")[1])))
        assert [row["text"] for row in rows] == TEXTS[2:]
        lines = [json.loads(line) for line in client("GET", "/labels.jsonl")[1].splitlines()]
        assert lines[0] == {"id": "2", "text": TEXTS[2], "labels": ["baking"]}
        annif = tmp_path / "annif.tsv"
        annif.write_text(client("GET", "/annif.tsv")[1])
        first = next(iter(open_source(annif).records()))
        assert first.cells == [TEXTS[2], ["http://example.org/0"]]
    monkeypatch.chdir(tmp_path)
    from xmc_tf.train import main as train

    train(["texts.labels.sqlite", "-m", "trained", "--test", "0"])
    assert set(XRLinear.load("trained").names) == {line.partition("\t")[0] for line in NAMES}


def test_findings_of_an_audit_are_decided_in_their_order(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels = [fitting(text) for text in TEXTS]
    labels[3], labels[20] = ["=sum"], ["sparse matrices", "sailing"]
    with open("data.csv", "w", newline="") as file:
        csv.writer(file).writerows([["text", "label"], *zip(TEXTS, map("|".join, labels), strict=True)])
    with open("findings.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for kind, row, name, why in (("wrong", 20, "sailing", "rank 5"), ("missing", 3, "baking", "in the text"),
                                     ("wrong", 3, "'=sum", ""), ("duplicates", 1, "", "")):  # fmt: skip
            writer.writerow(["", kind, row, "", TEXTS[row], name, "", "", why, "", ""])
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    model.save("model")
    served = []
    monkeypatch.setattr(labelling, "serve", lambda application, bound: served.append((application, bound)))
    monkeypatch.setattr(LabelStore, "close", lambda _: None)
    label(["data.csv", "-m", "model", "--audit", ".", "--labels", "names.txt", "-p", "0"])
    with in_background(*served[0]) as url:
        client = partial(ask, urlsplit(url).port)
        first = posted(client, "/text", person="ann")
        assert (first["content"], first["texts"]) == (TEXTS[20], 2)
        assert {k: first["labels"][0][k] for k in ("label", "note", "answer")} == {
            "label": "sailing", "note": "probably wrong: rank 5", "answer": 1
        }  # fmt: skip
        assert {one["label"] for one in first["labels"] if one["answer"]} == {"sparse matrices", "sailing"}
        posted(client, "/answer", person="ann", text=first["text"], label="sailing", answer=-1)
        second = posted(client, "/finish", person="ann", text=first["text"])
        assert [one["note"] for one in second["labels"][:3]] == ["probably wrong", "probably missing: in the text", ""]
        posted(client, "/answer", person="ann", text=second["text"], label="baking", answer=1)
        posted(client, "/answer", person="ann", text=second["text"], label="=sum", answer=1)
        assert posted(client, "/finish", person="ann", text=second["text"])["text"] is None
        lines = [json.loads(line)["labels"] for line in client("GET", "/labels.jsonl")[1].splitlines()]
        labels[3], labels[20] = ["=sum", "baking"], ["sparse matrices"]
        assert [sorted(own) for own in lines] == [sorted(own) for own in labels]  # of the whole table
        found = posted(client, "/search", query="bread")["labels"]  # another name, of the file beside the model
        assert found == [{"label": "baking", "name": "bread making"}]


def test_a_vocabulary_in_one_language_begins_a_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    (tmp_path / "terms.ttl").write_text(
        "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
        '<http://e.org/1> a skos:Concept ; skos:prefLabel "baking"@en, "leipominen"@fi ; skos:altLabel "bread"@en .\n'
        '<http://e.org/2> a skos:Concept ; skos:prefLabel "sailing"@en, "purjehdus"@fi .\n'
    )
    monkeypatch.setattr(labelling, "serve", lambda _, bound: bound.close())
    label(["texts.txt", "--vocabulary", "terms.ttl", "--language", "en", "-p", "0"])
    store = LabelStore.open(tmp_path / "texts.labels.sqlite")
    assert store.nr_texts == len(TEXTS)
    store.close()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "which labels there are"),
        (["--vocabulary", "terms.ttl", "--labels", "names.txt"], "mutually exclusive"),
        (["--labels", "names.txt", "--language", "en"], "--language can only be used with --vocabulary"),
        (["--labels", "names.txt", "--audit", "findings.csv"], "--audit can only be used with -m"),
        (["-m", "model", "--label-column", "label"], "--label-column can only be used with --audit"),
        (["-m", "model", "--labels", "others.txt"], "others.txt names no label of model"),
        (["--labels", "names.txt", "-o", "other.sqlite"], "not a file of xmc-tf label"),
        (["--labels", "names.txt", "-o", "texts.txt"], "texts.txt"),
    ],
)
def test_the_command_refuses(model, tmp_path, monkeypatch, argv, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    (tmp_path / "others.txt").write_text("stars\nplanets")
    model.save("model")
    connection = sqlite3.connect("other.sqlite")
    connection.execute("CREATE TABLE things (name)")
    connection.close()
    refused(re.escape(message), label, ["texts.txt", *argv, "-p", "0"])
    assert (tmp_path / "texts.txt").read_text() == "\n".join(TEXTS)


@pytest.mark.full
@pytest.mark.usefixtures("chromium")
def test_in_a_browser_with_keys_and_killed_in_the_middle(tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    port = "0"

    def started():
        process = subprocess.Popen(
            [sys.executable, "-m", "xmc_tf", "label", "texts.txt", "--labels", "names.txt", "-p", port],
            cwd=tmp_path, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        with process.stdout:
            return process, process.stdout.readline().split()[0]

    accepted = "[...document.querySelectorAll('#labels > li')].filter(e => e.querySelector('[aria-pressed=true]"
    accepted += "[aria-label^=Accept]')).map(e => e.querySelector('.name').lastChild.textContent)"
    process, url = started()
    port = str(urlsplit(url).port)
    try:
        with browser.page(tmp_path / "profile") as page:
            page.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
            page.open(f"{url}?as=ann")
            page.until("document.querySelectorAll('#labels > li').length > 0")
            text = page.js("document.getElementById('content').textContent")
            assert text in TEXTS
            assert page.js("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
            first, second = page.js(
                "[...document.querySelectorAll('#labels .name')].map(e => e.lastChild.textContent)"
            )[:2]
            told = page.accessible()
            for name in (f"Accept {first}", f"Reject {second}", "Next text n", "Skip s", "Back b"):
                assert ("button", name) in told
            assert page.js("document.querySelector('mark').textContent.toLowerCase()") in text
            page.key("a")  # accepts the first label, and goes to the second
            page.until(f"{accepted}.length === 1")
            page.until("document.querySelectorAll('#labels > li')[1].classList.contains('current')")
            page.key("r")
            page.until("document.querySelectorAll('#labels > li.rejected').length === 1")
            page.key("/")
            page.write("Sailing")
            page.until("document.querySelectorAll('#found button').length === 1")
            page.key("Enter")
            page.until(f"{accepted}.length === 2")
            before = set(page.js(accepted))
            assert before == {first, "sailing"}

            process.send_signal(signal.SIGKILL)
            process.wait()
            page.js("document.getElementById('done').click()")
            page.until("!document.getElementById('trouble').hidden")
            assert "start it again" in page.js("document.getElementById('trouble-text').textContent")
            process, _ = started()
            page.open(f"{url}?as=ann")
            page.until(f"{accepted}.length === 2")
            assert page.js("document.getElementById('content').textContent") == text
            assert set(page.js(accepted)) == before
            assert page.js("document.querySelector('#labels > li.rejected .name').lastChild.textContent") == second

            page.key("n")
            page.until("document.getElementById('progress').textContent.startsWith('1 of 40 texts')")
            assert page.js("document.getElementById('content').textContent") != text
            page.key("b")
            page.until(f"document.getElementById('content').textContent === {json.dumps(text)}")
            assert set(page.js(accepted)) == before
            for size in (320, 1280):
                page.call(
                    "Emulation.setDeviceMetricsOverride", width=size, height=800, deviceScaleFactor=1, mobile=False
                )
                assert page.js("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
            if folder := os.environ.get("XMC_TF_PICTURES"):
                page.screenshot(f"{folder}/label.png")
    finally:
        process.kill()
        process.wait()
