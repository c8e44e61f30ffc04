"""Tests of runs on three hosts: network namespaces with an sshd each, and 2, 1 and 1 ranks.

Where namespaces are not permitted, or sshd is missing, these tests report why.
"""

import json
import os
import re
import sys

import pytest

from tests.distributed.launch import BIN, REPOSITORY
from tests.distributed.on_hosts import (
    LAUNCH,
    LAUNCHED,
    assert_none_left,
    finish,
    launch,
    launch_by_hand,
    rankers,
    start,
)
from tests.files import contents
from tests.pipeline.corpus import train_flags, write_corpus
from tools.docs.blocks import blocks

pytestmark = [pytest.mark.distributed, pytest.mark.full]


def losses(text):
    return re.findall(r"loss ([\d.]+)", text)


def test_fine_tuning_on_two_hosts_gives_the_losses_and_bytes_of_one_host(hosts, tmp_path):
    """By ssh and over MPI it does too (with the bytes of MPI's sums); that takes too long for every run."""
    corpus = write_corpus(tmp_path)

    def flags(model):
        return ["-m", "xmc_tf.train", *train_flags(corpus, tmp_path / model, "--logging-steps", 1)]

    here = finish(start(hosts, "one", *LAUNCH, "--np", 2, *flags("here")))
    assert here[0] == 0, here[1]
    logs = ["--log-dir", tmp_path / "logs"]
    two = {"one": 1, "two": 1}
    status, there = launch_by_hand(hosts, "--controller", "gloo", *logs, *flags("there"), slots=two)
    assert status == 0, there
    assert losses(there) == losses(here[1])
    assert len(losses(there)) > 2
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    logs = {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert set(logs) == {f"rank.{rank}.log" for rank in range(2)}
    assert losses(logs["rank.0.log"]) == losses(here[1])
    assert_none_left(hosts)


@pytest.mark.parametrize("how", ["ssh gloo", "by hand mpi"])
def test_rankers_are_the_bytes_of_one_model_however_they_are_started(how, hosts, features, one_model, tmp_path):
    program = rankers(features, tmp_path / "model")
    run = launch if how.startswith("ssh") else launch_by_hand
    status, said = run(hosts, "--controller", how.split()[-1], *program)
    assert status == 0, said
    assert contents(tmp_path / "model") == one_model
    assert_none_left(hosts)


def test_horovodrun_starts_the_ranks_of_several_hosts(hosts):
    """Over MPI, which takes the network of the hosts, whose interfaces have different names."""
    command = [BIN / "horovodrun", "--mpi", "-np", 4, "-H", "one:2,two:1,three:1", "--disable-cache"]
    command += ["--network-interfaces", "10.77.0.0/24", f"--mpi-args=--prefix {sys.prefix}"]
    path = f"PATH={BIN}{os.pathsep}{hosts.environment()['PATH']}"  # horovodrun looks for mpirun there
    status, said = finish(start(hosts, "one", "env", path, *command, sys.executable, "-m", "xmc_tf.check", "--json"))
    assert status == 0, said
    report, _ = json.JSONDecoder().raw_decode(said, said.index('{"communicator"'))  # before a tag of mpirun's
    assert [place["host"] for place in report["ranks"]] == ["one", "one", "two", "three"]
    assert all(one["right"] for one in report["collectives"])
    assert len(report["links"]) == 3
    assert report["problems"] == []
    assert_none_left(hosts)


def test_the_documented_commands_train_on_two_hosts_from_a_fresh_clone(hosts, tmp_path):
    """``make setup`` is replaced by a link to this environment."""
    (tmp_path / "data").mkdir()
    write_corpus(tmp_path / "data")
    [block] = [one for one in blocks(REPOSITORY / "docs" / "how-to" / "many-machines.md") if "git clone" in one.code]
    lines = block.code.strip().splitlines()
    assert len(lines) < 5
    clone, change_folder, setup, start_training = lines
    assert setup == "make setup"
    copy = f"git clone {REPOSITORY} xmc_tf"
    if not (REPOSITORY / ".git").exists():
        copy = f"mkdir xmc_tf && cp -r {REPOSITORY / 'xmc_tf'} xmc_tf"
    commands = [
        clone.replace("git clone REPOSITORY xmc_tf", copy),
        change_folder,
        f"ln -s {sys.prefix} .venv",
        start_training,
    ]
    script = " && ".join([f"cd {tmp_path}", f"export PYTHONPATH={tmp_path / 'xmc_tf'}", *commands])
    status, said = finish(start(hosts, "one", "sh", "-c", script))
    assert status == 0, said
    assert re.search(r"^two +1 +yes +same +same \(2\) +yes", said, re.MULTILINE), said
    assert (tmp_path / "model" / "params.json").is_file()


def test_a_host_that_is_down_is_named_before_the_start(hosts):
    with hosts.cut_off("three"):
        status, said = launch(hosts, "--timeout", 20, LAUNCHED, "place")
    assert status == 1
    assert re.search(r"^three +1 +no !", said, re.MULTILINE), said
    assert re.findall(r"^(\w+): not reached", said, re.MULTILINE) == ["three"]
    assert "[0]" not in said
