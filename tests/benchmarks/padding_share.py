"""The share of padding in batches of similar length, compared with batches in random order.

    python -m tests.benchmarks.padding_share --encoder MODEL --texts X.trn.txt [--length 64] [--batch 32]

MODEL is a folder with a tokenizer. Prints one JSON line: the share, from 0 to 1, over three epochs. With several
workers, that of each worker's part of the global batches, which it pads for itself.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from xmc_tf.data import TextFile
from xmc_tf.data.batches import epoch_batches, padding_share, share_of_batch
from xmc_tf.encoder import TextTokenizer

_EPOCHS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", required=True, help="a folder with a tokenizer")
    parser.add_argument("--texts", required=True, type=Path)
    parser.add_argument("--length", type=int, default=64, help="tokens of a document that are read")
    parser.add_argument("--batch", type=int, default=32, help="documents of a worker's batch")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4])
    a = parser.parse_args()
    tokenizer, texts = TextTokenizer.load(a.encoder), TextFile(a.texts)
    documents = tokenizer.tokenize(texts.lines(), max_length=a.length)
    lengths = np.array([len(ids) for ids in documents])
    of_like_length = {}
    for workers in a.workers:
        parts = [
            share_of_batch(documents, lengths, rank, workers)
            for epoch in range(_EPOCHS)
            for documents in epoch_batches(lengths, a.batch * workers, seed=0, epoch=epoch)
            for rank in range(workers)
        ]
        of_like_length[workers] = round(padding_share(lengths, parts), 4)
    shuffled = np.random.default_rng(0).permutation(len(lengths))
    as_they_come = padding_share(lengths, np.split(shuffled, range(a.batch, len(lengths), a.batch)))
    figure = {"figure": "padding_share", "texts": a.texts.name, "length": a.length, "batch": a.batch}
    figure |= {"of_like_length": of_like_length, "as_they_come": round(as_they_come, 4)}
    print(json.dumps({**figure, "padded_to_length": round(1 - lengths.mean() / a.length, 4), "aim": "under 0.1"}))


if __name__ == "__main__":
    main()
