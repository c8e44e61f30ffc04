import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmc_tf.demo.sources import prose


@pytest.mark.parametrize(
    ("docstring", "text"),
    [
        ("Adds two.\n\n    Carefully.\n\n    Args:\n        a: one.\n    ", "Adds two. Carefully."),
        ("Adds.\n\nParameters\n----------\na : int\n    One.", "Adds."),
        ("Adds.\n\n:param a: one\n", "Adds."),
        ("Adds.\n\nReturns: the sum", "Adds."),
        ("Adds.\n\n>>> add(1, 2)\n3\n\nTwice.", "Adds. Twice."),
        ("Adds.\n\n```python\nadd(1)\n```\nTwice.", "Adds. Twice."),
        ("Adds.\n\n.. versionadded:: 1.2\n   Really.\n\nTwice.", "Adds. Twice."),
        ("Adds::\n\n    add(1, 2)\n\nTwice.", "Adds: Twice."),
        ("Sorts `.npy` files .", "Sorts .npy files."),
        ("Adds.\n\n* one\n* two", "Adds. one two"),
        ("Adds :math:`x + y`, `a`, https://a.b/c [1]_ or [this](http://x.y).", "Adds, a, or this."),
        ("*Very* **good** that `**kwargs` and `a * b` stay.", "Very good that **kwargs and a * b stay."),
        ("Uses :class:`~tf.keras.Layer` and :func:`the sum <add>`.", "Uses Layer and the sum."),
    ],
)  # fmt: skip
def test_summary_and_description_stay(docstring, text):
    assert prose(docstring, packages=("tf",)) == text


def test_the_own_name_goes_where_it_is_code():
    text = prose("`sort` sorts: sort(a) is a sort, as is sort_all and argsort.", ("sort", "sort_all"))
    assert text == "sorts: is a sort, as is and argsort."


@given(st.text())
def test_any_docstring_gives_one_line(docstring):
    text = prose(docstring, ("name",), ("np",))
    assert len(text.splitlines()) <= 1
    assert text == text.strip()
