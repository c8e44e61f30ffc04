"""Databases that cannot be written to: in use by another command, on a full disk, read-only."""

import csv
import sqlite3
import subprocess
import sys

import pytest

from tests.files import largest_file
from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.tables import connections, preparation, writing
from xmc_tf.tables.preparation import PrepareOptions, prepare
from xmc_tf.tables.runs import Run, record_run, runs_of
from xmc_tf.tables.splits import SplitOptions
from xmc_tf.tables.store import TableStore

RUN = Run("2026-01-01T00:00:00+00:00", 1.0, "command", "model", "XR-Linear")
ALL = PrepareOptions(splits=SplitOptions(0, 0))


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "data.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *((f"text {n} " * 50, f"label {n % 7}") for n in range(400))])
    return path


@pytest.fixture
def impatient(monkeypatch):
    """Commands do not wait for another one."""
    monkeypatch.setattr(connections, "PATIENCE_S", 0.05)


def _full(store):
    """Let the database grow no further, as on a full disk."""
    (pages,) = store.connection.execute("PRAGMA page_count").fetchone()
    store.connection.execute(f"PRAGMA max_page_count = {pages}")


def test_a_locked_database_is_named_with_a_fix(table, tmp_path, impatient):
    store = prepare(table, tmp_path / "out.sqlite", ALL)
    other = sqlite3.connect(tmp_path / "out.sqlite")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(InputError, match=r"out\.sqlite is in use: another command is writing to it") as error:
        record_run(store, RUN)
    assert "wait until the other command has ended" in str(error.value)
    refused("is in use", prepare, table, tmp_path / "out.sqlite", PrepareOptions(splits=SplitOptions(0.5, 0)))
    other.rollback()
    assert record_run(store, RUN) == 1


def test_a_full_disk_keeps_complete_rows_and_the_command_resumes(table, tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "COMMIT", 50)
    original, opened = writing.RowWriter.commit, []

    def commit(self, rows):
        original(self, rows)
        opened.append(rows)
        if len(opened) == 3:
            _full(self._store)

    monkeypatch.setattr(writing.RowWriter, "commit", commit)
    with pytest.raises(OSError, match="the disk is full") as error:
        prepare(table, tmp_path / "out.sqlite", ALL)
    assert "out.sqlite" in str(error.value)
    kept = TableStore.open(tmp_path / "out.sqlite")
    assert kept.meta("rows_read") == kept.count() == opened[-1]
    monkeypatch.setattr(writing.RowWriter, "commit", original)
    store = prepare(table, tmp_path / "out.sqlite", ALL)
    assert store.count() == 400
    assert [line for (line,) in store.connection.execute("SELECT line FROM documents ORDER BY id")] == [*range(2, 402)]


def test_a_full_disk_leaves_no_half_of_a_run(table, tmp_path):
    store = prepare(table, tmp_path / "out.sqlite", ALL)
    _full(store)
    with pytest.raises(OSError, match="disk is full"):
        record_run(store, Run("", 1.0, "x" * 100_000, "", ""))
    again = TableStore.open(tmp_path / "out.sqlite")
    assert runs_of(again) == []


@pytest.mark.parametrize("rows", [200, 2000])
def test_a_full_disk_leaves_no_part_of_the_labels_and_is_named(tmp_path, rows):
    """Few rows are written when the file is closed."""

    def write():
        with writing.LabelFile(tmp_path / "labels.csv", [], 1) as file:
            for row in range(rows):
                file.write(row, [], [("baking", 0.5)])

    with largest_file(1000), pytest.raises(OSError, match=r"labels\.csv") as error:
        write()
    assert error.value.filename == str(tmp_path / "labels.csv")
    assert list(tmp_path.iterdir()) == []


def test_two_commands_that_read_a_table_at_once_do_not_mix(table, tmp_path):
    store = TableStore.create(tmp_path / "out.sqlite")
    with store.writing() as write:
        write.execute("INSERT INTO documents (id, line, text, key) VALUES (0, 2, 'text', 1)")
    with pytest.raises(InputError, match="is in use"), store.writing() as write:
        write.execute("INSERT INTO documents (id, line, text, key) VALUES (0, 2, 'text', 1)")


def test_a_command_leaves_no_files_beside_the_database(tmp_path):
    """The files -wal and -shm hold rows that a copy of the database alone would lack."""
    (tmp_path / "data.csv").write_text("text,label\n" + "".join(f"text {n},{n % 2}\n" for n in range(20)))
    for command in (["prepare", "data.csv"], ["runs", "data.sqlite"]):
        subprocess.run([sys.executable, "-m", "xmc_tf", *command], cwd=tmp_path, check=True, capture_output=True)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "data.sqlite"], command
