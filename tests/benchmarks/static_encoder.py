"""A static encoder between TF-IDF and a transformer: what rankers gain by it, and what it costs.

    python -m tests.benchmarks.static_encoder --encoder MODEL --data DIR [--length 64] [--held-out 0.1] [--seed 0]

The static encoder is distilled from MODEL: each token's vector is MODEL's embedding of that token alone, reduced to its
principal components; the embedding of a text is the mean of its tokens' vectors, weighted by the tokens' rarity in the
training texts. No transformer runs at prediction. Rankers with the defaults are trained on TF-IDF alone, with the
static embedding, and with that of the frozen transformer. A share of the training documents takes the place of the test
documents, unless ``--held-out 0``.

Prints a table, and one JSON line: P@1, P@3 and P@5 in percent, and the microseconds of CPU that embedding a text takes.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, hstack

from tests.benchmarks.sides.corpora import read_corpus
from xmc_tf.data import TokenStore
from xmc_tf.encoder import Encoder, TextTokenizer, encode_documents
from xmc_tf.features import Tfidf
from xmc_tf.metrics import evaluate, format_table
from xmc_tf.models.xr_linear import XRLinear

_COMPONENTS = 256
_SMOOTHING = 1e-3  # of the tokens' weights, as a share of all tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--encoder", required=True, help="the folder of the transformer")
    parser.add_argument("--length", type=int, default=64, help="tokens of a text that are read (default 64)")
    parser.add_argument("--held-out", type=float, default=0.1, help="share of the training documents (default 0.1)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of held-out documents")
    a = parser.parse_args()
    texts, labels = read_corpus(a.data, a.held_out, a.seed)
    encoder, tokenizer = Encoder.load(a.encoder), TextTokenizer.load(a.encoder)
    tokens = {part: tokenizer.tokenize(texts[part], a.length) for part in texts}
    tfidf = Tfidf.fit(texts["trn"])
    features = {part: tfidf.transform(texts[part]) for part in texts}
    vectors = distilled(encoder, tokenizer, tokens["trn"])

    def transformer(documents: list[np.ndarray]) -> np.ndarray:
        return _encoded(encoder, documents)

    def static(documents: list[np.ndarray]) -> np.ndarray:
        return _counts(documents, len(vectors)) @ vectors

    sides: dict[str, Callable[[list[np.ndarray]], np.ndarray] | None]
    sides = {"TF-IDF": None, "TF-IDF, static encoder": static, "TF-IDF, frozen transformer": transformer}
    results = {}
    for name, embed in sides.items():
        begin = time.process_time()
        dense = {part: normalized(embed(tokens[part])) for part in tokens} if embed else {}
        each_us = 1e6 * (time.process_time() - begin) / sum(map(len, tokens.values()))
        X = {
            part: csr_matrix(hstack([features[part], csr_matrix(dense[part])])) if dense else features[part]
            for part in texts
        }
        begin = time.process_time()
        model = XRLinear.train(X["trn"], labels["trn"])
        seconds = time.process_time() - begin
        measures = evaluate(labels["tst"], model.predict(X["tst"]), (1, 3, 5))
        results[name] = {
            **{f"P@{k}": round(100 * measures.at("P", k), 2) for k in (1, 3, 5)},
            "embedding_us": round(each_us, 1), "train_cpu_s": round(seconds, 1),
        }  # fmt: skip
        print(f"{name}: {json.dumps(results[name])}", flush=True)
    columns = list(next(iter(results.values())))
    print(format_table(["", *columns], [[name, *map(str, one.values())] for name, one in results.items()]))
    print(json.dumps({"figure": "static_encoder", "data": a.data.name, "held_out": a.held_out, "results": results}))


def distilled(encoder: Encoder, tokenizer: TextTokenizer, documents: list[np.ndarray]) -> np.ndarray:
    """Return a weighted vector per token: its embedding alone, reduced, times its rarity in the documents."""
    # The special tokens around a text are those of the empty text.
    empty = tokenizer.tokenize([""], 8)[0]
    first, last = empty[:1], empty[1:]
    alone = [np.concatenate([first, [token], last]).astype(np.int32) for token in range(encoder.vocabulary_size)]
    vectors = _encoded(encoder, alone)
    vectors -= vectors.mean(0)
    _, basis = np.linalg.eigh(vectors.T @ vectors)
    reduced = vectors @ basis[:, ::-1][:, :_COMPONENTS]
    counts = np.bincount(np.concatenate(documents), minlength=len(vectors))
    weights = _SMOOTHING / (_SMOOTHING + counts / counts.sum())
    weights[empty] = 0
    return (reduced * weights[:, None]).astype(np.float32)


def normalized(rows: np.ndarray) -> np.ndarray:
    """Return rows of length 1; rows of zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


def _encoded(encoder: Encoder, documents: list[np.ndarray]) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        with TokenStore.create(Path(folder) / "tokens") as writer:
            writer.write(documents)
        return encode_documents(encoder, TokenStore.open(Path(folder) / "tokens"))


def _counts(documents: list[np.ndarray], nr_tokens: int) -> csr_matrix:
    """Return how often each token occurs in each document."""
    splits = np.concatenate([[0], np.cumsum([len(one) for one in documents])])
    ids = np.concatenate(documents)
    return csr_matrix((np.ones(len(ids), np.float32), ids, splits), shape=(len(documents), nr_tokens))


if __name__ == "__main__":
    main()
