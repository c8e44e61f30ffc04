"""The training of PECOS's XR-Transformer on one data folder; needs PECOS's Python."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
from matrices import labels
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.base import HierarchicalKMeans, HierarchicalMLModel, MLModel
from pecos.xmc.xlinear.model import XLinearModel
from pecos.xmc.xtransformer.matcher import TransformerMatcher
from pecos.xmc.xtransformer.model import XTransformer
from pecos.xmc.xtransformer.module import MLProblemWithText
from sklearn.feature_extraction.text import TfidfVectorizer


def texts(data, name):
    """Return the documents of a file, one per line."""
    with open(data / f"X.{name}.txt", encoding="utf-8", errors="replace") as file:
        return [line.rstrip("\n") for line in file]


def train(data, encoder, length, leaf, threads, steps):
    """Return the model and the vectorizer of its users, after so many steps per level; 0: the encoder as it comes."""
    documents, Y = texts(data, "trn"), labels(data, "trn").tocsr()
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2), min_df=2, sublinear_tf=True, dtype=np.float32, max_features=500_000
    )
    X = vectorizer.fit_transform(documents).tocsr()
    indexer = HierarchicalKMeans.TrainParams(nr_splits=16, max_leaf_size=leaf, threads=threads)
    linear = MLModel.TrainParams(threshold=0.01, threads=threads)
    chain = HierarchicalMLModel.TrainParams(neg_mining_chain="tfn+man", model_chain=linear)
    params = XTransformer.TrainParams(
        preliminary_indexer_params=indexer,
        refined_indexer_params=indexer,
        matcher_params_chain=TransformerMatcher.TrainParams(
            model_shortcut=encoder, loss_function="weighted-squared-hinge", negative_sampling="tfn+man",
            bootstrap_method="linear", max_active_matching_labels=500, learning_rate=1e-4, batch_size=32,
            max_steps=steps, threshold=0.01, use_gpu=False, save_steps=10**6,
            batch_gen_workers=1,  # also the threads of a product of matrices, which crashes with none
        ),
        ranker_params=XLinearModel.TrainParams(hlm_args=chain),
        do_fine_tune=steps > 0,
    )  # fmt: skip
    rankers = HierarchicalMLModel.PredParams(model_chain=MLModel.PredParams(only_topk=10, post_processor="l3-hinge"))
    pred = XTransformer.PredParams(
        matcher_params_chain=TransformerMatcher.PredParams(only_topk=20, truncate_length=length),
        ranker_params=XLinearModel.PredParams(hlm_args=rankers),
    )
    tree = Indexer.gen(LabelEmbeddingFactory.create(Y, X, method="pifa"), train_params=indexer)
    problem = MLProblemWithText(documents, Y, X_feat=X)
    model = XTransformer.train(
        problem, clustering=tree, train_params=params, pred_params=pred, use_gpu=False, beam_size=10
    )
    return model, vectorizer
