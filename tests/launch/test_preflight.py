"""Tests of the checks of the hosts: what is compared, and how the table shows it."""

import os

import pytest

from xmc_tf.launch.checks import check_hosts
from xmc_tf.launch.host_probe import look, quick_checksum
from xmc_tf.launch.hosts import Host, Hosts

HOSTS = Hosts([Host("one", 2), Host("two", 1), Host("three", 1)])


class FakeNodes:
    """Nodes whose answers are those of this host, changed for some hosts."""

    timeout_s = 9

    def __init__(self, changes=None, errors=None):
        self.changes, self.errors = changes or {}, errors or {}

    def start(self, hosts, seconds):
        """Do nothing: they run."""

    def ask_all(self, hosts, share, step, **fields):
        answers = {}
        for name in (host.name for host in hosts if host.name not in self.errors):
            found = look(**fields, address="127.0.0.1") if step == "look" else {"unreachable": []}
            answers[name] = found | {key: one for key, one in self.changes.get(name, {}).items() if key in found}
        return answers


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "X.txt"
    path.write_text("a text\n")
    return path


def report_of(data, changes=None, errors=None):
    return check_hosts(FakeNodes(changes, errors), HOSTS, paths=[str(data)], shared=str(data.parent))


def test_equal_hosts_have_no_problems(data):
    report = report_of(data)
    assert report.problems == []
    assert set(report.rows) == set(HOSTS)
    assert os.listdir(data.parent) == ["X.txt"], "the mark in the shared folder is removed"


VERSIONS = look(".", [], ".", "", "", "127.0.0.1")["versions"]


@pytest.mark.parametrize(
    ("change", "column", "says"),
    [
        ({"versions": VERSIONS | {"transformers": "4.0"}}, "versions", "transformers 4.0 instead of"),
        ({"checksums": {}}, "data", "X.txt is missing"),
        ({"shared": False}, "shared", "is not shared"),
        ({"disk": {"/data": 5_000_000}}, "disk", "0.0 GB free in /data"),
        ({"unreachable": ["three"]}, "ports", "cannot connect to three"),
    ],
)
def test_a_difference_is_a_problem_of_that_host_with_a_fix(data, change, column, says):
    [(host, found, cell)] = report_of(data, {"two": change}).problems
    assert (host, found) == ("two", column)
    assert says in cell.problem
    assert cell.fix


def test_a_file_that_no_host_can_read_is_a_problem(data, monkeypatch):
    for module in ("host_probe", "checks"):
        monkeypatch.setattr(f"xmc_tf.launch.{module}.quick_checksum", lambda path: "cannot be read: Permission denied")
    problems = report_of(data).problems
    assert {(column, cell.problem) for _, column, cell in problems} == {
        ("data", f"{data} cannot be read: Permission denied")
    }


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
