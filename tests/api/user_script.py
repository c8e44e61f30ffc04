"""What a user writes: load a model of either kind, predict, evaluate.

A test checks these lines with ``mypy --strict``, and runs them.
"""

import sys

from xmc_tf import HierarchicalKMeansParams, InputError, TextFile, XRLinear, XTransformer, evaluate, load, load_matrix


def main(folder: str, texts: str, labels: str) -> float:
    """Evaluate the model in a folder on texts whose labels are known, and return its precision at 1."""
    model = load(folder)
    documents = TextFile(texts)
    truth = load_matrix(labels, name="labels")
    metrics = evaluate(truth, model.predict(documents, only_topk=5, beam_size=10), ks=[1, 3, 5])
    print(metrics)
    for text, best in zip(documents, model.best(documents[:3], k=2), strict=False):
        print(text[:40], [f"{name}: {score:.2f}" for name, score in best])
    if isinstance(model, XTransformer):
        print(model.encode(documents[:3]).shape)
    elif isinstance(model, XRLinear):
        print(describe(model))
    return metrics.at("P", 1)


def describe(model: XRLinear) -> str:
    """Say how the labels of a linear model are arranged."""
    default: int = HierarchicalKMeansParams().nr_splits
    return f"{model.tree.nr_labels} labels in {model.tree.depth} levels ({default} children per node by default)"


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4])
    except InputError as error:
        sys.exit(f"{error.problem}\n{error.fix or 'see the documentation'}")
