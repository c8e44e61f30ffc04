"""What a user writes: train a model of either kind, load it, predict, evaluate, export.

A test checks these lines with ``mypy --strict``, and runs them.
"""

import sys
from pathlib import Path

from xmc_tf import (
    HierarchicalKMeansParams,
    InputError,
    MatcherParams,
    MatcherPredParams,
    Model,
    TextFile,
    TrainingRun,
    XRLinear,
    XRLinearParams,
    XTransformer,
    XTransformerParams,
    XTransformerPredParams,
    evaluate,
    load,
    load_matrix,
)


def train(texts: list[str], labels: list[list[str]], encoder: str, folder: Path) -> list[Path]:
    """Train a model of each kind and return their folders."""
    tree = HierarchicalKMeansParams(nr_splits=4, max_leaf_size=6)
    linear = XRLinear.train(texts, labels, params=XRLinearParams(tree=tree), threads=1)
    tuned = XTransformer.train(
        texts,
        labels,
        validation=(texts[:50], labels[:50]),
        params=XTransformerParams(tree, tree, MatcherParams(model_shortcut=encoder, max_steps=4, batch_size=16)),
        pred_params=XTransformerPredParams(MatcherPredParams(truncate_length=16)),
        run=TrainingRun(work_dir=folder / "work", threads=1, seed=1),
    )
    models: dict[str, Model] = {"linear": linear, "tuned": tuned}
    for name, model in models.items():
        model.save(folder / name)
    return [folder / name for name in models]


def use(model: Model, texts: list[str], labels: list[list[str]], folder: Path) -> float:
    """Evaluate and export a model, and return its precision at 1."""
    print(model.evaluate(texts, labels, ks=[1, 3, 5], rows="all"))
    for text, best in zip(texts, model.best(texts[:3], k=2), strict=False):
        print(text[:40], [f"{name}: {score:.2f}" for name, score in best])
    if isinstance(model, XTransformer):
        print(model.encode(texts[:3]).shape)
    print(f"{model.tree.nr_labels} labels in {model.tree.depth} levels, trained with seed {model.metadata.seed}")
    exported = model.export(folder / "1", only_topk=5, precision="fp16")
    print(exported.table())
    return model.evaluate(texts, labels, rows="all").at("P", 1)


def main(folder: str, texts: str, labels: str) -> float:
    """Measure the model in a folder on files, and return its precision at 1."""
    truth, documents = load_matrix(labels, name="labels"), TextFile(texts)
    metrics = evaluate(truth, load(folder).predict(documents, only_topk=5, beam_size=10), ks=[1, 3, 5])
    print(metrics)
    return metrics.at("P", 1)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4])
    except InputError as error:
        sys.exit(f"{error.problem}\n{error.fix or 'see the documentation'}")
