"""Labels for the rows of a table, in files that spreadsheets cannot take for programs."""

import csv
import json

import pytest

from tests.jobs.conftest import TOPICS, documents, write_table
from tests.refusals import refused
from xmc_tf import XRLinear
from xmc_tf.common.csv_cells import safe_cell
from xmc_tf.common.errors import InputError
from xmc_tf.jobs import table_prediction as job
from xmc_tf.linear.predict import main

HOSTILE = '=HYPERLINK("http://example.org")'


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model whose label names are formulas, but for one."""
    folder = tmp_path_factory.mktemp("model") / "model"
    rows = documents(120, 1)
    names = dict(zip(TOPICS, (HOSTILE, "@travel", "-1+1", "music, folk"), strict=True))
    XRLinear.train([text for text, _ in rows], [[names[one] for one in labels] for _, labels in rows]).save(folder)
    return folder


def _predict(model, table, output, *flags):
    main([str(table), "-m", str(model), "-o", str(output), "--verbose-level", "0", *map(str, flags)])


def _read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


def test_csv_and_json_lines_hold_what_the_model_predicts(model, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "ROWS", 7)  # several pieces
    texts = [text for text, _ in documents(30, 2, seed=5)]
    table = write_table(tmp_path / "new.csv", [(text, [str(n)]) for n, text in enumerate(texts)], ("text", "id"))
    expected = XRLinear.load(model).best(texts, k=2)
    _predict(model, table, tmp_path / "out.jsonl", "-k", 2)
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [one["labels"] for one in found] == [[name for name, _ in row] for row in expected]
    assert found[3]["scores"] == pytest.approx([score for _, score in expected[3]], abs=1e-6)
    assert [(one["line"], one["id"]) for one in found] == [(n + 2, str(n)) for n in range(30)]
    for name in ("out.csv", "out.tsv"):
        _predict(model, table, tmp_path / name, "-k", 2)
        head, *rows = _read(tmp_path / name)
        assert head == ["line", "id", "label 1", "score 1", "label 2", "score 2"]
        assert [[row[2], row[4]] for row in rows] == [[safe_cell(name) for name, _ in one] for one in expected]
        assert float(rows[0][3]) == pytest.approx(expected[0][0][1], abs=1e-5)


def test_no_cell_runs_as_a_formula(model, tmp_path):
    table = tmp_path / "new.csv"
    cells = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "-12.5", "plain"]
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([["text", "=note"], *(("flour and butter", cell) for cell in cells)])
    _predict(model, table, tmp_path / "out.csv", "--keep", "all")
    head, *rows = _read(tmp_path / "out.csv")
    assert head[2] == "'=note"
    escaped = [f"'{cell}".replace("\r", " ").replace("\t=", "\t'=") for cell in cells[:6]]  # a tab may separate cells
    assert [row[2] for row in rows] == [*escaped, "-12.5", "plain"]
    written = [cell for row in [head, *rows] for cell in row]
    assert any(HOSTILE in cell for cell in written)
    formulas = [cell for cell in written if cell[:1] in "=+-@\t\r" and cell and cell != "-12.5"]
    assert not formulas


def test_every_row_is_in_the_output_even_if_it_cannot_be_read(model, tmp_path, caplog):
    table = tmp_path / "new.csv"
    table.write_text("id,text\n1,flour\n2,,too,many\n3,\n4,guitar\n")
    _predict(model, table, tmp_path / "out.csv")
    _, *rows = _read(tmp_path / "out.csv")
    assert [row[:2] for row in rows] == [["2", "1"], ["3", ""], ["4", "3"], ["5", "4"]]
    assert [bool(row[2]) for row in rows] == [True, False, False, True]
    assert "1 rows could not be read" in caplog.text


def test_a_dictionary_in_a_late_row_costs_this_row_alone(model, tmp_path, caplog):
    table = tmp_path / "new.jsonl"
    lines = [{"id": number, "text": "flour"} for number in range(1200)]  # more than the columns are guessed from
    table.write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"id": 7777, "text": {"title": "guitar"}}]))
    _predict(model, table, tmp_path / "out.csv")
    _, *rows = _read(tmp_path / "out.csv")
    assert (len(rows), rows[-1][1], rows[-1][2], bool(rows[0][2])) == (1201, "7777", "", True)
    assert "line 1,201: a dictionary in place of a text" in caplog.text


def test_the_column_of_texts_is_guessed_or_named(model, tmp_path):
    table = tmp_path / "new.csv"
    table.write_text("title,body\nguitar,flour and butter for the oven\nsinger,herbs and sauce for the recipe\n")
    first = {}
    for column in ("title", "body", "title,body", None):
        _predict(model, table, tmp_path / "out.csv", *(() if column is None else ("--column", column)), "-k", 1)
        first[column] = _read(tmp_path / "out.csv")[1][1]
    assert first["title"] != first["body"]
    assert first[None] == first["body"]
    refused("has no column 'none'", _predict, model, table, tmp_path / "other.csv", "--column", "none")
    assert not (tmp_path / "other.csv").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-m", "MODEL"], "-o is missing"),
        (["-m", "MODEL", "-o", "out.xlsx"], "unknown extension"),
        (["-m", "MODEL", "-o", "TABLE"], "also an input|-o"),
        (["-m", "MODEL", "-o", "out.csv", "-k", "0"], r"-k \(--only-topk\) is out of range\n.*least 1\n"),
        (["-m", "MODEL", "-o", "out.csv", "--keep", "none"], "has no column 'none'"),
        (["-m", "MODEL", "-o", "out.csv", "-y", "Y.npz"], "-y cannot be used"),
    ],
)
def test_command_lines_that_cannot_work(model, tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "new.csv"
    table.write_text("text\nflour\n")
    with pytest.raises(InputError, match=message):
        main([str(table), *({"MODEL": str(model), "TABLE": str(table)}.get(flag, flag) for flag in flags)])
    assert table.read_text() == "text\nflour\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.csv"]
