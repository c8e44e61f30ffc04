"""Tests of the Slurm scripts: submitted to a real Slurm where its packages are installed, else run as by Slurm."""

import json
import os
import subprocess
import sys

import pytest

from tests.distributed import slurm
from tests.distributed.launch import ENVIRONMENT, REPOSITORY

pytestmark = pytest.mark.distributed
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


@pytest.mark.skipif(bool(slurm.MISSING) or os.getuid() != 0, reason=slurm.INSTALL if slurm.MISSING else "needs root")
def test_slurm_runs_the_jobs(tmp_path):
    """Both scripts run on a Slurm of one node."""
    (tmp_path / "slurm").mkdir()
    with slurm.slurm(tmp_path / "slurm") as environment:
        for script, flags in SCRIPTS_AND_FLAGS:
            log = tmp_path / f"{script}.log"
            variables = {**ENVIRONMENT, "PYTHON": sys.executable, "HOROVODRUN_FLAGS": flags}
            job = subprocess.run(
                ["sbatch", "--wait", "--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1", f"--output={log}",
                 SCRIPTS / script, "xmc_tf.check", "--json"],
                cwd=REPOSITORY, env={**environment, **variables}, capture_output=True, text=True, timeout=240,
                check=False,
            )  # fmt: skip
            shown = log.read_text()
            assert job.returncode == 0, job.stderr + shown
            assert_checked(shown)


@pytest.mark.skipif(not slurm.MISSING and os.getuid() == 0, reason="a real Slurm runs the jobs here")
@pytest.mark.parametrize(("script", "flags"), SCRIPTS_AND_FLAGS)
def test_a_job_checks_and_then_runs_on_all_tasks(script, flags, tmp_path):
    run = run_job(tmp_path, script, "xmc_tf.check", "--json", HOROVODRUN_FLAGS=flags)
    assert run.returncode == 0, run.stdout + run.stderr
    assert_checked(run.stdout)


def test_a_job_without_a_command_prints_its_usage(tmp_path):
    for script in ("horovod.sbatch", "mpi.sbatch"):
        run = run_job(tmp_path, script)
        assert run.returncode == 2
        assert "usage: sbatch" in run.stderr


def test_a_missing_horovod_is_reported(tmp_path):
    run = run_job(tmp_path, "horovod.sbatch", "xmc_tf.check", PYTHON="/bin/sh")
    assert run.returncode == 2
    assert "no horovodrun beside /bin/sh" in run.stderr
