"""Tests of the lists of hosts: every format, and errors that name file and line."""

import json
import os
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.launch.hosts import (
    Host,
    Hosts,
    expand_slurm_tasks,
    hosts_of_scheduler,
    is_here,
    parse_flag,
    read_hostfile,
    read_json_hosts,
)

NAMES = st.sampled_from([*"abcdefgh", "10.0.0.2", "192.168.1.10", "gpu-01", "node1.cluster", "x_y"])
HOSTS = st.lists(st.builds(Host, NAMES, st.integers(1, 64)), min_size=1, max_size=8, unique_by=lambda host: host.name)
SPACE = st.text(" \t", max_size=3)


@given(HOSTS)
def test_the_flag_is_read_as_it_is_written(hosts):
    assert parse_flag(Hosts(hosts).as_flag()).all == tuple(hosts)


@given(HOSTS, st.data())
def test_hostfiles_of_every_format_are_read(tmp_path_factory, hosts, data):
    path = tmp_path_factory.mktemp("hosts") / "hostfile"
    lines = []
    for name, slots in hosts:
        lines += data.draw(st.lists(st.sampled_from(["", "# a comment", "   "]), max_size=2))
        line = data.draw(
            st.sampled_from([f"{name}:{slots}", f"{name} slots={slots}", f"{name}\tslots={slots}  max_slots=9"])
        )
        lines.append(data.draw(SPACE) + line + data.draw(st.sampled_from(["", " # fast", "\r"])))
    path.write_text("\n".join(lines))
    assert read_hostfile(path).all == tuple(hosts)


@given(HOSTS, st.sampled_from([None, 2]))
def test_json_files_are_read_in_their_order(tmp_path_factory, hosts, indent):
    path = tmp_path_factory.mktemp("hosts") / "hosts.json"
    path.write_text(json.dumps(dict(hosts), indent=indent))
    assert read_json_hosts(path).all == tuple(hosts)


@given(st.text(string.printable, max_size=40))
def test_any_text_is_hosts_or_an_error_that_names_the_line(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("hosts") / "file"
    path.write_text(text)
    for read in (read_hostfile, read_json_hosts):
        try:
            assert read(path).size > 0
        except InputError as error:
            said = str(error)
        else:
            continue
        assert said.startswith(str(path))
        assert read is read_json_hosts or any(one in said for one in (", line", "no hosts", "listed twice"))


@pytest.mark.parametrize(
    ("read", "text", "place", "says"),
    [
        (read_hostfile, "one slots=2\n\n# more\ntwo slots=x\n", ", line 4", "'x'"),
        (read_hostfile, "one slots=2\ntwo\n", ", line 2", "host slots=4"),
        (read_hostfile, "one slots=2\none:3\n", ": one is", "listed twice"),
        (read_hostfile, "one slots=0\n", ", line 1", "1 to 4,096"),
        (read_hostfile, "-oProxyCommand=x slots=1\n", ", line 1", "not a host name"),
        (read_hostfile, "one gpus=1", ", line 1", "one gpus=1"),
        (read_json_hosts, '{"one": 2, "two": "3"}', "", '"3"'),
        (read_json_hosts, '{"one": 2, "two": true}', "", "whole number"),
        (read_json_hosts, '{"one": 2, "one": 3}', "", "one is given twice"),
        (read_json_hosts, '{"one": 2,\n "two": }', "", "line 2, column 9"),
        (read_json_hosts, '["one"]', "", "received: a JSON array"),
        (read_json_hosts, '{"one": -1}', "", "1 to 4,096"),
    ],
)
def test_an_error_of_a_file_names_file_and_line(tmp_path, read, text, place, says):
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}{place}")
    assert says in str(error.value)


@pytest.mark.parametrize("text", ["one", "one:", "one:2,", ":2", "one:two", "one:2,one:1"])
def test_an_invalid_flag_is_refused(text):
    refused("-H", parse_flag, text)


def test_ranks_have_hosts():
    hosts = Hosts([Host("a", 2), Host("b", 1), Host("c", 3)])
    assert [hosts.host_of(rank).name for rank in range(6)] == ["a", "a", "b", "c", "c", "c"]
    assert hosts.limited(4).as_flag() == "a:2,b:1,c:1"
    assert hosts.limited(2).as_flag() == "a:2"
    assert hosts.without(["b"]).as_flag() == "a:2,c:3"


def test_this_host_has_several_names():
    assert is_here("localhost")
    assert is_here("127.0.0.1")
    assert not is_here("192.0.2.1")  # reserved for documentation
    assert not is_here("no-such-host.invalid")
    assert Hosts([Host("127.0.0.1", 2)]).only_here


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    """Put a ``scontrol`` on the path that knows one list of hosts."""
    program = tmp_path / "scontrol"
    program.write_text('#!/bin/sh\n[ "$*" = "show hostnames gpu[01-03]" ] && printf "gpu01\\ngpu02\\ngpu03\\n"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("scontrol")
def test_jobs_of_slurm_have_hosts():
    assert expand_slurm_tasks("2(x3),1") == [2, 2, 2, 1]
    slurm = {"SLURM_JOB_NODELIST": "gpu[01-03]", "SLURM_TASKS_PER_NODE": "4(x2),1"}
    assert hosts_of_scheduler(slurm).as_flag() == "gpu01:4,gpu02:4,gpu03:1"
    refused("not as many hosts as numbers of tasks", hosts_of_scheduler, slurm | {"SLURM_TASKS_PER_NODE": "4"})
    refused("scontrol does not list the hosts of gpu", hosts_of_scheduler, slurm | {"SLURM_JOB_NODELIST": "gpu[01-x]"})


def test_jobs_of_the_mpi_operator_have_hosts(tmp_path):
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("job-worker-0.job slots=2\njob-worker-1.job slots=2\n")
    operator = {"OMPI_MCA_orte_default_hostfile": str(hostfile)}
    assert hosts_of_scheduler(operator).as_flag() == "job-worker-0.job:2,job-worker-1.job:2"
    assert hosts_of_scheduler({}) is None
