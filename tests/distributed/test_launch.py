"""The launcher of these tests says what went wrong, ends in time, and leaves nothing running."""

import pytest

from tests.distributed.launch import is_running, mpiexec, wait_for

pytestmark = pytest.mark.distributed


def test_a_hanging_rank_is_stopped_at_the_time_limit():
    seen = []

    def remember(folder):
        files = [folder / "0.pid", folder / "1.pid"]
        wait_for(lambda: all(file.exists() and file.read_text() for file in files), what="both ranks' start")
        seen.extend(int(file.read_text()) for file in files)

    run = mpiexec("trouble.py", "hang", timeout=1, check=False, during=remember)
    assert run.returncode is None
    assert len(seen) == 2
    wait_for(lambda: not any(is_running(pid) for pid in seen), what="the end of both ranks")
    assert "time limit" in run.describe()
