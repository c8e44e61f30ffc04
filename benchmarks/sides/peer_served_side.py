"""PECOS's XR-Transformer asked text by text; run by PECOS's Python.

peer_served_side.py KEEP DATA ENCODER LENGTH LEAF K BEAM

Trains it on the encoder as it comes, where KEEP does not hold it yet. A request goes from texts to labels: its users'
usual vectorizer, then XTransformer.predict without a process that loads data, three times as fast as by default.
"""

import pickle
import sys
from pathlib import Path

import in_turns
import numpy as np
import torch
from peer_training import XTransformer, texts, train
from scipy.sparse import csr_matrix

keep, data, encoder = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
length, leaf, k, beam = map(int, sys.argv[4:8])
if not (keep / "vectorizer.pkl").exists():
    model, vectorizer = train(data, encoder, length, leaf, -1, 0)
    # An encoder that was not fine-tuned has no clusters, without which it cannot be saved; loading would make these.
    model.text_encoder.C = csr_matrix(np.ones((model.text_encoder.nr_labels, 1), np.float32))
    keep.mkdir(parents=True, exist_ok=True)
    model.save(str(keep / "model"))
    # Last, so that a training which was stopped is not taken for a whole one.
    (keep / "vectorizer.pkl").write_bytes(pickle.dumps(vectorizer))
in_turns.stay_on_one_core()
torch.set_num_threads(1)
vectorizer = pickle.loads((keep / "vectorizer.pkl").read_bytes())  # our own file
model = XTransformer.load(str(keep / "model"), is_predict_only=True)
test = texts(data, "tst")


def call(part):
    return model.predict(
        part, X_feat=vectorizer.transform(part), use_gpu=False, only_topk=k, beam_size=beam, batch_size=len(part),
        batch_gen_workers=0, threads=1,
    )  # fmt: skip


in_turns.answer(lambda **arguments: in_turns.times(call, test, **arguments))
