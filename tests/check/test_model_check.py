"""Tests of ``check --model``."""

import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tests.files import flip
from tests.refusals import refused
from xmc_tf.check import __main__ as check
from xmc_tf.check.model_check import DAMAGED, FOREIGN, MISSING, OK, UNKNOWN, archive_problem, check_model
from xmc_tf.store.checksums import checksum_of, record_files


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def write_header(folder, name="params.json", **content):
    content |= {"files": record_files(folder, exclude=[name])}
    content["checksum"] = checksum_of(content)
    write(folder / name, json.dumps(content, indent=1))


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "m"
    for name in ("labels.txt", "tree/C0.npz", "ranker/ranker/0.model/W.npz"):
        write(folder / name, os.urandom(1000))
    write_header(folder, format="xmc_tf.model", version=1, seed=0)
    return folder


@pytest.fixture
def pecos(tmp_path):
    """Write rankers in PECOS's format, and a file of one of its scripts beside them."""
    folder = tmp_path / "pecos"
    for name in ("param.json", "ranker/param.json", "ranker/0.model/param.json"):
        write(folder / name, "{}")
    for name in ("W.npz", "C.npz"):
        sp.save_npz(folder / "ranker" / "0.model" / name, sp.eye(50, format="csc"), compressed=name == "C.npz")
    write(folder / "Pt.npz", b"half")
    return folder


def states(folder):
    return {one.file: one.state for one in check_model(folder).files}


def test_an_intact_model_with_other_files(model):
    write(model / "Pt.npz", b"x")
    write(model / "ranker" / "notes.txt", b"x")
    assert states(model) == {
        "Pt.npz": FOREIGN, "labels.txt": OK, "params.json": OK, "ranker/notes.txt": FOREIGN,
        "ranker/ranker/0.model/W.npz": OK, "tree/C0.npz": OK,
    }  # fmt: skip
    assert check_model(model).intact


def test_all_kinds_of_damage(model):
    flip(model / "tree" / "C0.npz")
    (model / "labels.txt").unlink()
    with (model / "ranker" / "ranker" / "0.model" / "W.npz").open("ab") as file:
        file.write(b"x")
    found = check_model(model)
    assert not found.intact
    assert states(model) == {
        "labels.txt": MISSING, "params.json": OK, "ranker/ranker/0.model/W.npz": DAMAGED, "tree/C0.npz": DAMAGED,
    }  # fmt: skip
    text = found.to_text()
    assert "expected: 1,000 bytes\n      received: 1,001 bytes" in text
    assert "expected: checksum" in text
    assert "damaged; 1 ok, 2 damaged, 1 missing;" in text


def test_edited_metadata_can_be_accepted(model):
    path = model / "params.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    assert states(model)["params.json"] == DAMAGED
    assert 'delete its line "checksum"' in check_model(model).to_text()
    content = json.loads(path.read_text())
    del content["checksum"]
    path.write_text(json.dumps(content))
    assert states(model)["params.json"] == UNKNOWN
    assert check_model(model).intact


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_unreadable_metadata(model, content):
    write(model / "params.json", content)
    found = {one.file: one for one in check_model(model).files}
    assert found["params.json"].state == DAMAGED
    assert "params.json" in found["params.json"].problem


def test_pecos_rankers_are_checked_by_their_archives(pecos):
    expected = {
        "Pt.npz": FOREIGN, "param.json": UNKNOWN, "ranker/param.json": UNKNOWN, "ranker/0.model/param.json": UNKNOWN,
        "ranker/0.model/W.npz": OK, "ranker/0.model/C.npz": OK,
    }  # fmt: skip
    assert states(pecos) == expected
    assert check_model(pecos).intact
    assert "no damage found" in check_model(pecos).to_text()
    assert "3 no checksum recorded" in check_model(pecos).to_text()
    for name in ("W.npz", "C.npz"):
        flip(pecos / "ranker" / "0.model" / name, 0.3)
    assert states(pecos) == {**expected, "ranker/0.model/W.npz": DAMAGED, "ranker/0.model/C.npz": DAMAGED}


def test_files_that_rankers_without_records_need(pecos):
    write(pecos / "ranker" / "param.json", '{"depth": 2}')
    (pecos / "ranker" / "0.model" / "W.npz").unlink()
    found = states(pecos)
    missing = {name for name, state in found.items() if state == MISSING}
    assert missing == {"ranker/0.model/W.npz", *(f"ranker/1.model/{name}" for name in ("param.json", "W.npz", "C.npz"))}
    assert not check_model(pecos).intact


def test_rankers_within_a_model_are_compared_with_its_records(model):
    for name in ("param.json", "ranker/param.json"):
        write(model / "ranker" / name, "{}")
    write_header(model, format="xmc_tf.model", version=1)
    expected = {"param.json": OK, "ranker/param.json": OK, "ranker/0.model/W.npz": OK}
    assert states(model / "ranker") == expected
    flip(model / "ranker" / "param.json")
    assert states(model / "ranker") == {**expected, "param.json": DAMAGED}


def test_an_export(tmp_path):
    folder = tmp_path / "1"
    write(folder / "saved_model.pb", b"graph")
    write(folder / "variables" / "variables.data", np.arange(100).tobytes())
    assert check_model(folder).intact  # without records there is nothing to compare
    write_header(folder, "assets.extra/xmc_tf.json", format="xmc_tf.serving")
    assert set(states(folder).values()) == {OK}
    flip(folder / "variables" / "variables.data")
    assert states(folder)["variables/variables.data"] == DAMAGED


def test_pipes_links_and_names_with_control_characters(model, pecos):
    (model / "labels.txt").unlink()
    os.mkfifo(model / "labels.txt")
    os.mkfifo(model / "pipe")
    (model / "loop").symlink_to(model)
    (model / "nowhere").symlink_to(model / "gone")
    write(model / "\x1b[2Jx", b"")
    os.mkfifo(pecos / "ranker" / "0.model" / "x.npz")
    found = check_model(model)
    assert {one.file: one.state for one in found.files}["labels.txt"] in (DAMAGED, MISSING)
    assert "\x1b" not in found.to_text()
    assert states(pecos)["ranker/0.model/x.npz"] == DAMAGED


def test_other_folders_are_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        refused(r"is not a model|does not exist", check_model, folder)
    write(tmp_path / "params.json", b"{}")  # parameters of something else
    refused("is not a model", check_model, tmp_path)


def test_the_command_exits_with_the_result_and_loads_no_tensorflow(model, capsys):
    check.main(["--model", str(model), "--json"])
    assert json.loads(capsys.readouterr().out)["intact"]
    flip(model / "tree" / "C0.npz")
    code = (
        "import sys\nfrom xmc_tf.check import __main__ as check\nfrom xmc_tf.common.process import cli\n"
        "try:\n    cli.run(check.main)\n"
        "finally:\n    assert not {'tensorflow', 'horovod', 'mpi4py'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-c", code, "--model", str(model)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert "tree/C0.npz" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "W.npz"
    sp.save_npz(path, sp.random(40, 30, 0.3, "csc", np.float32, rng=0), compressed=False)
    return path


def data_of(path):
    """Return the places of the members' bytes in an archive."""
    ranges = []
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            with archive.open(info) as member:
                begin = member._orig_compress_start
            ranges.append(range(begin, begin + info.compress_size))
    return [position for one in ranges for position in one]


@given(st.data())
def test_a_flipped_byte_of_any_member_is_noticed(archive, tmp_path_factory, data):
    content = bytearray(archive.read_bytes())
    content[data.draw(st.sampled_from(data_of(archive)))] ^= data.draw(st.integers(1, 255))
    damaged = tmp_path_factory.getbasetemp() / "damaged.npz"
    damaged.write_bytes(content)
    assert archive_problem(archive) == ""
    assert "is damaged: " in archive_problem(damaged)


@given(position=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.booleans())
def test_no_archive_breaks_the_comparison(archive, tmp_path_factory, position, value, cut):
    content = bytearray(archive.read_bytes())
    position %= len(content)
    content[position] = value
    damaged = tmp_path_factory.getbasetemp() / "any.npz"
    damaged.write_bytes(content[:position] if cut else content)
    assert isinstance(archive_problem(damaged), str)
