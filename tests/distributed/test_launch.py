"""The launcher of these tests says what went wrong, ends in time, and leaves nothing running."""

import pytest

from tests.distributed.launch import BIN, LaunchError, horovodrun, is_running, launch, mpiexec, wait_for

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


def test_a_run_in_which_a_rank_does_not_answer_fails():
    two = [str(BIN / "mpiexec"), "-n", "2"]
    with pytest.raises(LaunchError, match="ended with 0"):
        launch(two, "module:platform", [], world=3)


def test_where_it_is_not_installed_no_other_launcher_stands_in_for_horovod(monkeypatch):
    monkeypatch.setattr("tests.distributed.launch.HAS_HOROVOD", False)
    monkeypatch.setattr("tests.required.REQUIRED", set())
    with pytest.raises(pytest.skip.Exception, match="it was not tested"):
        horovodrun("trouble.py", "hang")
