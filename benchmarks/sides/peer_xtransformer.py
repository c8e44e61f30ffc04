"""PECOS's XR-Transformer on one data folder; run by PECOS's Python, prints one JSON line.

peer_xtransformer.py DATA ENCODER LENGTH LEAF THREADS STEPS     (0 steps: the encoder as it comes)
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
import torch
from matrices import labels, precision, seconds
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.base import HierarchicalKMeans, HierarchicalMLModel, MLModel
from pecos.xmc.xlinear.model import XLinearModel
from pecos.xmc.xtransformer.matcher import TransformerMatcher
from pecos.xmc.xtransformer.model import XTransformer
from pecos.xmc.xtransformer.module import MLProblemWithText
from sklearn.feature_extraction.text import TfidfVectorizer

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
data, encoder = Path(sys.argv[1]), sys.argv[2]
length, leaf, threads, steps = map(int, sys.argv[3:7])
torch.set_num_threads(threads)


def texts(name):
    """Return the documents of a file, one per line."""
    with open(data / f"X.{name}.txt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file]


# The steps alone, without what comes before and behind a level's training.
steps_s: list[float] = []
as_it_is = TransformerMatcher.fine_tune_encoder


def timed(*arguments, **options):
    begin = time.perf_counter()
    result = as_it_is(*arguments, **options)
    steps_s.append(time.perf_counter() - begin)
    return result


TransformerMatcher.fine_tune_encoder = timed

began = time.perf_counter()
train, test = texts("trn"), texts("tst")
v = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, dtype=np.float32, max_features=500_000)
X, Q, Y = v.fit_transform(train).tocsr(), v.transform(test).tocsr(), labels(data, "trn").tocsr()
indexer = HierarchicalKMeans.TrainParams(nr_splits=16, max_leaf_size=leaf, threads=threads)
tree = Indexer.gen(LabelEmbeddingFactory.create(Y, X, method="pifa"), train_params=indexer)
linear = MLModel.TrainParams(threshold=0.01, threads=threads)
params = XTransformer.TrainParams(
    preliminary_indexer_params=indexer,
    refined_indexer_params=indexer,
    matcher_params_chain=TransformerMatcher.TrainParams(
        model_shortcut=encoder,
        loss_function="weighted-squared-hinge",
        negative_sampling="tfn+man",
        bootstrap_method="linear",
        max_active_matching_labels=500,
        learning_rate=1e-4,
        batch_size=32,
        max_steps=steps,
        threshold=0.01,
        use_gpu=False,
        batch_gen_workers=1,  # also the threads of a product of matrices, which crashes with none
        save_steps=10**6,
    ),
    ranker_params=XLinearModel.TrainParams(
        hlm_args=HierarchicalMLModel.TrainParams(neg_mining_chain="tfn+man", model_chain=linear)
    ),
    do_fine_tune=steps > 0,
)
pred = XTransformer.PredParams(
    matcher_params_chain=TransformerMatcher.PredParams(only_topk=20, truncate_length=length),
    ranker_params=XLinearModel.PredParams(
        hlm_args=HierarchicalMLModel.PredParams(model_chain=MLModel.PredParams(only_topk=10, post_processor="l3-hinge"))
    ),
)
model = XTransformer.train(
    MLProblemWithText(train, Y, X_feat=X), clustering=tree, train_params=params, pred_params=pred, use_gpu=False,
    beam_size=10,
)  # fmt: skip
trained = time.perf_counter()
predict_s, found = seconds(
    lambda: model.predict(test, X_feat=Q, use_gpu=False, only_topk=10, beam_size=10, batch_size=32, batch_gen_workers=1)
)
P = precision(found.tocsr(), labels(data, "tst"))
print(
    json.dumps(
        {
            "precision": [P[0], P[2], P[4]],
            "train_s": round(trained - began, 1),
            "predict_s": round(predict_s, 1),
            "seconds": round(time.perf_counter() - began, 1),
            "documents_per_s": round(32 * steps * len(steps_s) / sum(steps_s), 1) if steps_s else None,
        }
    )
)
