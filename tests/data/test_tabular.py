"""A table given as a file of texts is refused; texts with commas, tabs and short first lines are not."""

import logging

import pytest

from tests.refusals import refused
from xmc_tf.data import TextFile

TABLES = {
    "a.csv": 'text,label\n"first, with a comma",3\nsecond,4\n',
    "b.csv": "the first,1\nthe second,2\nthe third,1\n",  # no header, but the name and the same columns everywhere
    "c.txt": "Label\tText\n3\tthe first\n4\tthe second\n",
    "d.tsv": "12\tthe first\n13\tthe second\n",
    "e.txt": "id;title;labels\n1;x;y\n",
    "f.csv": "\ufefftext,label\r\nthe first,3\r\n",
}
TEXTS = {
    "a.txt": "one, two\nthree, four\nfive, six\n",
    "b.txt": "text\nand another text\n",
    "c.txt": "a title, a text, a label, and so on\nand more\n",
    "d.csv": "one text\nanother, with a comma\n",
    "e.txt": "text",
    "g.txt": "title, author, and year\nare short\n",
    "h.txt": "1:1:2\ttext\nand a tab\n",
    "f.txt": "Labels, as everybody knows who has ever had to do with them, are hard to give\nmore\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_refused(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(TABLES[name].encode())
    error = refused("is a table, not a file of texts", TextFile, path)
    assert f"xmc-tf train {path}" in error.fix
    TextFile(path, name="label names")  # names of labels are no documents


@pytest.mark.parametrize("name", TEXTS)
def test_texts_are_taken(name, tmp_path, caplog):
    path = tmp_path / name
    path.write_text(TEXTS[name])
    assert len(TextFile(path)) == len(TEXTS[name].splitlines())
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * name.endswith(".csv")
