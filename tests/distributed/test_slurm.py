"""Tests of the Slurm scripts, run as by Slurm, with this machine as the only host."""

import json
import os
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize(
    ("script", "flags"),
    [("horovod.sbatch", "--gloo --network-interfaces lo --disable-cache"), ("mpi.sbatch", "")],
)
def test_a_job_checks_and_then_runs_on_all_tasks(script, flags, tmp_path):
    run = run_job(tmp_path, script, "xmc_tf.check", "--json", HOROVODRUN_FLAGS=flags)
    assert run.returncode == 0, run.stdout + run.stderr
    told = [line[line.index("{") :] for line in run.stdout.splitlines() if '{"communicator"' in line]
    [found] = map(json.loads, told)  # the check before it prints tables
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1]
    # Before that, another check tests the folder.
    assert f"all ranks see and can write {REPOSITORY}" in run.stdout


def test_a_job_without_a_command_prints_its_usage(tmp_path):
    for script in ("horovod.sbatch", "mpi.sbatch"):
        run = run_job(tmp_path, script)
        assert run.returncode == 2
        assert "usage: sbatch" in run.stderr


def test_a_missing_horovod_is_reported(tmp_path):
    run = run_job(tmp_path, "horovod.sbatch", "xmc_tf.check", PYTHON="/bin/sh")
    assert run.returncode == 2
    assert "no horovodrun beside /bin/sh" in run.stderr
