"""The client gets from a server what the model gives, and a server's refusals in words."""

import shutil
import socket
import subprocess
import time

import numpy as np
import pytest

from tests.refusals import refused
from tests.serving.cases import HARD, assert_same, documents
from tests.serving.stand_in import over_grpc, rest
from xmc_tf import predict
from xmc_tf.metrics.evaluation import load_prediction
from xmc_tf.serving.client import Client, ServerError

TEXTS = [*HARD, *(text.encode() for text in documents(20, seed=21)[0])]


def asks_and_compares(url, model):
    """Check all functions of a client against the model itself."""
    client = Client(url, timeout=60)
    expected = model.predict(TEXTS, only_topk=5, beam_size=8, threads=1)
    answer = client.best(TEXTS)
    assert_same(answer.labels, answer.scores, expected)
    assert answer.names == [[model.names[one] if one >= 0 else "" for one in row] for row in answer.labels]
    three = client.best(TEXTS[-2:], k=3)
    np.testing.assert_array_equal(three.labels, answer.labels[-2:, :3])
    assert client.best(["word1"]).labels.shape == (1, 5)
    assert client.about() == {"nr_labels": 60, "k": 5, "most": 8}

    matrix = Client(url).predict(TEXTS, batch=7)
    assert matrix.shape == expected.shape
    np.testing.assert_array_equal(matrix.indptr, expected.indptr)
    np.testing.assert_array_equal(matrix.indices, expected.indices)
    np.testing.assert_allclose(matrix.data, expected.data, atol=1e-4)

    refused("rejects the request: k may be at most 8 in this model: it was exported", client.best, ["word1"], k=9)
    with pytest.raises(ServerError, match=r"(?i)servable not found"):
        Client(url, model="other").best(["word1"])


@pytest.mark.parametrize("server", [rest, over_grpc])
def test_what_a_server_answers(model, exported, server):
    with server(exported) as url:
        asks_and_compares(url, model)


def test_a_real_server(model, exported, tmp_path):
    binary = shutil.which("tensorflow_model_server")
    if binary is None:
        pytest.skip("tensorflow_model_server is not on the PATH: the stand-in alone was asked, no real server")
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        ports = one.getsockname()[1], two.getsockname()[1]
    flags = [f"--port={ports[0]}", f"--rest_api_port={ports[1]}", f"--model_base_path={exported.parent}"]
    with (tmp_path / "log").open("w") as log:
        command = [binary, *flags, "--model_name=xmc", "--enable_batching"]
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            for url in (f"grpc://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}"):
                waits_for(url, tmp_path / "log")
                asks_and_compares(url, model)
        finally:
            server.terminate()
            server.wait(120)


def waits_for(url, log):
    """Wait until the server answers."""
    end = time.monotonic() + 240
    while time.monotonic() < end:
        try:
            Client(url).about()
        except ServerError:
            time.sleep(0.5)
        else:
            return
    raise AssertionError(log.read_text()[-3000:])


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "grpc://127.0.0.1:1"])
def test_a_server_that_is_not_there(url):
    with pytest.raises(ServerError, match=r"127\.0\.0\.1:1.*(does not answer|UNAVAILABLE)"):
        Client(url, timeout=60).best(["a"])


def test_an_address_that_is_none():
    for url in ("ftp://host:1", "http://", "", "http://[::1", "http://host:99999999", "http://host:port"):
        refused("is not the address of a server", Client, url)


def test_something_else_answers(tmp_path):
    (tmp_path / "index.html").write_text("hello")
    from functools import partial
    from http.server import HTTPServer, SimpleHTTPRequestHandler
    from threading import Thread

    class Quiet(SimpleHTTPRequestHandler):
        def do_POST(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(ServerError, match="does not answer in JSON"):
            Client(f"http://127.0.0.1:{server.server_address[1]}").best(["a"])
        server.shutdown()


def test_the_command_asks_a_server(model, exported, tmp_path, capsys):
    texts = [text.decode() for text in TEXTS[-4:]]
    (tmp_path / "texts").write_text("".join(f"{text}\n" for text in texts))
    expected = model.predict(texts, only_topk=3, beam_size=8, threads=1)
    with rest(exported) as url:
        asked = ["--server", url, "-k", "3"]
        predict.main([*asked, "-t", str(tmp_path / "texts"), "-o", str(tmp_path / "pred.npz")])
        found = load_prediction(tmp_path / "pred.npz")
        np.testing.assert_allclose(found.toarray(), expected.toarray(), atol=1e-4)
        predict.main([*asked, "-q", texts[0]])
        assert model.names[expected.indices[0]] in capsys.readouterr().out.splitlines()[0]
        refused("-b cannot be used with --server", predict.main, [*asked, "-q", texts[0], "-b", "5"])
