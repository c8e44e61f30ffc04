"""Section 2 of PECOS's tutorial of XR-Transformer: ``tutorial_notebook.py FOLDER``, with data and ``params.json``.

Reads the parameters, builds the label tree, trains with the encoder as it is and fine-tuned, and measures both.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

from tests.pipeline.corpus import texts_and_labels
from xmc_tf import TrainingRun, XTransformer, XTransformerParams, XTransformerPredParams, evaluate, load_matrix
from xmc_tf.data import as_features
from xmc_tf.tree.kmeans import build_tree
from xmc_tf.tree.label_embeddings import label_embedding

folder = Path(sys.argv[1])
params = json.loads((folder / "params.json").read_text())
train_params = XTransformerParams.from_json(params["train_params"])
pred_params = XTransformerPredParams.from_json(params["pred_params"])
(texts, Y), (held_out, Y_held_out) = (texts_and_labels(folder, part) for part in ("trn", "tst"))
X, X_held_out = (load_matrix(folder / f"X.{part}.npz") for part in ("trn", "tst"))
embeddings = as_features(label_embedding("pifa", as_features(X), Y))
tree = build_tree(embeddings, train_params.preliminary_indexer_params)
found = {"tree": [int(size) for size in tree.level_sizes]}
for name, tunes in (("pre-trained", False), ("fine-tuned", True)):
    model = XTransformer.train(
        texts, Y, X=X, tree=tree, params=replace(train_params, do_fine_tune=tunes), pred_params=pred_params,
        run=TrainingRun(work_dir=folder / f"{name}.work"),
    )  # fmt: skip
    found[name] = evaluate(Y_held_out, model.predict(held_out, X=X_held_out), (1,)).at("P", 1)
print(json.dumps(found), flush=True)
