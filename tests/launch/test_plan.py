"""Tests of the plan: the choice of hosts and GPUs, and ``--dry-run`` for the examples of other projects."""

import json
import logging
import sys
from pathlib import Path

import pytest

from tests.refusals import refused
from xmc_tf.launch import __main__ as launch
from xmc_tf.launch.engines import mpiexec_command
from xmc_tf.launch.gpus import Gpu
from xmc_tf.launch.hosts import Host, Hosts
from xmc_tf.launch.options import choose_hosts, choose_program, inputs_of, parser, shared_folder_of

THREE_GPUS = [Gpu("2", 0.0, 0.0), Gpu("0", 0.1, 0.0), Gpu("1", 0.9, 0.9)]


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bert_train_parallel.py").touch()
    (tmp_path / "leanings.sqlite").touch()
    return ["bert_train_parallel.py", "leanings.sqlite"]


def dry_run(capsys, monkeypatch, gpus, *arguments):
    monkeypatch.setattr(launch, "visible_gpus", lambda environment: gpus)
    launch.main(["--dry-run", *arguments])
    return capsys.readouterr().out


def test_parallel_berts_three_and_one_gpus(capsys, monkeypatch, script):
    flags = ["--nodes", "2", "--master-addr", "my.machine.com"]
    node_0 = dry_run(capsys, monkeypatch, THREE_GPUS, *flags, *script)
    assert node_0.startswith("node 0: 3 ranks on this host\nwaits at my.machine.com:29500 for 1 other node")
    assert "bert_train_parallel.py leanings.sqlite" in node_0
    node_1 = dry_run(capsys, monkeypatch, THREE_GPUS, *flags, "--node-rank", "1", "--np", "1", *script)
    assert node_1.startswith(
        "node 1: 1 rank on this host\nconnects to node 0 at my.machine.com:29500, which starts its ranks"
    )


def test_parallel_berts_file_of_three_hosts(capsys, monkeypatch, script, tmp_path):
    hosts = {"foo.bar.com": 4, "127.0.0.1": 5, "172.12.145.1": 6}
    (tmp_path / "hosts.json").write_text(json.dumps(hosts))
    gpus = [Gpu(name, 0.0, 0.0) for name in "314250"]
    lines = dry_run(capsys, monkeypatch, gpus, "--hosts", "hosts.json", *script).splitlines()
    assert lines[:6] == [
        "15 ranks on 3 hosts, with Horovod over Gloo",
        "",
        "host          ranks  GPUs                      reached",
        "foo.bar.com   0-3    the 4 least busy, if any  ssh",
        "127.0.0.1     4-8    3,1,4,2,5                 this host",
        "172.12.145.1  9-14   the 6 least busy, if any  ssh",
    ]


def test_a_file_that_leaves_out_this_host_means_all_of_its_gpus(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    (tmp_path / "hosts.json").write_text('{"foo.bar.com": 4}')
    args = parser().parse_args(["--hosts", str(tmp_path / "hosts.json"), "-m", "x"])
    assert choose_hosts(args, {}, THREE_GPUS).as_flag() == "localhost:3,foo.bar.com:4"
    assert choose_hosts(args, {}, []).as_flag() == "foo.bar.com:4"
    assert [record.message.partition("hosts.json ")[2] for record in caplog.records] == [
        "leaves this host out: its 3 visible GPUs take the first ranks (--hostfile uses only the hosts listed)",
        "leaves this host out: it has no visible GPU, so no ranks (--hostfile uses only the hosts listed)",
    ]


def test_programs_are_scripts_of_python_or_anything_that_can_be_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, mode in {"train.py": 0o755, "run.sh": 0o755, "plain": 0o644}.items():
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    python = sys.executable
    for words, program in {
        "train.py -m model": [python, "train.py", "-m", "model"],
        "plain x": [python, "plain", "x"],
        "./run.sh --np 3": ["./run.sh", "--np", "3"],
        "/bin/echo hello": ["/bin/echo", "hello"],
        "sh -c true": ["sh", "-c", "true"],
        f"{Path(python).name} -m xmc_tf.train": [Path(python).name, "-m", "xmc_tf.train"],  # beside the interpreter
        "-m xmc_tf.train": [python, "-m", "xmc_tf.train"],
    }.items():
        assert choose_program(parser().parse_args(["--np", "2", *words.split()])) == program


def test_deeprecs_one_process_per_visible_gpu(capsys, monkeypatch, script):
    shown = dry_run(capsys, monkeypatch, THREE_GPUS, *script)
    assert "localhost  0-2    2,0,1  this host" in shown
    assert "localhost  0-1    2,0   this host" in dry_run(capsys, monkeypatch, THREE_GPUS, "--np", "2", *script)
    refused("--np is missing", dry_run, capsys, monkeypatch, [], *script)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["-H", "one:4,two:2"], "one:4,two:2"),
        (["-H", "one:4,two:2", "--np", "5"], "one:4,two:1"),
        (["-H", "one:4,two:2", "--max-np", "3"], "one:3"),
        (["--np", "3"], "localhost:3"),
    ],
)
def test_numbers_of_ranks_limit_the_hosts(flags, expected):
    assert choose_hosts(parser().parse_args([*flags, "-m", "x"]), {}, []).as_flag() == expected


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["-H", "one:4", "--np", "5"], "at most 4, the slots of -H"),
        (["-H", "one:4", "--min-np", "5"], "--min-np"),
        (["--min-np", "5", "--max-np", "4"], "--min-np"),
        (["-H", "one:4", "--hosts", "x.json"], "--hosts and -H"),
        (["-H", "one:4", "--nodes", "2"], "-H cannot be used with --nodes"),
        (["--nodes", "2", "--node-rank", "2"], "a number from 0 to 1"),
        (["--nodes", "2", "--node-rank", "1"], "--master-addr is missing"),
        (["--nodes", "2", "--np", "1"], "--secret-file is missing"),
        (["--node-rank", "0"], "--nodes is missing"),
        (["--nodes", "2", "--master-port", "70000"], "--master-port"),
    ],
)
def test_impossible_options_are_refused(flags, says):
    refused([says], launch.main, [*flags, "-m", "x"])


@pytest.mark.parametrize(
    ("mode", "text", "says"),
    [
        (None, "", r"is not a file\n.*create it"),
        (0o644, "0123456789abcdef", "other users can read"),
        (0o600, "short", r"at least 16 characters\n.*\n.*create it"),
    ],
)
def test_a_secret_that_cannot_be_used_is_refused(mode, text, says, tmp_path):
    pytest.importorskip("horovod")
    secret = tmp_path / "secret"
    if mode is not None:
        secret.write_text(text)
        secret.chmod(mode)
    flags = ["--nodes", "2", "--np", "1", "--master-addr", "localhost", "--secret-file", str(secret), "-m", "x"]
    refused(says, launch.main, flags)


def test_arguments_after_two_dashes_are_those_of_train(monkeypatch, capsys):
    shown = dry_run(capsys, monkeypatch, [], "--np", "2", "--", "-t", "X.txt", "-m", "model")
    assert "-m xmc_tf.train -t X.txt -m model" in shown


def test_mpiexec_gets_hosts_networks_and_the_way_to_them():
    text = " ".join(mpiexec_command(Hosts([Host("a", 2), Host("b", 1)]), ["10.0.0.0/8"]))
    assert "-n 3 --host a:2,b:1" in text
    assert "--mca btl_tcp_if_include 10.0.0.0/8" in text
    assert "--mca plm rsh --mca ras ^slurm --mca plm_rsh_agent" in text
    here = " ".join(mpiexec_command(Hosts([Host("localhost", 2)]), ["10.0.0.0/8"]))
    assert "--mca btl_tcp_if_include lo" in here
    assert "plm_rsh_agent" not in here


def test_settings_of_the_user_for_open_mpi_are_kept(monkeypatch):
    """With shared memory alone, as the page on security has it, ranks of one machine open no ports."""
    assert "--mca btl ^openib" in " ".join(mpiexec_command(Hosts([Host("localhost", 2)])))
    monkeypatch.setenv("OMPI_MCA_btl", "self,vader")
    command = mpiexec_command(Hosts([Host("localhost", 2)]))
    assert "btl" not in command
    assert "pml" in command


def test_inputs_and_the_shared_folder_are_found_among_the_arguments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("X.txt", "Y.npz"):
        (tmp_path / name).touch()
    (tmp_path / "runs" / "model").mkdir(parents=True)
    program = ["python", "-m", "xmc_tf.train", "-t", "X.txt", "-y", "Y.npz", "-m", "runs/model", "--seed", "3"]
    assert inputs_of(program) == ["X.txt", "Y.npz"]
    args = parser().parse_args(["--np", "2", "-m", "x"])
    assert shared_folder_of(args, program) == str(tmp_path / "runs")
    program[-3] = "new/folder/model"
    assert shared_folder_of(args, program) == str(tmp_path)
    assert shared_folder_of(args, ["python", "train.py"]) == str(tmp_path)
    (tmp_path / "train.py").touch()
    for program in (["python", "train.py", "-o", "runs/model", "X.txt"], ["./train.py", "-o", "runs/model", "X.txt"]):
        assert inputs_of(program)[-1:] == ["X.txt"]
        assert shared_folder_of(args, program) == str(tmp_path / "runs")
