"""A small corpus on disk, a tiny encoder that reads it, and command lines run on them."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.params import published
from xmc_tf import train
from xmc_tf.data import TextFile, load_matrix, save_matrix
from xmc_tf.models.xtransformer import XTransformer

ROOT = Path(__file__).resolve().parents[2]
TOPICS = ["library", "kitchen", "harbour", "forest", "theatre", "station", "garden", "museum"]
WORDS = [f"word{i}" for i in range(40)]
LABELS = 24


def write_corpus(folder: Path, documents=160, held_out=60, confused=0.0):
    """Texts on eight topics with three labels each; features and a tree too.

    Of the words that tell the topic a share may be ``confused``, drawn from all topics: then no model is always right.
    """
    rng = np.random.default_rng(0)
    total = documents + held_out
    topics = rng.integers(0, len(TOPICS), total)
    texts = [
        " ".join([*rng.choice(WORDS, rng.integers(2, 14)), *[TOPICS[topic]] * 2, f"{TOPICS[topic]}s"])
        for topic in topics
    ]
    if confused:
        texts = [_with_other_topics(text, confused, rng) for text in texts]
    Y = np.zeros((total, LABELS), np.float32)
    Y[np.arange(total), topics] = 1
    for copy in (1, 2):
        Y[np.arange(total), copy * len(TOPICS) + topics] = rng.random(total) < 0.4
    X = rng.random((total, 30)) * (rng.random((total, 30)) < 0.2)
    X[np.arange(total), topics] += 2
    for name, rows in (("trn", slice(0, documents)), ("tst", slice(documents, total))):
        (folder / f"X.{name}.txt").write_text("".join(f"{text}\n" for text in texts[rows]), encoding="utf-8")
        save_matrix(folder / f"Y.{name}.npz", csr_matrix(Y[rows]))
        save_matrix(folder / f"X.{name}.npz", csr_matrix(X[rows].astype(np.float32)))
    (folder / "labels.txt").write_text("".join(f"{topic} {i}\n" for i in (1, 2, 3) for topic in TOPICS))
    clusters = np.zeros((LABELS, 8), np.float32)
    clusters[np.arange(LABELS), np.arange(LABELS) % 8] = 1
    save_matrix(folder / "C.npz", csr_matrix(clusters).tocsc())
    write_encoder(folder / "encoder")
    return folder


def _with_other_topics(text, confused, rng):
    *words, first, second, third = text.split()
    told = [word if rng.random() >= confused else str(rng.choice(TOPICS)) for word in (first, second, third)]
    return " ".join([*words, *told])


def write_encoder(folder: Path, width=16):
    """A BERT of a few thousand random weights, with a tokenizer that knows the corpus's words.

    A second layer would cost half as much time again, for TensorFlow's graphs.
    """
    pytest.importorskip("transformers")
    from transformers import BertConfig

    from xmc_tf.demo.encoder import write_tokenizer
    from xmc_tf.encoder import Encoder

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##s", "word", *(f"##{i}" for i in range(40)), *TOPICS]
    folder.mkdir()
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    write_tokenizer(folder)
    config = BertConfig(
        vocab_size=len(pieces), hidden_size=width, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=2 * width, max_position_embeddings=32, initializer_range=0.2,
    )  # fmt: skip
    Encoder.from_config(config, pooling="mean").save(folder)


def texts_and_labels(corpus, part="trn"):
    """The training's, or the held-out documents'."""
    return TextFile(corpus / f"X.{part}.txt"), load_matrix(corpus / f"Y.{part}.npz").tocsr()


def train_flags(corpus, model, *more):
    """A training that takes seconds: small tree, few steps; or those of the parameter file in ``more``."""
    data = ("-t", corpus / "X.trn.txt", "-y", corpus / "Y.trn.npz", "-m", model, "-n", 1, "-b", 8, "-k", 5)
    small = (
        "--model-shortcut", corpus / "encoder", "--truncate-length", 16, "--nr-splits", 4, "--max-leaf-size", 6,
        "--batch-size", 16, "--max-steps", 4, "--save-steps", 2, "--threshold", 0.01,
    )  # fmt: skip
    return [str(flag) for flag in (*data, *(() if "--params-path" in more else small), *more)]


def shell(verb, *flags, **options):
    """A command line as the user runs it: exit code, standard output, standard error."""
    command = [sys.executable, "-m", f"xmc_tf.{verb}", *map(str, flags)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False, **options
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def published_for(corpus):
    """A parameter file in the published form, with a tree, an encoder and steps that suit the corpus."""
    held = published.xtransformer()
    for level in held["train_params"]["matcher_params_chain"]:
        level |= {"model_shortcut": str(corpus / "encoder"), "max_steps": 2, "batch_size": 8, "save_steps": 2}
        level |= {"warmup_steps": 0, "learning_rate": 0.01}
    for indexer in ("preliminary_indexer_params", "refined_indexer_params"):
        held["train_params"][indexer] |= {"nr_splits": 4, "max_leaf_size": 3, "min_codes": None}
    for level in held["pred_params"]["matcher_params_chain"]:
        level["truncate_length"] = 16
    hlm = held["train_params"]["ranker_params"]["hlm_args"]
    for chain in (hlm["neg_mining_chain"], hlm["model_chain"]):
        chain.insert(0, chain[0])  # written for a deeper tree
    return held


def run_train(corpus, model, *more):
    """The command line in this process; stages are shared with the other trainings of the session."""
    train.main(train_flags(corpus, model, "--work-dir", corpus / "work", "--keep-work", *more))
    return XTransformer.load(model)


def made_stages(log):
    """The stages that a training has made, and not found made."""
    return re.findall(r"(\S+): done in", log)
