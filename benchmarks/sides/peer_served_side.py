"""PECOS's XR-Transformer asked text by text; run by PECOS's Python.

peer_served_side.py KEEP DATA ENCODER LENGTH LEAF K BEAM

Trains it on the encoder as it comes, where KEEP does not hold it yet. A request goes from texts to labels: its users'
usual vectorizer, then XTransformer.predict without a process that loads data, three times as fast as by default.
"""

import os
import pickle
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import in_turns
import numpy as np
import torch
from matrices import labels
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.base import HierarchicalKMeans, HierarchicalMLModel, MLModel
from pecos.xmc.xlinear.model import XLinearModel
from pecos.xmc.xtransformer.matcher import TransformerMatcher
from pecos.xmc.xtransformer.model import XTransformer
from pecos.xmc.xtransformer.module import MLProblemWithText
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer

keep, data, encoder = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
length, leaf, k, beam = map(int, sys.argv[4:8])


def train():
    """As our side is trained: the same encoder as it comes, tree and threshold."""
    texts = [text.decode("utf-8", "replace") for text in in_turns.texts_of(str(data / "X.trn.txt"))]
    Y = labels(data, "trn").tocsr()
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2), min_df=2, sublinear_tf=True, dtype=np.float32, max_features=500_000
    )
    X = vectorizer.fit_transform(texts).tocsr()
    indexer = HierarchicalKMeans.TrainParams(nr_splits=16, max_leaf_size=leaf)
    model = XTransformer.train(
        MLProblemWithText(texts, Y, X_feat=X),
        clustering=Indexer.gen(LabelEmbeddingFactory.create(Y, X, method="pifa"), train_params=indexer),
        train_params=XTransformer.TrainParams(
            preliminary_indexer_params=indexer,
            refined_indexer_params=indexer,
            matcher_params_chain=TransformerMatcher.TrainParams(
                model_shortcut=encoder, max_steps=0, use_gpu=False, batch_gen_workers=1, threshold=0.01
            ),
            ranker_params=XLinearModel.TrainParams(
                hlm_args=HierarchicalMLModel.TrainParams(
                    neg_mining_chain="tfn+man", model_chain=MLModel.TrainParams(threshold=0.01)
                )
            ),
            do_fine_tune=False,
        ),
        pred_params=XTransformer.PredParams(
            matcher_params_chain=TransformerMatcher.PredParams(only_topk=20, truncate_length=length),
            ranker_params=XLinearModel.PredParams(
                hlm_args=HierarchicalMLModel.PredParams(
                    model_chain=MLModel.PredParams(only_topk=10, post_processor="l3-hinge")
                )
            ),
        ),
        use_gpu=False,
        beam_size=10,
    )
    # An encoder that was not fine-tuned has no clusters, without which it cannot be saved; loading would make these.
    model.text_encoder.C = csr_matrix(np.ones((model.text_encoder.nr_labels, 1), np.float32))
    keep.mkdir(parents=True, exist_ok=True)
    model.save(str(keep / "model"))
    # Last, so that a training which was stopped is not taken for a whole one.
    (keep / "vectorizer.pkl").write_bytes(pickle.dumps(vectorizer))


if not (keep / "vectorizer.pkl").exists():
    train()
in_turns.stay_on_one_core()
torch.set_num_threads(1)
vectorizer = pickle.loads((keep / "vectorizer.pkl").read_bytes())  # our own file
model = XTransformer.load(str(keep / "model"), is_predict_only=True)
test = [text.decode("utf-8", "replace") for text in in_turns.texts_of(str(data / "X.tst.txt"))]


def call(part):
    return model.predict(
        part, X_feat=vectorizer.transform(part), use_gpu=False, only_topk=k, beam_size=beam, batch_size=len(part),
        batch_gen_workers=0, threads=1,
    )  # fmt: skip


in_turns.answer(lambda do, **arguments: in_turns.times(call, test, **arguments))
