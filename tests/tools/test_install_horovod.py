"""The Horovod wheel is built once, is never found half made, and a failed build says where to look."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tools import install_horovod as tool

pytestmark = pytest.mark.full

WHEEL = "horovod-0.28.1-cp311-cp311-linux_x86_64.whl"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XMC_TF_CACHE", str(tmp_path))
    return tool.cache_folder() / "wheels" / "some-key"


@pytest.fixture
def compiled(monkeypatch):
    """Replaces the compilation by one that takes a moment; returns the list of its runs."""
    runs = []

    def compile_wheel(part, log, environment):
        runs.append(environment)
        (part / WHEEL).write_bytes(b"half")
        time.sleep(0.2)
        (part / WHEEL).write_bytes(b"whole")

    monkeypatch.setattr(tool, "compile_wheel", compile_wheel)
    return runs


def test_the_wheel_is_built_once_and_found_again(folder, compiled):
    assert tool.cached_wheel(folder) is None
    wheel = tool.build_under_lock(folder)
    assert wheel == folder / WHEEL
    assert tool.build_under_lock(folder) == tool.cached_wheel(folder) == wheel
    assert len(compiled) == 1


def test_two_builds_at_once_make_one_whole_wheel(folder, compiled, capsys):
    with ThreadPoolExecutor(2) as pool:
        wheels = list(pool.map(tool.build_under_lock, [folder, folder]))
    assert wheels == [folder / WHEEL] * 2
    assert wheels[0].read_bytes() == b"whole"
    assert len(compiled) == 1
    assert "waiting for it" in capsys.readouterr().err


def test_two_builds_without_a_lock_are_both_content(folder, compiled, monkeypatch):
    """Two hosts on a shared disk that knows no locks: the first rename wins, the second takes its wheel."""
    folder.parent.mkdir(parents=True)
    meet = threading.Barrier(2)
    original = tool.compile_wheel

    def compile_wheel(part, log, environment):
        original(part, log, environment)
        meet.wait()

    monkeypatch.setattr(tool, "compile_wheel", compile_wheel)
    with ThreadPoolExecutor(2) as pool:
        wheels = list(pool.map(tool.build, [folder, folder]))
    assert wheels == [folder / WHEEL] * 2
    assert wheels[0].read_bytes() == b"whole"
    assert [path.name for path in folder.parent.iterdir()] == ["some-key"]


def test_a_failed_build_shows_the_end_of_its_log_and_leaves_no_wheel(folder, monkeypatch):
    script = "print(*(f'line {i}' for i in range(100)), sep='\\n'); raise SystemExit(4)"
    monkeypatch.setattr(tool, "patched_source", lambda scratch, environment: scratch)
    monkeypatch.setattr(tool, "build_command", lambda source, part: [sys.executable, "-c", script])
    with pytest.raises(SystemExit) as failure:
        tool.build_under_lock(folder)
    message = str(failure.value)
    assert "line 70\n" in message
    assert "line 69\n" not in message
    assert "pip ended with 4" in message
    log = folder.with_name("some-key.log")
    assert str(log) in message
    assert log.read_text().startswith("line 0\n")
    assert tool.cached_wheel(folder) is None
    assert {path.suffix for path in folder.parent.iterdir()} == {".lock", ".log"}


def test_the_file_that_does_not_compile_is_left_out_of_the_source(tmp_path, monkeypatch):
    def download(command, **_):
        lists = source / "horovod/tensorflow/CMakeLists.txt"
        lists.parent.mkdir(parents=True)
        lists.write_text("".join(f'"${{PROJECT_SOURCE_DIR}}/horovod/tensorflow/{name}"\n' for name in names))
        with tool.tarfile.open(tmp_path / "horovod-0.28.1.tar.gz", "w:gz") as packed:
            packed.add(source, source.name)
        return tool.subprocess.CompletedProcess(command, 0, "")

    source = tmp_path / f"horovod-{tool.HOROVOD}"
    monkeypatch.setattr(tool.subprocess, "run", download)
    names = ["mpi_ops.cc", "xla_mpi_ops.cc"]
    patched = tool.patched_source(tmp_path, {})
    assert (patched / "horovod/tensorflow/CMakeLists.txt").read_text().count("\n") == 1
    tool.shutil.rmtree(source)
    names = ["mpi_ops.cc"]
    with pytest.raises(SystemExit, match="expected one line"):
        tool.patched_source(tmp_path, {})


def test_the_build_sees_this_environment_first_and_no_make_above_it(folder, compiled, monkeypatch):
    monkeypatch.setenv("MAKEFLAGS", "w -j --jobserver-auth=3,4")
    monkeypatch.setenv("MAKELEVEL", "2")
    monkeypatch.setenv("HOROVOD_WITHOUT_MPI", "1")
    tool.build_under_lock(folder)
    (environment,) = compiled
    assert environment["PATH"].startswith(str(tool.Path(sys.executable).parent))
    assert environment["MAKEFLAGS"].startswith("-j")
    assert "MAKELEVEL" not in environment
    assert "HOROVOD_WITHOUT_MPI" not in environment
    assert environment["HOROVOD_WITH_MPI"] == environment["HOROVOD_WITH_GLOO"] == "1"


def test_a_machine_without_a_compiler_is_told_so(folder, monkeypatch):
    monkeypatch.setattr(tool.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=r"lacks g\+\+ and make"):
        tool.build_under_lock(folder)


def test_setup_without_a_compiler_succeeds_and_says_what_is_missing(folder, monkeypatch, capsys):
    monkeypatch.setattr(tool.shutil, "which", lambda name: None)
    monkeypatch.setattr(tool, "check_packages", lambda: None)
    monkeypatch.setattr(tool, "wheel_key", lambda: "some-key")
    monkeypatch.setattr(sys, "argv", ["install_horovod.py", "--if-possible"])
    tool.main()
    assert "Horovod is not installed: compiling it needs g++ and make" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["install_horovod.py"])
    with pytest.raises(SystemExit, match=r"lacks g\+\+ and make"):
        tool.main()


def test_settings_for_gpus_reach_the_build_and_name_another_wheel(folder, compiled, monkeypatch):
    pytest.importorskip("tensorflow")
    plain = tool.wheel_key()
    assert "gpu" not in plain
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "NCCL")
    monkeypatch.setenv("HOROVOD_STALL_CHECK_DISABLE", "1")  # no business of a build
    assert tool.wheel_key().startswith(f"{plain}_gpu-")
    tool.build_under_lock(folder)
    assert compiled[0]["HOROVOD_GPU_OPERATIONS"] == "NCCL"
    assert "HOROVOD_STALL_CHECK_DISABLE" not in compiled[0]
