"""Allowed values of the parameters with a fixed set of choices."""

import re

POST_PROCESSORS = (
    "noop",
    "sigmoid",
    "log-sigmoid",
    *(f"{log}l{power}-hinge" for power in range(1, 5) for log in ("", "log-")),
)
SOLVERS = ("L2R_L2LOSS_SVC_DUAL", "L2R_L1LOSS_SVC_DUAL", "L2R_LR_DUAL", "L2R_L2LOSS_SVC_PRIMAL")
LOSSES = ("hinge", "squared-hinge", "weighted-hinge", "weighted-squared-hinge", "cross-entropy")
SCHEDULES = ("linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup")
BOOTSTRAPS = ("linear", "weighted-linear", "inherit", "no-bootstrap", "centroid")
LONG_TEXTS = ("truncate", "mean", "max")
POOLINGS = ("auto", "mean", "cls", "pooler", "max", "last")
PRECISIONS = ("auto", "off", "fp16", "bf16")
HEAD_PRECISIONS = ("fp32", "bf16")
ROUTES = ("auto", "rows", "features")
WIRES = ("fp32", "fp16", "bf16", "int8")
SCORES = ("probability", "ranker")
MEANS = ("average", "root_average")  # ensembles whose scores are probabilities if those of head and rankers are
ENSEMBLES = ("transformer-only", "concat-only", *MEANS, "rank_average", "round_robin")
RELEVANCE_MODES = ("disable", "induce", "ranker-only")
RELEVANCE_NORMS = ("no-norm", "l1", "l2", "max")
TENSORFLOW, ONNX = "tensorflow", "onnx"
RUNTIMES = ("auto", TENSORFLOW, ONNX)
RANKER_MODES = ("full-model", "matcher", "ranker")


def train_layers(text: str) -> str:
    """Return which layers of an encoder to train: "all", "half" or a number; a ValueError states what is allowed."""
    if text.lower() in ("all", "half"):
        return text.lower()
    if not re.fullmatch(r"[1-9][0-9]{0,5}", text):
        raise ValueError("all, half, or a whole number of at least 1")
    return text


def ranker_negatives(text: str) -> str:
    """Return a ranker's negative sampling, a sum of tfn, man and usn; a ValueError states what is allowed."""
    return _sum_of(text, ("tfn", "man", "usn"))


def matcher_negatives(text: str) -> str:
    """Return a matcher's negative sampling, "all" or a sum of tfn and man; a ValueError states what is allowed."""
    if text.lower() == "all":
        return "all"
    try:
        return _sum_of(text, ("tfn", "man"))
    except ValueError:
        raise ValueError("all, tfn, man or tfn+man") from None


def _sum_of(text: str, known: tuple[str, ...]) -> str:
    parts = text.lower().split("+")
    if not set(parts) <= set(known) or len(set(parts)) != len(parts):
        raise ValueError(f"{', '.join(known)}, or a sum such as tfn+man")
    return "+".join(parts)
