"""PECOS's XR-Transformer on one data folder; run by PECOS's Python, prints one JSON line.

peer_xtransformer.py DATA ENCODER LENGTH LEAF THREADS STEPS     (0 steps: the encoder as it comes)
"""

import json
import sys
import time
from pathlib import Path

import torch
from matrices import labels, precision, seconds
from peer_training import TransformerMatcher, texts, train

data, encoder = Path(sys.argv[1]), sys.argv[2]
length, leaf, threads, steps = map(int, sys.argv[3:7])
torch.set_num_threads(threads)
# The steps alone, without what comes before and after a level's training.
steps_s: list[float] = []
as_it_is = TransformerMatcher.fine_tune_encoder


def timed(*arguments, **options):
    begin = time.perf_counter()
    result = as_it_is(*arguments, **options)
    steps_s.append(time.perf_counter() - begin)
    return result


TransformerMatcher.fine_tune_encoder = timed
train_s, (model, vectorizer) = seconds(lambda: train(data, encoder, length, leaf, threads, steps))
options = {"use_gpu": False, "only_topk": 10, "beam_size": 10, "batch_size": 32, "batch_gen_workers": 1}
test = texts(data, "tst")
predict_s, found = seconds(lambda: model.predict(test, X_feat=vectorizer.transform(test).tocsr(), **options))
P = precision(found.tocsr(), labels(data, "tst"))
print(json.dumps({
    "precision": [P[0], P[2], P[4]], "train_s": round(train_s, 1), "predict_s": round(predict_s, 1),
    "seconds": round(train_s + predict_s, 1),
    "documents_per_s": round(32 * steps * len(steps_s) / sum(steps_s), 1) if steps_s else None,
}))  # fmt: skip
