"""Small tables of texts and labels."""

import csv

import numpy as np
import pytest

TOPICS = {
    "sports": "match goal team player league score",
    "cooking": "oven flour butter sauce herbs recipe",
    "music": "concert guitar singer album melody drum",
    "travel": "flight hotel beach island ticket tour",
}


def documents(count, labels_per_document, seed=0):
    """Return (text, labels) pairs whose words tell the labels."""
    random, names, found = np.random.default_rng(seed), list(TOPICS), []
    for number in range(count):
        labels = [names[at] for at in random.choice(len(names), labels_per_document, replace=False)]
        words = [word for label in labels for word in random.choice(TOPICS[label].split(), 4)]
        found.append((f"{' '.join(words)} number {number}", labels))
    return found


def write_table(path, rows, head=("text", "label")):
    """Write a CSV file."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *((text, "|".join(labels)) for text, labels in rows)])
    return path


@pytest.fixture
def multi(tmp_path):
    """A table with two labels per document."""
    return write_table(tmp_path / "multi.csv", documents(200, 2))


@pytest.fixture
def single(tmp_path):
    """A table with one label per document."""
    return write_table(tmp_path / "single.csv", documents(200, 1))
