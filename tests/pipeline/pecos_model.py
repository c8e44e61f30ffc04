"""A small model in the folder layout of ``pecos.xmc.xtransformer``, and its predictions computed with numpy alone."""

import json
from pathlib import Path

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix

from tests.data.torch_writer import Obj, torch_zip
from tests.encoder.tiny import tiny_encoder
from tests.encoder.vocabularies import wordpiece
from xmc_tf.data import save_matrix

DIM, FEATURES, CLUSTERS, LABELS, LENGTH, BEAM, TOPK = 16, 12, 4, 12, 24, 3, 5
TEXTS = ["", "A text of the library", "trains a model", "folders and files of weights " * 20, "what is read, and why"]


def class_of(name):
    return {"class_fullname": name}


def write_json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


class PecosModel:
    """Writes the folder, and predicts as PECOS does.

    Args:
        folder: where to.
        features: columns of the given features.
        rankers: whether it has rankers; without, it is what PECOS calls only_encoder.
        head_rows: rows of the label head; fewer than there are labels for a head of clusters.
    """

    def __init__(self, folder: Path, *, features=FEATURES, rankers=True, head_rows=LABELS):
        self.folder, self.features = folder, features
        random = np.random.default_rng(7)
        tokenizer = wordpiece("bert")
        self.encoder = tiny_encoder("bert", pooling="pooler", vocab_size=len(tokenizer), seed=3)
        inner = folder / "text_encoder"
        self._write_encoder(inner / "text_encoder")
        (inner / "text_tokenizer").mkdir()
        vocabulary = tokenizer.get_vocab()
        words = sorted(vocabulary, key=vocabulary.get)
        (inner / "text_tokenizer" / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
        self.head = random.standard_normal((head_rows + 1, DIM + 1)).astype(np.float32)
        self.head[-1] = 0  # padding
        (inner / "text_model").write_bytes(torch_zip(head_object(self.head)))
        write_json(inner / "param.json", {
            "__meta__": class_of("pecos.xmc.xtransformer.matcher###TransformerMatcher"),
            "model": "TransformerMatcher", "text_encoder": "BertForXMC", "nr_labels": head_rows, "nr_codes": CLUSTERS,
            "nr_features": None,
            "train_params": {"loss_function": "squared-hinge", "checkpoint_dir": "/somewhere/else"},
            "pred_params": {
                "__meta__": class_of("pecos.xmc.xtransformer.matcher###TransformerMatcher.PredParams"),
                "only_topk": TOPK, "post_processor": "sigmoid", "ensemble_method": "transformer-only",
                "truncate_length": LENGTH,
            },
        })  # fmt: skip
        write_json(folder / "param.json", {
            "__meta__": class_of("pecos.xmc.xtransformer.model###XTransformer"),
            "model": "XTransformer", "depth": 2, "nr_labels": LABELS if rankers else head_rows,
        })  # fmt: skip
        rows = features + DIM + 1
        self.weights = [random.standard_normal((rows, n)).astype(np.float32) for n in (CLUSTERS, LABELS)]
        self.parent = random.permutation(np.arange(LABELS) % CLUSTERS)
        if rankers:
            self._write_rankers(folder / "concat_model")

    def _write_encoder(self, folder):
        from tests.encoder.test_sources import save_as_torch_does

        folder.mkdir(parents=True)
        save_as_torch_does(
            self.encoder, folder, write=lambda found: (folder / "pytorch_model.bin").write_bytes(torch_zip(found))
        )

    def _write_rankers(self, folder):
        write_json(folder / "param.json", {"__meta__": class_of("pecos.xmc.xlinear.model###XLinearModel")})
        about = {"nr_features": self.features + DIM, "nr_codes": CLUSTERS, "nr_labels": LABELS}
        meta = class_of("pecos.xmc.base###HierarchicalMLModel")
        write_json(folder / "ranker" / "param.json", {"__meta__": meta, "depth": 2, **about})
        ones = np.ones(LABELS, np.float32)
        clusters = [
            csc_matrix(np.ones((CLUSTERS, 1), np.float32)),
            csc_matrix((ones, (np.arange(LABELS), self.parent)), shape=(LABELS, CLUSTERS)),
        ]
        for level, (weights, tree) in enumerate(zip(self.weights, clusters, strict=True)):
            here = folder / "ranker" / f"{level}.model"
            write_json(here / "param.json", {
                "__meta__": class_of("pecos.xmc.base###MLModel"), "model": "MLModel", "bias": 1.0,
                "nr_labels": tree.shape[0], "nr_codes": tree.shape[1], "nr_features": self.features + DIM,
                "pred_kwargs": {"only_topk": (BEAM, TOPK)[level], "post_processor": "l3-hinge"},
            })  # fmt: skip
            save_matrix(here / "W.npz", csc_matrix(weights))
            save_matrix(here / "C.npz", tree)

    def embeddings(self, texts):
        """The pooler's output for each text by itself."""
        tokenizer = wordpiece("bert")
        found = []
        for text in texts:
            ids = np.array([tokenizer(text, truncation=True, max_length=LENGTH)["input_ids"]], np.int32)
            found.append(self.encoder(ids, np.ones_like(ids)).numpy()[0])
        return np.array(found)

    def predict(self, texts, X=None):
        """The rankers' scores on [features ; normalised embedding ; 1], by a beam of clusters; dense."""
        E = self.embeddings(texts)
        E = E / np.linalg.norm(E, axis=1, keepdims=True)
        rows = np.hstack([*([] if X is None else [X]), E, np.ones((len(E), 1))])
        tops = l3_hinge(rows @ self.weights[0])
        scores = l3_hinge(rows @ self.weights[1])
        out = np.zeros_like(scores)
        for row, top in enumerate(tops):
            beam = set(np.argsort(-top)[:BEAM])
            found = {n: top[c] * scores[row, n] for n, c in enumerate(self.parent) if c in beam}
            for label in sorted(found, key=found.get)[-TOPK:]:
                out[row, label] = found[label]
        return out

    def predict_by_head(self, texts):
        """The label head's scores, as TransformerMatcher.predict gives them; dense."""
        scores = 1 / (1 + np.exp(-(self.embeddings(texts) @ self.head[:-1, :-1].T + self.head[:-1, -1])))
        out = np.zeros_like(scores)
        best = np.argsort(-scores, axis=1)[:, :TOPK]
        np.put_along_axis(out, best, np.take_along_axis(scores, best, 1), 1)
        return out


def l3_hinge(scores):
    return np.exp(-(np.maximum(1 - scores, 0) ** 3))


def head_object(rows):
    """PECOS's head as ``torch.save`` pickles it."""

    def embedding(weight):
        state = {"training": True, "_parameters": {"weight": weight}, "_buffers": {}, "num_embeddings": len(weight)}
        return Obj("torch.nn.modules.sparse", "Embedding", state)

    layers = {"W": embedding(rows[:, :-1].copy()), "b": embedding(rows[:, -1:].copy())}
    state = {"training": True, "_parameters": {}, "_modules": layers, "num_labels": len(rows) - 1}
    return Obj("pecos.xmc.xtransformer.network", "TransformerLinearXMCHead", state)


def features():
    """The given features of ``TEXTS``."""
    random, shape = np.random.default_rng(5), (len(TEXTS), FEATURES)
    return csr_matrix((random.random(shape) * (random.random(shape) < 0.4)).astype(np.float32))
