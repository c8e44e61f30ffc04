"""The display of the tree: what is shown, what is left out, and that no name breaks the drawing."""

import re

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.refusals import refused
from tests.tree.cases import trees
from xmc_tf.tree import LabelTree, save_chain
from xmc_tf.tree.show import TreeView, main

TREE = LabelTree(splits=([0, 2], [0, 2, 5]), labels=[1, 4, 0, 2, 3])
NAMES = ["apple", "boat", "cherry", "date", "engine"]


def test_clusters_are_called_by_their_labels():
    assert TreeView(TREE, NAMES, words=2).text().splitlines() == [
        "5 labels",
        "├─ 2 labels: boat, engine",
        "│  ├─ boat",
        "│  └─ engine",
        "└─ 3 labels: apple, cherry …",
        "   ├─ apple",
        "   ├─ cherry",
        "   └─ date",
    ]


def test_frequent_labels_come_first():
    text = TreeView(TREE, NAMES, words=2, frequencies=np.array([1, 5, 1, 2000, 7])).text()
    assert text.splitlines() == [
        "5 labels",
        "├─ 2 labels: engine, boat",
        "│  ├─ engine (7)",
        "│  └─ boat (5)",
        "└─ 3 labels: date, apple …",
        "   ├─ date (2,000)",
        "   ├─ apple (1)",
        "   └─ cherry (1)",
    ]


def test_depth_and_children_are_limited():
    wide = LabelTree(splits=([0, 2], [0, 60, 61]), labels=np.arange(61))
    assert TreeView(wide, depth=0).text() == "61 labels"
    assert TreeView(wide, depth=1, words=1).text().splitlines() == ["61 labels", "├─ 60 labels: 0 …", "└─ 1 label: 60"]
    lines = TreeView(wide, max_children=2).text().splitlines()
    assert "│  └─ … and 58 more" in lines
    assert len(lines) == 7


def test_one_more_is_shown_rather_than_counted():
    tree = LabelTree(splits=([0, 3],), labels=[0, 1, 2])
    assert "more" not in TreeView(tree, max_children=2).text()


def test_a_large_tree_is_a_page_by_default():
    leaves = np.arange(257) * 64
    tree = LabelTree(splits=([0, 16], np.arange(17) * 16, leaves), labels=np.arange(leaves[-1]))
    assert len(TreeView(tree).text().splitlines()) <= 300
    assert len(TreeView(tree).dot().splitlines()) <= 600


def test_clusters_without_labels_are_shown():
    tree = LabelTree(splits=([0, 2], [0, 0, 1]), labels=[0])
    assert TreeView(tree).text().splitlines() == ["1 label", "├─ 0 labels", "└─ 1 label: 0", "   └─ 0"]


def test_names_stay_on_their_line():
    names = ["two\nlines", "\x1b[31mred", "a" * 100, " spaces \t inside ", "plain"]
    text = TreeView(TREE, names).text()
    assert "two lines" in text
    assert "\x1b" not in text
    assert "a" * 39 + "…" in text
    assert "spaces inside" in text


@settings(max_examples=30)
@given(trees(), st.data())
def test_any_names_make_one_line_a_node(tree, data):
    names = [data.draw(st.text(min_size=1, max_size=8)) for _ in range(tree.nr_labels)]
    text = TreeView(tree, names, max_children=1000, depth=99).text()
    assert len(text.split("\n")) == sum(tree.level_sizes)


# A string of Graphviz: anything but quotes and backslashes, or those behind a backslash.
STRING = r'"(?:[^"\\]|\\["\\])*"'
NODE = rf"  \w+ \[label={STRING}(?:, style=dashed)?\];"
EDGE = r"  \w+ -> \w+(?: \[style=dashed\])?;"


@settings(max_examples=40)
@given(trees(), st.data())
def test_drawings_are_well_formed_whatever_the_names(tree, data):
    letters = st.text(st.sampled_from('"\\n;{}<>-a\n'), min_size=1, max_size=8)
    names = [data.draw(letters) for _ in range(tree.nr_labels)]
    lines = TreeView(tree, names, depth=99, max_children=3).dot().split("\n")
    assert lines[0] == "digraph labels {"
    assert lines[-1] == "}"
    assert all(re.fullmatch(f"{NODE}|{EDGE}", line) for line in lines[3:-1])
    defined = set(re.findall(r"^  (\w+) \[label", "\n".join(lines), re.MULTILINE))
    used = set(re.findall(r"^  (\w+) -> (\w+)", "\n".join(lines), re.MULTILINE))
    assert {name for pair in used for name in pair} <= defined


def test_drawing_of_a_small_tree():
    assert TreeView(LabelTree(splits=([0, 2],), labels=[0, 1]), ['say "hi"', "back\\slash"]).dot().splitlines() == [
        "digraph labels {",
        "  rankdir=LR;",
        '  node [shape=box, fontname="sans-serif"];',
        '  n0_0 [label="2 labels"];',
        '  n1_0 [label="say \\"hi\\""];',
        "  n0_0 -> n1_0;",
        '  n1_1 [label="back\\\\slash"];',
        "  n0_0 -> n1_1;",
        "}",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ["one"]}, "names do not fit the tree"),
        ({"frequencies": np.ones(6)}, "frequencies do not fit the tree"),
        ({"depth": -1}, "depth is out of range"),
        ({"max_children": 0}, "max_children is out of range"),
        ({"words": 0}, "words is out of range"),
    ],
)
def test_inputs_that_do_not_fit_raise_an_error(options, message):
    refused(message, TreeView, TREE, **options)


@pytest.fixture
def model(tmp_path):
    save_chain(tmp_path / "model" / "tree", TREE)
    (tmp_path / "model" / "labels.txt").write_text("\n".join(NAMES) + "\n")
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        (["{m}", "--depth", "1"], {"depth": 1}),
        (
            ["{m}/tree", "--labels", "{m}/labels.txt", "-y", "{m}/../Y.npz", "--words", "1"],
            {"frequencies": np.array([0, 1, 0, 2, 0]), "words": 1},
        ),
    ],
)
def test_command_line_prints_the_tree_with_its_names(flags, options, model, tmp_path, capsys):
    Y = sp.csr_matrix(np.array([[0, 1, 0, 1, 0], [0, 0, 0, 1, 0]], np.float32))
    sp.save_npz(tmp_path / "Y.npz", Y)
    main([flag.format(m=model) for flag in flags])
    assert capsys.readouterr().out == TreeView(TREE, NAMES, **options).text() + "\n"
    main([str(model), "--dot", str(tmp_path / "tree.dot")])
    assert (tmp_path / "tree.dot").read_text() == TreeView(TREE, NAMES).dot() + "\n"
    assert capsys.readouterr().out == ""


def test_command_line_says_what_is_wrong(model, tmp_path):
    sp.save_npz(tmp_path / "Y.npz", sp.csr_matrix(np.ones((2, 4), np.float32)))
    refused("does not fit the tree", main, [str(model), "-y", str(tmp_path / "Y.npz")])
    refused("does not exist", main, [str(tmp_path / "nothing")])
