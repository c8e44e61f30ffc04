"""An encoder that cannot be loaded is refused at once, quietly, with one error."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import requests
from huggingface_hub import constants

from tests.encoder.tiny import tiny_encoder
from tests.encoder.vocabularies import wordpiece
from tests.refusals import refused
from xmc_tf.encoder import TextTokenizer
from xmc_tf.encoder.sources import check_available


@pytest.fixture
def hub(monkeypatch):
    """Yield a hub on this machine that knows one encoder, and counts requests."""
    asked = []

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self):
            asked.append(self.path)
            self.send_response(200 if self.path.startswith("/known/") else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    template = f"http://127.0.0.1:{server.server_port}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_one_request_tells(hub, tmp_path):
    check_available("known/encoder", str(tmp_path))
    refused("the hub answers 404", check_available, "unknown/encoder", str(tmp_path))
    assert len(hub) == 2


def test_without_a_network_there_is_one_error(hub, tmp_path, monkeypatch, capfd, caplog):
    def unreachable(*_, timeout, **__):
        hub.append(timeout)
        raise requests.ConnectionError("no route")

    monkeypatch.setattr(requests, "head", unreachable)
    refused(["the hub cannot be reached", "--local-dir"], check_available, "some/encoder", str(tmp_path))
    assert len(hub) == 1
    assert hub[0] <= 5
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_offline_sends_no_request(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refused("HF_HUB_OFFLINE is set", check_available, "known/encoder", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", "1")
    refused("TRANSFORMERS_OFFLINE is set", check_available, "known/encoder", str(tmp_path))
    # In the cache it is there, offline or not.
    snapshot = tmp_path / "models--known--encoder" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps({}))
    (tmp_path / "models--known--encoder" / "refs").mkdir()
    (tmp_path / "models--known--encoder" / "refs" / "main").write_text("abc")
    check_available("known/encoder", str(tmp_path))
    assert not hub


def test_a_folder_has_weights_and_a_tokenizer(tmp_path):
    tiny_encoder("bert").save(tmp_path)
    refused("tokenizer", check_available, tmp_path)
    TextTokenizer.of(wordpiece("bert")).save(tmp_path)
    check_available(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    refused("no weights", check_available, tmp_path)
    refused("neither a folder nor a name", check_available, "two//slashes/and more")


def test_training_asks_before_it_reads_data(tmp_path, monkeypatch):
    from xmc_tf import train

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    data = tmp_path / "data"
    data.write_bytes(b"\xff neither text nor a matrix")
    flags = ["-t", str(data), "-y", str(data), "-m", str(tmp_path / "m"), "--model-shortcut", "no/encoder"]
    refused("--model-shortcut no/encoder", train.main, [*flags, "--cache-dir", str(tmp_path)])
    assert list(tmp_path.iterdir()) == [data]
