"""Tests of the choice of a communicator, and of the one for a single process."""

import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from tests.refusals import refused
from xmc_tf.ranks import choosing, this_host
from xmc_tf.ranks.choosing import choose_communicator, how_started
from xmc_tf.ranks.solo import Solo


@pytest.mark.parametrize(
    ("environment", "kind", "reason"),
    [
        ({}, "solo", "not started by"),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "4"}, "horovod", "HOROVOD_RANK=1, HOROVOD_SIZE=4"),
        ({"HOROVOD_RANK": "0", "HOROVOD_SIZE": "1"}, "solo", "HOROVOD_SIZE=1"),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, "mpi", "OMPI_COMM_WORLD_RANK=1"),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, "solo", "OMPI_COMM_WORLD_SIZE=1"),
        ({"PMI_RANK": "3", "PMI_SIZE": "8"}, "mpi", "PMI_RANK=3, PMI_SIZE=8"),
        ({"PMIX_RANK": "3"}, "mpi", "PMIX_RANK=3"),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "4", "XMC_TF_COMMUNICATOR": "solo"}, "solo", "XMC_TF_COMMUNICATOR=solo"),
        # Settings of Horovod, which its launcher need not have made.
        ({"HOROVOD_CYCLE_TIME": "1", "OMPI_MCA_btl": "self"}, "solo", "not started by"),
    ],
)
def test_the_launcher_decides_the_communicator(environment, kind, reason):
    found, why = how_started(environment)
    assert found == kind
    assert reason in why


HOROVODRUN = {"OMPI_MCA_orte_tag_output": "1", "NCCL_SOCKET_IFNAME": "lo"}  # as test_communicator of distributed shows


@pytest.mark.parametrize(
    ("environment", "gpus", "nccl", "others", "chosen", "why"),
    [
        (HOROVODRUN, ["nvidia0", "nvidia1"], True, [""], "horovod", "all ranks have GPUs, and Horovod has NCCL"),
        (HOROVODRUN, ["nvidia0"], False, ["no NCCL in Horovod"], "mpi", "there is no NCCL in Horovod"),
        (HOROVODRUN, ["nvidia0"], None, ["no Horovod"], "mpi", "there is no Horovod"),
        (HOROVODRUN, ["nvidiactl", "nvidia-uvm", "null"], True, ["no GPU"], "mpi", "there is no GPU"),
        # One answer on all ranks: they would wait for each other otherwise.
        (HOROVODRUN, ["nvidia0"], True, ["no GPU"], "mpi", "there is no GPU (rank 1)"),
        (HOROVODRUN, [], True, [""], "mpi", "there is no GPU (rank 0)"),
        ({**HOROVODRUN, "CUDA_VISIBLE_DEVICES": ""}, ["nvidia0"], True, ["no GPU"], "mpi", "there is no GPU"),
        ({**HOROVODRUN, "CUDA_VISIBLE_DEVICES": "-1"}, ["nvidia0"], True, ["no GPU"], "mpi", "there is no GPU"),
        ({**HOROVODRUN, "CUDA_VISIBLE_DEVICES": "GPU-8a,1"}, ["nvidia0"], True, [""], "horovod", "Horovod has NCCL"),
        ({**HOROVODRUN, "XMC_TF_COMMUNICATOR": "mpi"}, ["nvidia0"], True, [""], "mpi", "reason"),
        ({}, ["nvidia0"], True, [""], "mpi", "reason"),  # mpiexec
    ],
)
def test_under_horovodrun_over_mpi_gpus_use_horovod(
    monkeypatch, tmp_path, environment, gpus, nccl, others, chosen, why
):
    for gpu in gpus:
        (tmp_path / gpu).touch()
    monkeypatch.setattr(this_host, "DEVICES", tmp_path)
    for variable in (*HOROVODRUN, "CUDA_VISIBLE_DEVICES", "XMC_TF_COMMUNICATOR"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    world = SimpleNamespace(allgather=lambda own: [own, *others])
    horovod = SimpleNamespace(HorovodCommunicator=lambda: "horovod", hvd=SimpleNamespace(nccl_built=lambda: nccl))
    monkeypatch.setitem(sys.modules, "xmc_tf.ranks.mpi_backend", SimpleNamespace(MpiCommunicator=lambda: world))
    monkeypatch.setitem(sys.modules, "xmc_tf.ranks.horovod_backend", None if nccl is None else horovod)
    found, reason = choosing._backend("mpi", "reason")
    assert ("horovod" if found == "horovod" else "mpi", reason.endswith(why)) == (chosen, True), reason


def test_an_unknown_communicator_is_refused():
    refused(r"solo, horovod or mpi[^$]*'nccl'", how_started, {"XMC_TF_COMMUNICATOR": "nccl"})


@pytest.mark.parametrize(
    ("variable", "package", "extra"),
    [("HOROVOD", "horovod.tensorflow", "distributed"), ("OMPI_COMM_WORLD", "mpi4py", "mpi")],
)
def test_a_rank_without_its_backend_fails_instead_of_running_alone(monkeypatch, variable, package, extra):
    monkeypatch.setenv(f"{variable}_RANK", "1")
    monkeypatch.setenv(f"{variable}_SIZE", "2")
    monkeypatch.setitem(sys.modules, package, None)  # an import of it fails
    for backend in ("mpi_backend", "horovod_backend"):
        monkeypatch.delitem(sys.modules, f"xmc_tf.ranks.{backend}", raising=False)
    error = refused([f"{variable}_RANK=1, {variable}_SIZE=2", f"import of {package}"], choose_communicator.__wrapped__)
    assert f"extra '{extra}'" in error.fix


_WAITS = """
import os, sys, threading, types
from xmc_tf.launch.hosts import Host, Hosts
from xmc_tf.launch.plan import LaunchPlan
from xmc_tf.ranks import choosing, this_host
os.environ |= LaunchPlan(Hosts([Host("localhost", 2)]), "mpi", [], timeout_s=float(sys.argv[1])).environment()
backend = types.ModuleType("xmc_tf.ranks.mpi_backend")
world = types.SimpleNamespace(allgather=lambda own: [own])
backend.MpiCommunicator = lambda: threading.Event().wait(float(sys.argv[2])) or world
sys.modules["xmc_tf.ranks.mpi_backend"] = backend
choosing._backend("mpi", "")
threading.Event().wait(0.5)
print("connected")
"""


def test_a_rank_that_does_not_reach_the_others_ends():
    """For example because a stranger has connected to its port, for which MPI and Horovod wait."""
    ended = subprocess.run([sys.executable, "-c", _WAITS, "0.05", "600"], capture_output=True, timeout=120)
    assert ended.returncode == -signal.SIGALRM
    ended = subprocess.run([sys.executable, "-c", _WAITS, "0.1", "0"], capture_output=True, timeout=120)
    assert ended.stdout == b"connected\n"  # the limit ends with the connection


def test_a_single_process_receives_its_own_values_and_makes_the_same_checks():
    """Further ones: ``tests/distributed/test_communicator.py``, alone."""
    world = Solo()
    value, array = {"a": 1}, np.arange(6.0).reshape(3, 2)
    assert world.broadcast(value) is value
    for result in (
        world.broadcast_array(array),
        world.allreduce_array(array, "max"),
        world.allgather_array(array),
        world.alltoall_array(array, [3])[0],
    ):
        np.testing.assert_array_equal(result, array)
        assert not np.shares_memory(result, array)
    for call, said in (
        (lambda: world.allreduce_array(np.zeros(2, complex)), "complex"),
        (lambda: world.allgather_array(np.float32(1)), "at least one dimension"),
    ):
        refused(said, call)
    with pytest.raises(SystemExit) as end:
        world.abort(3)
    assert end.value.code == 3


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("Horovod has been shut down. This was caused by an exception on one of the ranks", False),
        ("[external/gloo/transport/tcp/pair.cc:575] Connection closed by peer [127.0.0.1]:34567", False),
        ("Mismatched allreduce tensor shapes", True),
        ("Connection reset by peer", True),
    ],
)
def test_an_error_caused_by_another_rank_shows_no_traceback(monkeypatch, capsys, message, shown):
    aborted = []
    monkeypatch.setattr(choosing.cli, "_on_failure", [])
    monkeypatch.setattr(choosing.sys, "excepthook", sys.__excepthook__)
    choosing._abort_all_on_failure(SimpleNamespace(abort=aborted.append))
    try:
        raise RuntimeError(message)
    except RuntimeError as error:
        choosing.sys.excepthook(type(error), error, error.__traceback__)
    said = capsys.readouterr().err
    assert ("Traceback" in said) == shown
    assert shown or said.startswith("failed: another rank has ended, or did not answer for too long; ")
    assert aborted == [1]
