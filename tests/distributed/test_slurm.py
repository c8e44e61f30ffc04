"""Tests of the Slurm scripts: submitted to a real Slurm where its packages are installed, else run as by Slurm."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.distributed import slurm
from tests.distributed.launch import ENVIRONMENT, REPOSITORY

pytestmark = [pytest.mark.distributed, pytest.mark.full]
SCRIPTS = REPOSITORY / "launch" / "slurm"


def run_job(tmp_path, script, *arguments, **environment):
    """Run a job of two tasks with a fake ``scontrol``."""
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\n[ "$*" = "show hostnames this[1]" ] && echo localhost\n')
    scontrol.chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "this[1]", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2"}
    slurm |= {"SLURM_CPUS_PER_TASK": "1", "PYTHON": sys.executable}
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return subprocess.run(
        [SCRIPTS / script, *arguments], cwd=REPOSITORY, capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, **ENVIRONMENT, **slurm, **path, **environment},
    )  # fmt: skip


def assert_checked(shown):
    """Check that both tasks ran the command, after the check of ranks and folder."""
    lines = [line[line.index("{") :] for line in shown.splitlines() if '{"communicator"' in line]
    [found] = map(json.loads, lines)  # the check before it prints tables
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1]
    assert f"all ranks see and can write {REPOSITORY}" in shown


SCRIPTS_AND_FLAGS = [("horovod.sbatch", "--gloo --network-interfaces lo --disable-cache"), ("mpi.sbatch", "")]


needs_slurm = pytest.mark.skipif(
    bool(slurm.MISSING) or os.getuid() != 0, reason=slurm.INSTALL if slurm.MISSING else "needs root"
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Start a Slurm of two nodes, and return the environment that reaches it."""
    with slurm.slurm(tmp_path_factory.mktemp("slurm")) as variables:
        yield {**variables, **ENVIRONMENT, "PYTHON": sys.executable}


def submit(environment, tmp_path, options, *job):
    """Submit a job, wait for its end, and return what it printed."""
    log = tmp_path / "job.log"
    done = subprocess.run(
        ["sbatch", "--wait", "--cpus-per-task=1", f"--output={log}", *options, *job],
        cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    shown = log.read_text()
    assert done.returncode == 0, done.stderr + shown
    return shown


@needs_slurm
@pytest.mark.parametrize(("script", "flags"), SCRIPTS_AND_FLAGS)
def test_slurm_runs_the_jobs(script, flags, environment, tmp_path):
    options = ["--nodes=1", "--nodelist=127.0.0.1", "--ntasks-per-node=2"]
    flagged = {**environment, "HOROVODRUN_FLAGS": flags}
    assert_checked(submit(flagged, tmp_path, options, SCRIPTS / script, "xmc_tf.check", "--json"))


@needs_slurm
def test_slurm_starts_the_launcher_on_two_nodes_without_ssh(environment, tmp_path):
    flagged = {**environment, "LAUNCH_FLAGS": "--controller mpi --np 1"}
    command = [SCRIPTS / "nodes.sbatch", "xmc_tf.check", "--shared-workdir"]
    shown = submit(flagged, tmp_path, ["--nodes=2"], *command)
    assert "node 1 has connected to node 0 at 127.0.0.1:2" in shown
    assert re.search(r"^\[0\] 2 ranks: mpi4py", shown, re.MULTILINE), shown
    assert f"[0] all ranks see and can write {REPOSITORY}" in shown
    assert "node 1: the run has ended with status 0" in shown
    assert not list(REPOSITORY.glob(".xmc_tf-secret-*"))


@pytest.mark.skipif(not slurm.MISSING and os.getuid() == 0, reason="a real Slurm runs the jobs here")
@pytest.mark.parametrize(("script", "flags"), SCRIPTS_AND_FLAGS)
def test_a_job_checks_and_then_runs_on_all_tasks(script, flags, tmp_path):
    run = run_job(tmp_path, script, "xmc_tf.check", "--json", HOROVODRUN_FLAGS=flags)
    assert run.returncode == 0, run.stdout + run.stderr
    assert_checked(run.stdout)


def test_a_job_without_a_command_prints_its_usage(tmp_path):
    for script in ("horovod.sbatch", "mpi.sbatch", "nodes.sbatch"):
        run = run_job(tmp_path, script)
        assert run.returncode == 2
        assert "usage: sbatch" in run.stderr


def test_a_missing_horovod_is_reported(tmp_path):
    run = run_job(tmp_path, "horovod.sbatch", "xmc_tf.check", PYTHON="/bin/sh")
    assert run.returncode == 2
    assert "no horovodrun beside /bin/sh" in run.stderr
