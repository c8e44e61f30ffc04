"""The files that examples name: texts on topics that the examples ask for, their labels, and a tiny encoder."""

import csv

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.data import save_matrix
from xmc_tf.demo.encoder import make_tiny
from xmc_tf.tables.preparation import prepare

TOPICS = {
    "scipy.sparse": "sparse matrix gradient csr entries rows",
    "numpy.linalg": "norm eigenvalue determinant inverse decomposition",
    "keras.layers": "layer dense activation units dropout",
    "climate change": "climate warming emissions temperature carbon",
    "forests": "forests trees timber wood clearing",
    "libraries": "library catalogue subject shelf loan",
    "cooking": "bread dough oven salt flour",
    "gardening": "garden soil seeds herbs watering",
}
OTHER_WORDS = ["a", "of", "the", "and", "with", "in", "for", "how", "we", "show", "new", "results"]


def write_files(folder, documents=96, held_out=32):
    """Write texts, features, labels and an encoder into a folder."""
    draw = np.random.default_rng(0)
    total, names = documents + held_out, list(TOPICS)
    labels = draw.integers(0, len(names), (total, 2))
    Y = np.zeros((total, len(names)), np.float32)
    texts = []
    for row, (first, second) in enumerate(labels):
        words = [*draw.choice(TOPICS[names[first]].split(), 4), *draw.choice(OTHER_WORDS, 3)]
        Y[row, first] = 1
        if row % 3 == 0:
            words += list(draw.choice(TOPICS[names[second]].split(), 4))
            Y[row, second] = 1
        texts.append(" ".join(words))
    for name, rows in (("trn", slice(0, documents)), ("tst", slice(documents, total))):
        (folder / f"X.{name}.txt").write_text("".join(f"{text}\n" for text in texts[rows]), encoding="utf-8")
        save_matrix(folder / f"Y.{name}.npz", csr_matrix(Y[rows]))
        save_matrix(folder / f"X.{name}.npz", csr_matrix(Y[rows] + draw.random(Y[rows].shape, np.float32)))
    with (folder / "data.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [(text, "|".join(names[at] for at in np.flatnonzero(Y[row]))) for row, text in enumerate(texts)]
        csv.writer(file).writerows([("text", "label"), *rows])
    (folder / "new.csv").write_text("text\nsparse matrix rows\nbread and salt\n", encoding="utf-8")
    prepare(folder / "data.csv", folder / "data.sqlite").close()
    (folder / "labels.txt").write_text("".join(f"{name}\n" for name in names))
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    make_tiny(folder / "encoder", texts, length=128, **sizes)
    (folder / "bert-base-cased").symlink_to(folder / "encoder")  # the default encoder, without a network
    return folder
