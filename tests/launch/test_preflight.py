"""Tests of the checks of the hosts: what is compared, and how the table shows it."""

import io
import json
import os
import subprocess
import sys

import pytest

from xmc_tf.launch.hosts.hosts import Host, Hosts
from xmc_tf.launch.preflight.checks import COLUMNS, Cell, Report, check_hosts
from xmc_tf.launch.preflight.checksums import quick_checksum
from xmc_tf.launch.preflight.looking import look
from xmc_tf.launch.preflight.table import format_report, wants_colour

HOSTS = Hosts([Host("one", 2), Host("two", 1), Host("three", 1)])


class FakeSessions:
    """Probes whose answers are those of this host, changed for some hosts."""

    def __init__(self, shared, changes=None, errors=None):
        self.shared, self.changes, self.errors = shared, changes or {}, errors or {}
        self.asked = None

    def ask_all(self, share, ask):
        outer = self

        class Session:
            def __init__(self, host):
                self.host = host

            def ask(self, step, **fields):
                changes = outer.changes.get(self.host.name, {})
                if step == "look":
                    answer = look(**fields)
                elif step == "listen":
                    answer = {"address": "127.0.0.1", "port": 1, "network": "127.0.0.0/8"}
                elif step == "connect":
                    answer = {"unreachable": []}
                else:
                    import time

                    answer = {"time": time.time() + changes.get("skew", 0)}
                return answer | {name: value for name, value in changes.items() if name in answer}

        return {host.name: ask(Session(host)) for host in HOSTS if host.name not in self.errors}


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "X.txt"
    path.write_text("a text\n")
    return path


def report_of(data, changes=None, errors=None):
    sessions = FakeSessions(data.parent, changes, errors)
    return check_hosts(sessions, HOSTS, paths=[str(data)], shared=str(data.parent), launcher="127.0.0.1", timeout_s=9)


def test_equal_hosts_have_no_problems(data):
    report = report_of(data)
    assert report.problems == []
    assert set(report.rows) == set(HOSTS)
    assert report.networks == ["127.0.0.0/8"]
    assert os.listdir(data.parent) == ["X.txt"], "the mark in the shared folder is removed"


VERSIONS = look([], ".", "", "")["versions"]


@pytest.mark.parametrize(
    ("change", "column", "says"),
    [
        ({"versions": VERSIONS | {"transformers": "4.0"}}, "versions", "transformers 4.0 instead of"),
        ({"checksums": {}}, "data", "X.txt is missing"),
        ({"shared": False}, "shared", "is not shared"),
        ({"disk": {"/data": 5_000_000}}, "disk", "0.0 GB free in /data"),
        ({"skew": -90}, "clock", "its clock differs by -90.0 s"),
        ({"unreachable": ["three"]}, "ports", "cannot connect to three"),
    ],
)
def test_a_difference_is_a_problem_of_that_host_with_a_fix(data, change, column, says):
    [(host, found, cell)] = report_of(data, {"two": change}).problems
    assert (host, found) == ("two", column)
    assert says in cell.problem
    assert cell.fix


def test_different_data_are_noticed(data):
    changed = {str(data): "0123"}
    [(_, column, cell)] = report_of(data, {"two": {"checksums": changed}}).problems
    assert column == "data"
    assert "X.txt differs from this host's" in cell.problem


def test_gpus_are_chosen_and_too_few_are_a_problem(data):
    gpus = [["1", 0.0, 0.0], ["0", 0.1, 0.0], ["2", 0.95, 1.0]]
    report = report_of(data, {name: {"gpus": gpus} for name in ("one", "two", "three")})
    assert report.problems == []
    assert report.gpus == {"one": ["1", "0"], "two": ["1"], "three": ["1"]}
    report = report_of(data, {"one": {"gpus": gpus[1:]}, "two": {"gpus": gpus}})
    assert [(host, cell.problem) for host, _, cell in report.problems] == [
        ("one", "too few GPUs: 1 of 2 GPUs are free, 2 are needed"),
        ("three", "too few GPUs: no GPU is visible, 1 are needed"),
    ]


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("no answer in time", "start the host"),
        ("root@two: Permission denied (publickey).", "ssh-copy-id"),
        ("Host key verification failed.", "ssh-keygen -R"),
        ("sh: 1: cd: can't cd to /work", "install xmc_tf on this host"),
        ("No module named xmc_tf", "install xmc_tf on this host"),
    ],
)
def test_a_host_that_is_not_reached_has_one_problem(data, error, fix):
    report = report_of(data, errors={"two": error})
    [(host, column, cell)] = report.problems
    assert (host, column, cell.problem) == ("two", "reached", error)
    assert fix in cell.fix
    assert report.unreachable == ["two"]


def test_the_table_marks_failed_cells_and_colours_them_only_on_terminals():
    rows = {column: Cell("ok") for column in COLUMNS}
    report = Report({HOSTS.all[0]: rows, HOSTS.all[1]: rows | {"shared": Cell("no", "it is not shared", "mount it")}})
    text = format_report(report, colour=False)
    assert text.splitlines()[0] == "host  ranks  reached  versions  data  shared  disk  GPUs  clock  ports"
    assert "no !" in text
    assert "\033" not in text
    assert text.endswith("\n\ntwo: it is not shared\n  fix: mount it")
    assert "\033[31mno !  \033[0m" in format_report(report, colour=True)
    assert not wants_colour(io.StringIO())


def test_a_checksum_depends_on_names_sizes_and_content(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    one = quick_checksum(str(tmp_path))
    (tmp_path / "a").rename(tmp_path / "b")
    assert quick_checksum(str(tmp_path)) != one
    large = tmp_path / "large"
    large.write_bytes(bytes(5_000_000))
    before = quick_checksum(str(large))
    with large.open("r+b") as file:
        file.seek(4_999_999)
        file.write(b"1")
    assert quick_checksum(str(large)) != before
    assert quick_checksum(str(tmp_path / "none")) is None


def test_a_probe_keeps_the_secret_until_its_input_ends(tmp_path):
    probe = subprocess.Popen(
        [sys.executable, "-m", "xmc_tf.launch.preflight.probe"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def ask(**request):
        probe.stdin.write(json.dumps(request) + "\n")
        probe.stdin.flush()
        return json.loads(probe.stdout.readline().removeprefix("xmc_tf-probe "))

    secret = tmp_path / "run" / "secret"
    assert ask(step="secret", path=str(secret), content="00ff") == {}
    assert secret.read_bytes() == b"\x00\xff"
    assert secret.parent.stat().st_mode & 0o777 == 0o700
    listening = ask(step="listen", launcher="127.0.0.1")
    assert listening["network"] == "127.0.0.0/8"
    hosts = [["self", "127.0.0.1", listening["port"]], ["none", "127.0.0.1", 9]]
    assert ask(step="connect", hosts=hosts, patience_s=5) == {"unreachable": ["none"]}
    assert "error" in ask(step="secret", path="/nowhere/at/all", content="00")
    probe.stdin.close()
    assert probe.wait(20) == 0
    probe.stdout.close()
    assert not secret.parent.exists()
