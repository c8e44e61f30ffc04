"""The server in its own process: the answers of the model, and no harm from slow, large or broken requests."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from tests.refusals import refused
from tests.server.running import running
from tests.serving.cases import HARD, NAMES, assert_same, documents, text_model
from xmc_tf.common.process.extras import pip_install
from xmc_tf.models.loading import load
from xmc_tf.rankers.layout import stored
from xmc_tf.server import versions
from xmc_tf.server.versions import ServedModel
from xmc_tf.serving.client import Client, ServerError

pytest.importorskip("uvicorn")

PREDICT = "/v1/models/xmc:predict"
TEXTS = [*HARD, *(text.encode() for text in documents(20, seed=21)[0])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of a model with weights arranged for search, as large models have them."""
    path = tmp_path_factory.mktemp("model") / "model"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "FEWEST_WEIGHTS", 1)
        text_model().save(path)
    return path


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    """Return a running server with tight limits."""
    log = tmp_path_factory.mktemp("server") / "log"
    hosts = ("--allow-host", "models.example.org", "--allow-host", "One.Pages.example.org")
    with running(folder, "-k", "5", "--max-topk", "20", "--timeout", "2", *hosts, log=log) as one:
        yield one


def _post(content, length=None, head=b""):
    length = len(content) if length is None else length
    return b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n%s\r\n%s" % (PREDICT.encode(), length, head, content)


def test_the_client_gets_the_answers_of_the_model(server, folder):
    model = load(folder)
    expected = model.predict(
        [text.decode(errors="replace") if isinstance(text, bytes) else text for text in TEXTS], only_topk=5, threads=1
    )
    client = Client(server.url)
    answer = client.best(TEXTS)
    assert_same(answer.labels, answer.scores, expected)
    assert answer.names == [[model.names[one] if one >= 0 else "" for one in row] for row in answer.labels]
    np.testing.assert_array_equal(client.best(TEXTS[-2:], k=3).labels, answer.labels[-2:, :3])
    assert client.about() == {"nr_labels": 60, "k": 5, "most": 20}
    assert client.best([]).labels.shape[0] == 0
    names = {}
    matrix = Client(server.url).predict(TEXTS, batch=7, names=names)
    assert names == {one: model.names[one] for one in set(answer.labels.ravel().tolist()) - {-1}}
    np.testing.assert_array_equal(matrix.indices, expected.indices)
    refused("k may be at most 20 on this server", client.best, ["word1"], k=21)
    with pytest.raises(ServerError, match="404"):
        Client(server.url, model="other").best(["word1"])


def test_a_request_may_name_the_labels_of_its_answer(server, folder):
    model = load(folder)
    chosen = [model.names[7], 3, model.names[50]]
    expected = model.predict("word1 word2", only_labels=chosen, k=5)
    for _ in range(2):
        status, _, body = server.ask(PREDICT, {"inputs": ["word1 word2"], "only_labels": chosen})
        assert status == 200
        labels = json.loads(body)["outputs"]["labels"][0]
        assert labels[: expected.nnz] == expected.indices.tolist() != []
        assert set(labels) <= {3, 7, 50, -1}
    status, _, body = server.ask(PREDICT, {"inputs": ["a"], "only_labels": ["nothing"]})
    assert status == 400
    assert b"label 'nothing' does not exist" in body


def test_the_server_maps_the_weights_and_answers_with_the_same_bits(server):
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "ranker/search/words.npy" in maps
    answer = Client(server.url).best(TEXTS)
    expected = text_model().predict([text.decode(errors="replace") for text in map(_bytes, TEXTS)], only_topk=5)
    for row, scores in enumerate(answer.scores):
        own = expected.data[expected.indptr[row] : expected.indptr[row + 1]]
        assert (scores[: len(own)] == own).all()


def _bytes(text):
    return text if isinstance(text, bytes) else text.encode()


def test_concurrent_requests_get_their_own_answers(server):
    texts = documents(40, seed=3)[0]
    expected = [json.loads(server.ask(PREDICT, {"inputs": [text]})[2]) for text in texts]
    with ThreadPoolExecutor(16) as pool:
        for _ in range(5):
            found = list(pool.map(lambda text: server.ask(PREDICT, {"inputs": [text]}), texts))
            assert [status for status, _, _ in found] == [200] * len(texts)
            assert [json.loads(body) for _, _, body in found] == expected


def test_paths_statuses_and_methods(server):
    assert json.loads(server.ask("/healthz")[2]) == {"status": "ok", "version": 1}
    status = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    for path in ("/v1/models/xmc", "/v1/models/xmc/versions/1"):
        assert json.loads(server.ask(path)[2]) == {"model_version_status": [status]}
    metadata = json.loads(server.ask("/v1/models/xmc/metadata")[2])
    assert metadata["model_spec"] == {"name": "xmc", "signature_name": "", "version": "1"}
    assert server.ask("/v1/models/xmc/versions/1:predict", {"instances": ["word1"]})[0] == 200
    assert server.ask("/v1/models/xmc/versions/2:predict", {"instances": ["word1"]})[0] == 404
    assert server.ask("/")[0] == server.ask("/v1/models/other")[0] == server.ask("/v1/models/xmc:classify")[0] == 404
    refused = server.ask(PREDICT)
    assert (refused[0], refused[1]["allow"]) == (405, "POST")
    assert server.ask("/healthz", method="HEAD")[::2] == (200, b"")
    assert server.ask("/healthz", {})[0] == 405
    assert server.ask(PREDICT, b"not JSON")[0] == 400
    assert "neither inputs nor instances" in json.loads(server.ask(PREDICT, {})[2])["error"]
    both = json.loads(server.ask(PREDICT, {"inputs": ["word1", "word2"], "k": 2})[2])["outputs"]
    assert [len(row) for row in both["labels"]] == [2, 2]
    before = server.metric("xmc_tf_texts_total")
    server.ask(PREDICT, {"inputs": ["word1", "word2"]})
    assert server.metric("xmc_tf_texts_total") == before + 2
    assert server.metric('xmc_tf_requests_total{status="405"}') >= 2


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (b"", b""),  # silent
        (b"POST / HT", b""),  # a head that never ends
        (b"nonsense\r\n\r\n", b"HTTP/1.1 400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", b"HTTP/1.1 400"),  # TLS
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 100_000, b"HTTP/1.1 431"),
        (_post(b'{"inputs"', length=100), b"HTTP/1.1 408"),  # a body that never ends
        (_post(b"", length=9 << 20), b"HTTP/1.1 413"),
        (_post(b"", length=10**30), b"HTTP/1.1 4"),
        (_post(b"", head=b"transfer-encoding: chunked\r\n"), b"HTTP/1.1 400"),
        (_post(b"", length=-1), b"HTTP/1.1 400"),
    ],
)
def test_hostile_requests_end_in_time(server, content, answer):
    # A server that waited for more would not close the connection, and reading from it would time out.
    assert server.raw(content)[: len(answer)] == answer
    assert server.ask("/healthz")[0] == 200


def test_a_chunked_request_has_the_same_limit_of_size(server):
    chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
    head = b"POST %s HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" % PREDICT.encode()
    assert server.raw(head + chunk * 130).startswith(b"HTTP/1.1 413")
    text = b'{"inputs": ["word1"]}'
    good = head.replace(b"host: x", b"host: x\r\nconnection: close") + b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text)
    assert server.raw(good).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize(
    "rest",
    [
        b"GET /healthz HTT",
        b"nonsense\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"x: y\r\n" * 100_000,
        _post(b'{"inputs"', length=100),
        b"",
    ],
)
def test_a_complete_request_is_answered_whatever_follows(server, rest, end):
    """Also if the client has closed its side of the connection."""
    complete = _post(json.dumps({"inputs": ["word1 " * 17_000]}).encode())
    answers = server.raw(complete + rest, end)
    assert answers.startswith(b"HTTP/1.1 200")
    assert answers.count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"host: localhost:8501", 200),
        (b"host: 10.1.2.3:8501", 200),
        (b"host: [::1]:8501", 200),
        (b"host: a-service", 200),
        (b"host: Models.Example.org:80", 200),
        (b"host: one.pages.example.org.", 200),
        (b"x: y", 200),
        (b"host: evil.example.com:8501", 403),
        (b"host: models.example.org.evil.example.com", 403),
        (b"host: pages.example.org", 403),
        (b"host: [::1", 403),
        (b"host: x\r\nhost: x", 403),
        (b"host: 127.0.0.1:8501\r\norigin: http://127.0.0.1:8501", 200),
        (b"host: x\r\norigin: https://models.example.org", 200),
        (b"host: x\r\norigin: http://evil.example.com", 403),
        (b"host: x\r\norigin: http://127.0.0.1", 403),
        (b"host: x\r\norigin: null", 403),
        (b"origin: null", 403),
        (b"host: x\r\ncontent-type: application/JSON; charset=utf-8", 200),
        (b"host: x\r\ncontent-type: application/x-www-form-urlencoded", 200),
        (b"host: x\r\ncontent-type: text/plain", 415),
    ],
)
def test_pages_of_other_sites_cannot_call_the_server(server, headers, status):
    text = b'{"inputs": ["word1"]}'
    head = b"POST %s HTTP/1.1\r\n%s\r\nconnection: close\r\n" % (PREDICT.encode(), headers)
    answer = server.raw(head + b"content-length: %d\r\n\r\n%s" % (len(text), text))
    assert answer.startswith(b"HTTP/1.1 %d" % status), answer
    assert server.raw(b"GET /healthz HTTP/1.1\r\nconnection: close\r\nhost: a.b\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_slow_and_vanished_clients_do_not_stop_others(server):
    host, port = urlsplit(server.url).hostname, urlsplit(server.url).port
    slow = [socket.create_connection((host, port)) for _ in range(100)]
    for number, one in enumerate(slow):
        one.sendall(_post(b'{"inputs": ["word1"]}')[: 10 + number])
    for one in slow[::2]:
        one.close()
    texts = documents(20, seed=3)[0]
    assert all(server.ask(PREDICT, {"inputs": [text]})[0] == 200 for text in texts)
    # What a client sends late, byte by byte, does not extend its time.
    _until(lambda: _is_closed(slow[-1]), 20)
    for one in slow:
        one.close()


def test_a_new_version_replaces_the_old_one_without_a_failed_request(folder, tmp_path):
    models = tmp_path / "models"
    shutil.copytree(folder, models / "1")
    with running(models, "--poll", "0.1", log=tmp_path / "log") as one:
        statuses, stop = [], threading.Event()

        def asks():
            while not stop.is_set():
                statuses.append(one.ask(PREDICT, {"inputs": ["word1"]})[0])

        asking = threading.Thread(target=asks)
        asking.start()
        (models / "3").mkdir()
        (models / "3" / "params.json").write_text("{}")
        _until(lambda: one.metric('xmc_tf_reloads_total{result="failed"}') == 1)
        assert json.loads(one.ask("/healthz")[2])["version"] == 1
        shutil.copytree(folder, tmp_path / "new")
        (tmp_path / "new").rename(models / "4")
        _until(lambda: json.loads(one.ask("/healthz")[2])["version"] == 4)
        assert one.ask("/v1/models/xmc/versions/1")[0] == 404
        # A version that is copied in slowly, its header first, is served when it is complete.
        (models / "5").mkdir()
        shutil.copy(folder / "params.json", models / "5")
        _until(lambda: one.metric('xmc_tf_reloads_total{result="failed"}') == 2)
        shutil.copytree(folder, models / "5", dirs_exist_ok=True)
        _until(lambda: json.loads(one.ask("/healthz")[2])["version"] == 5)
        stop.set()
        asking.join()
        assert set(statuses) == {200}
    assert "version 3 is not served" in (tmp_path / "log").read_text()


def test_a_folder_that_still_changes_has_not_failed(folder, tmp_path, monkeypatch):
    model, reports = tmp_path / "model", []
    shutil.copytree(folder, model)
    served = ServedModel(model)

    def refresh():
        served.refresh(reports.append)
        return list(reports)

    (model / "params.json").write_text("")
    assert refresh() == []
    monkeypatch.setattr(versions, "load", lambda *_, **__: (model / "params.json").write_text("{") and load(model))
    assert refresh() == [], "it changed while it was read"
    monkeypatch.undo()
    assert refresh() == []
    assert refresh() == ["failed"]
    assert refresh() == ["failed"]
    shutil.copytree(folder, model, copy_function=shutil.copyfile, dirs_exist_ok=True)
    assert refresh() == ["failed"]
    assert refresh() == ["failed", "loaded"]


def test_a_model_may_be_overwritten_while_it_is_served(folder, tmp_path):
    """The server answers from the old model until the new one is complete, and removes its copies of both."""
    model, copies = tmp_path / "model", tmp_path / "copies"
    shutil.copytree(folder, model)
    text_model(NAMES[::-1]).save(tmp_path / "new")
    copies.mkdir()
    with running(model, "--poll", "0.1", log=tmp_path / "log", env={**os.environ, "TMPDIR": str(copies)}) as one:

        def answer():
            status, _, body = one.ask(PREDICT, {"inputs": ["word1 word2"], "k": 3})
            return status, json.loads(body)["outputs"]["names"]

        before = answer()
        for path in model.rglob("*"):
            if path.is_file():
                os.truncate(path, path.stat().st_size // 2)
        # The first search of these words reads weights that are not yet in the memory of the server.
        assert len(Client(one.url).best(TEXTS).names) == len(TEXTS)
        assert answer() == before == (200, before[1])
        _until(lambda: one.metric('xmc_tf_reloads_total{result="failed"}') >= 1)
        for path in (tmp_path / "new").rglob("*"):
            if path.is_file():
                shutil.copyfile(path, model / path.relative_to(tmp_path / "new"))
        _until(lambda: json.loads(one.ask("/healthz")[2])["version"] == 2)
        assert answer() == (200, [[NAMES[59 - NAMES.index(name)] for name in before[1][0]]])
        assert len(list(copies.glob("xmc_tf-*"))) == 1, "the copy of the model"
    assert not list(copies.glob("xmc_tf-*"))
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_sigterm_lets_requests_finish(folder, tmp_path):
    """Those that wait for others, for longer than other commands may take to end, and one that has just been sent."""
    texts = documents(1, seed=5)[0] * 1300
    with running(folder, "--threads", "1", log=tmp_path / "log", grace_s=0.1) as one, ThreadPoolExecutor(3) as pool:
        idle = http.client.HTTPConnection(urlsplit(one.url).netloc, timeout=60)

        def asks_again():
            idle.request("GET", "/healthz")
            reply = idle.getresponse()
            return reply.status, json.loads(reply.read())["version"]

        assert asks_again() == (200, 1)
        answers = [pool.submit(one.ask, PREDICT, {"inputs": texts}) for _ in range(3)]
        _until(lambda: one.metric("xmc_tf_waiting_texts") > len(texts) or all(one.done() for one in answers))
        one.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)  # the server has seen the signal
        assert asks_again() == (200, 1)
        assert [answer.result(60)[0] for answer in answers] == [200] * 3
        assert one.process.wait(120) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_errors_at_the_start_say_what_to_do(folder, tmp_path):
    def error_of(*flags, code="from xmc_tf.__main__ import main; main()"):
        made = subprocess.run(
            [sys.executable, "-c", code, "serve", *flags], capture_output=True, text=True, timeout=120
        )
        assert made.returncode == 2
        return made.stderr

    assert "is not the folder of a model" in error_of("-m", str(tmp_path), "-p", "0")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "choose another port" in error_of("-m", str(folder), "-p", str(taken.getsockname()[1]))
    missing = "import sys; sys.modules['uvicorn'] = None; from xmc_tf.__main__ import main; main()"
    assert "received: -5" in error_of("-m", str(folder), "--max-batch", "-5")
    assert "--beam-size: expected a number of at least 1" in error_of("-m", str(folder), "-b", "0")
    assert pip_install("server") in error_of("-m", str(folder), code=missing)


def _is_closed(connection):
    """Send a byte; return whether the server has closed the connection."""
    try:
        connection.sendall(b" ")
    except OSError:
        return True
    return False


def _until(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
