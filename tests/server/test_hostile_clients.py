"""Broken, slow, huge and vanishing clients at once, and one that behaves well; ``XMC_TF_ROUNDS=20`` repeats it."""

import os
import shutil

import pytest

from tests.campaigns.hostile_clients import CONNECTIONS, LIMITS, WellBehaved, attack, flood, overwrite, peak_mb, stalled
from tests.server.running import running
from tests.serving.cases import text_model

pytestmark = pytest.mark.full

pytest.importorskip("uvicorn")

# The server holds 16 requests of the largest size, 4 MB, and what Python makes of a few of them.
MOST_MB = 256


@pytest.fixture
def server(tmp_path):
    """Return a server with tight limits, which must end without a traceback."""
    text_model().save(tmp_path / "model")
    with running(tmp_path / "model", *LIMITS, log=tmp_path / "log") as one:
        yield one
        assert one.process.poll() is None
    assert one.process.returncode in (0, 143, -15)
    assert (tmp_path / "log").read_text() == "interrupted by SIGTERM\n"


def test_a_well_behaved_client_gets_right_answers_and_memory_is_bounded(server, tmp_path):
    shutil.copytree(tmp_path / "model", tmp_path / "same")
    before = peak_mb(server)
    with WellBehaved(server, ["word1 word2", "word3", ""]) as client:
        for _ in range(int(os.environ.get("XMC_TF_ROUNDS", "1"))):
            assert attack(server) == []
            assert client.right > 0
            answered = stalled(server)
            assert flood(server) == 0
            overwrite(tmp_path / "same", tmp_path / "model", 3)
    assert client.wrong == 0
    assert len(answered) == 60, "a refused client, which still sends, was reset before it could read why"
    assert {*answered} == {408, 503}  # the first ones are waited for, the last ones are too much
    assert peak_mb(server) - before < MOST_MB
    assert server.metric("process_open_fds") < CONNECTIONS
    assert server.ask("/healthz")[0] == 200
