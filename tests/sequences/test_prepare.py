"""Preparation of interactions against a version with dictionaries; what killed runs leave, formats, unusable rows."""

import gzip
import json
import shutil
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.params import load_sequence_params
from xmc_tf.sequences.data import interactions as reading
from xmc_tf.sequences.data import preparation
from xmc_tf.sequences.data.folder import PreparedFolder
from xmc_tf.sequences.data.preparation import InteractionOptions, prepare
from xmc_tf.sequences.prepare import main
from xmc_tf.store.checksums import checksum_of

ROWS = st.lists(
    st.tuples(st.sampled_from(["ann", "bob", "Zoë", "d"]), st.integers(0, 6), st.integers(0, 5)),
    min_size=1,
    max_size=40,
)


def naive(rows, min_item, min_user):
    """Return users and their item names in the order of time, and item names by frequency."""
    counts = Counter(item for _, item, _ in rows)
    by_user = defaultdict(list)
    for user, item, time in rows:
        if counts[item] >= min_item:
            by_user[user].append((time, item))
    histories = {
        user: [item for _, item in sorted(events, key=lambda one: one[0])]
        for user, events in by_user.items()
        if len(events) >= min_user
    }
    return histories, Counter(item for items in histories.values() for item in items)


def histories_of(data):
    names = data.item_names()
    return {
        user.decode(): [names[item] for item in part.items[low:high]]
        for part in data.parts()
        for user, low, high in zip(part.users, part.splits, part.splits[1:], strict=False)
    }


def write(path, rows, head="user,item,time"):
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n", encoding="utf-8")
    return path


@settings(max_examples=25)
@given(ROWS, st.integers(1, 3), st.integers(1, 4), st.integers(1, 3))
def test_equals_dictionaries(tmp_path_factory, rows, min_item, min_user, buckets):
    folder = tmp_path_factory.mktemp("prepared")
    table = write(folder / "i.csv", rows)
    expected, counts = naive(rows, min_item, min_user)
    options = InteractionOptions(min_item_count=min_item, min_user_count=min_user)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "BUCKET_BYTES", max(1, table.stat().st_size // buckets))
        patch.setattr(reading, "CHUNK_ROWS", 7)
        if not expected:
            refused("no interactions are left", prepare, [table], folder / "data", options)
            return
        data = prepare([table], folder / "data", options)
    assert histories_of(data) == {user: [str(item) for item in items] for user, items in expected.items()}
    assert dict(zip(map(int, data.item_names()), data.item_counts().tolist(), strict=True)) == counts
    assert np.all(np.diff(data.item_counts()) <= 0)


def test_what_an_interrupted_run_leaves_is_removed_by_the_next_one(tmp_path, monkeypatch):
    table = write(tmp_path / "a.csv", [(f"u{n % 7}", n * n % 13, n) for n in range(95)])
    whole = histories_of(prepare([table], tmp_path / "whole"))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *a, **options: None)  # as if it were killed
        patch.setattr(preparation, "_renumber", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            prepare([table], tmp_path / "data")
    assert list(tmp_path.glob(".data.xmc_tf-*"))
    assert histories_of(prepare([table], tmp_path / "data")) == whole
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv", "whole", "data"}


def test_formats_give_the_same(tmp_path, capsys):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    rows = [("ann", 3, 5), ("bob", 3, 1), ("ann", 4, 2), ("ann", 9, 9), ("bob", 4, 0), ("bob", 7, 3)]
    csv = write(tmp_path / "i.csv", rows)
    lines = tmp_path / "i.jsonl"
    lines.write_text("".join(json.dumps({"user": u, "item": i, "time": t}) + "\n" for u, i, t in rows))
    columns = tmp_path / "i.parquet"
    table = {name: list(column) for name, column in zip(("user", "item", "time"), zip(*rows, strict=True), strict=True)}
    parquet.write_table(pyarrow.table(table), columns)
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(csv.read_bytes()))
    found = [histories_of(prepare([path], tmp_path / path.suffix[1:])) for path in (csv, lines, columns, packed)]
    assert found == [{"ann": ["4", "3", "9"], "bob": ["4", "3", "7"]}] * 4
    main([str(tmp_path / "i.*l*"), str(csv), "-o", str(tmp_path / "both"), "--min-item-count", "2"])
    assert "12 interactions of 2 users with 4 items, 6.0 per user" in capsys.readouterr().out


def test_a_configuration_has_flags_as_keys(tmp_path, capsys):
    rows = [(user, item, item) for user in range(5) for item in range(4)]
    table, config, out = write(tmp_path / "t.csv", rows, "who,what,time"), tmp_path / "c.toml", str(tmp_path / "c")
    flags = ["--user-column", "who", "--item-column", "what", "--min-user-count", "4", "--json"]
    main([str(table), "-o", str(tmp_path / "flags"), *flags])
    expected = capsys.readouterr().out
    keys = f'user_column = "who"\nitem-column = "what"\nmin_user_count = 4\njson = true\noutput = "{out}"\n'
    for text in (f'tables = ["{table}"]\n{keys}', f'n_epochs = 3\n[prepare]\n{keys}tables = "{table}"\n'):
        config.write_text(text)
        main([str(config)])
        assert capsys.readouterr().out == expected
        refused("users with at least 5 interactions", main, [str(config), "--min-user-count", "5"])  # flags win
    assert load_sequence_params(config).n_epochs == 3  # the same file for the training
    for line, message in {
        "min_user_cuont = 4": r'c\.toml: min_user_cuont is not a parameter(.|\n)*did you mean "min_user_count"',
        "user_column = {a = 1}": "user_column has the wrong type",
        "user_column = ": r"c\.toml is not TOML",
    }.items():
        config.write_text(f"{line}\n")
        refused(message, main, [str(config)])


def test_dates_ratings_and_no_times(tmp_path):
    rows = [("u", "a", "2024-05-02", 5), ("u", "b", "2024-05-01T10:00:00.5Z", 4), ("u", "c", "2023-01-01", 1)]
    table = write(tmp_path / "r.csv", rows, "customer,product,date,stars")
    assert histories_of(prepare([table], tmp_path / "all")) == {"u": ["c", "b", "a"]}
    options = InteractionOptions(min_rating=4, min_user_count=2)
    data = prepare([table], tmp_path / "rated", options)
    assert histories_of(data) == {"u": ["b", "a"]}
    assert data.header["rows_below_min_rating"] == 1
    table = write(tmp_path / "n.csv", [("u", item) for item in "cab"], "user,item")
    assert histories_of(prepare([table], tmp_path / "ordered")) == {"u": ["c", "a", "b"]}


def test_unusable_rows(tmp_path, caplog):
    rows = [("u", n, n) for n in range(97)] + [("u", "x", "yesterday"), ("", 1, 1), ("u", 1)]
    table = write(tmp_path / "i.csv", rows)
    refused(r"3 of 100 rows cannot be used[^$]*row 98: the time is neither", prepare, [table], tmp_path / "data")
    data = prepare([table], tmp_path / "data", InteractionOptions(max_bad_rows=0.03))
    assert data.header["rows_unusable"] == 3
    assert "3 of 100 rows cannot be used" in caplog.text


def test_no_such_column(tmp_path):
    table = write(tmp_path / "i.csv", [(1, 2, 3)], "who,item,time")
    refused(r"which column holds the user[^$]*--user-column", prepare, [table], tmp_path / "data")
    with pytest.raises(InputError, match="users and items are in the same column, 'item'"):
        main([str(table), "-o", str(tmp_path / "data"), "--user-column", "item", "--item-column", "item"])
    refused("no column 'why'", main, [str(table), "-o", str(tmp_path / "data"), "--user-column", "why"])
    main([str(table), "-o", str(tmp_path / "data"), "--user-column", "who", "--min-user-count", "1"])
    assert PreparedFolder(tmp_path / "data").nr_items == 1


def test_users_with_the_same_hash_stay_apart(tmp_path, monkeypatch):
    rows = [(user, item, item) for item in range(4) for user in ("ann", "bob")]
    monkeypatch.setattr("xmc_tf.sequences.data.preparation.hashes", lambda names: np.zeros(len(names), np.uint64))
    data = prepare([write(tmp_path / "i.csv", rows)], tmp_path / "data")
    assert histories_of(data) == {"ann": list("0123"), "bob": list("0123")}


def test_damaged_folder(tmp_path):
    prepare([write(tmp_path / "i.csv", [("u", n, n) for n in range(4)])], tmp_path / "data")
    refused(r"no part in .* matches 'train_\*.parquet'", PreparedFolder(tmp_path / "data").parts, "train_*.parquet")
    np.save(tmp_path / "data" / "part_00000" / "splits.npy", np.array([0, 1]))
    refused("splits.npy is damaged: its content has changed", PreparedFolder(tmp_path / "data").parts)
    header = json.loads((tmp_path / "data" / "prepared.json").read_text())
    changes = (
        ({"files": {}, "checksum": checksum_of(header | {"files": {}})}, "no checksum of part_00000/items.npy"),
        ({"items": 9}, "prepared.json has changed since it was saved"),
    )
    for change, message in changes:
        (tmp_path / "data" / "prepared.json").write_text(json.dumps(header | change))
        refused(message, lambda: PreparedFolder(tmp_path / "data").parts())
    refused("the folder of prepared interactions", PreparedFolder, tmp_path)


@pytest.mark.parametrize("name", ["part_00000/items.npy", "item_counts.npy", "items.txt"])
def test_a_flipped_bit_is_found(tmp_path, name):
    folder = tmp_path / "data"
    prepare([write(tmp_path / "i.csv", [("u", n, n) for n in range(4)])], folder)
    header = json.loads((folder / "prepared.json").read_text())
    parts = {f"part_00000/{name}.npy" for name in ("items", "splits", "users")}
    assert set(header["files"]) == {*parts, "item_counts.npy", "items.txt"}
    content = bytearray((folder / name).read_bytes())
    content[-2] ^= 4
    (folder / name).write_bytes(content)
    data = PreparedFolder(folder)
    with pytest.raises(InputError, match=f"{name} is damaged"):
        (data.parts(), data.item_counts(), data.item_names())
