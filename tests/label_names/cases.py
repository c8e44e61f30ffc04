"""Small vocabularies and texts for the tests of label names."""

import unicodedata

import numpy as np
from scipy.sparse import csr_matrix

NAMES = [
    "cats",
    "Mercury (planet)",
    "domestic heating",
    "soil analysis",
    "猫の病気",
    "école primaire",
    "hay\thayfields\tmeadow",
]
TEXTS = [
    "a cat and a dog", "cats of Finland", "the planet Mercury", "heating of domestic buildings", "analyses of soils",
    "lapset ja 猫の病気について", "L'ÉCOLE PRIMAIRE", "ecoles primaires", "meadows", "", "heating", "nothing of this",
]  # fmt: skip


def labels_of(texts, names):
    """Return labels: those whose first word occurs, by its first four letters."""
    rows, columns = [], []
    for row, text in enumerate(texts):
        for column, name in enumerate(names):
            if plain(name)[:4] in plain(text):
                rows.append(row)
                columns.append(column)
    return csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=(len(texts), len(names)))


def plain(text):
    """Return a text without case and accents."""
    folded = unicodedata.normalize("NFKD", text.casefold())
    return "".join(one for one in folded if not unicodedata.combining(one))


def many(count=300, seed=0):
    """Return names, texts that contain some of them, and their labels."""
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(list("abcdefghijklmnop"), 7)) for _ in range(60)]
    names = [" ".join(rng.choice(words, rng.integers(1, 4), replace=False)) for _ in range(40)]
    chosen = [rng.choice(40, rng.integers(1, 4), replace=False) for _ in range(count)]
    # In any order, so that the position of a name says nothing.
    texts = [
        " ".join(rng.permutation([*rng.choice(words, 3), *(names[j] for j in own if rng.random() < 0.7)]))
        for own in chosen
    ]
    rows = np.repeat(np.arange(count), [len(own) for own in chosen])
    Y = csr_matrix((np.ones(len(rows), np.float32), (rows, np.concatenate(chosen))), shape=(count, 40))
    return names, texts, Y
