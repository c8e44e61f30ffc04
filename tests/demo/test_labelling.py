from hypothesis import given
from hypothesis import strategies as st

from xmc_tf.demo.corpus import MOST_LABELS, candidates, choose_labels, originals
from xmc_tf.demo.sources import DocumentedObject, words


def test_labels_of_an_object():
    entry = DocumentedObject(
        "pack.python.ops._array_ops", "gather_nd", "", "function", ("params", "indices", "x"), ("Op",), ""
    )
    assert candidates(entry) == [
        "package: pack.ops", "package: pack", "module: pack.ops.array_ops", "about: gather", "takes: params",
        "takes: indices", "extends: Op", "kind: function",
    ]  # fmt: skip


def test_rare_and_common_labels_are_not_given_and_a_lone_label_is_none():
    possible = [["about: a", "about: rare", "about: b", "kind: x"]] * 1 + [["about: a", "about: b", "kind: x"]] * 9
    possible += [["about: c", "kind: x"]] * 10
    chosen = choose_labels(possible, [True] * 20, least=3, largest_share=0.6)
    assert chosen == [["about: a", "about: b"]] * 10 + [[]] * 10


LABEL = st.sampled_from([f"{group}: {i}" for group in ("about", "takes", "package", "kind") for i in range(6)])


@given(st.lists(st.tuples(st.lists(LABEL, unique=True), st.booleans()), max_size=60), st.integers(1, 6))
def test_the_promises_hold_for_any_labels(documents, least):
    possible, training = [d for d, _ in documents], [t for _, t in documents]
    chosen = choose_labels(possible, training, least, 1.0)
    counts = {}
    for given_labels, fit, train in zip(chosen, possible, training, strict=True):
        assert set(given_labels) <= set(fit)
        assert given_labels == [] or 2 <= len(given_labels) <= MOST_LABELS
        for label in given_labels if train else []:
            counts[label] = counts.get(label, 0) + 1
    assert all(counts.get(label, 0) >= least for given_labels in chosen for label in given_labels)


def test_near_copies_are_dropped_and_the_first_stays():
    one = words("returns the sum of all the numbers in the list")
    two = words("returns the sum of all the numbers in the table")
    other = words("opens the file and reads every line of it")
    assert originals([one, two, other, one]) == [0, 2]
