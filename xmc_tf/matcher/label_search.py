"""Search for the best labels with the label heads of the fine-tuned levels."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.collective.checkpoints.manifest import read_checkpoint, write_checkpoint
from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json
from xmc_tf.data.torch_file import read_torch
from xmc_tf.matcher.heads import LevelHead, Scaling, WholeHead
from xmc_tf.matcher.predict_levels import predict_level

_FORMAT = "xmc_tf.matcher"


class LabelSearch:
    """A beam search through a tree, with a label head for each level."""

    def __init__(self, heads: Sequence[LevelHead], splits: Sequence[np.ndarray], labels: np.ndarray | None) -> None:
        self.heads: Sequence[Any] = list(heads)
        self.splits = [np.asarray(one, np.int64) for one in splits]
        self.labels = None if labels is None else np.asarray(labels, np.int64)

    def __repr__(self) -> str:
        sizes = " > ".join(f"{head.nr_nodes:,}" for head in self.heads)
        return f"{type(self).__name__}({sizes} nodes)"

    @property
    def head(self) -> Any:
        """The label head of the last level."""
        return self.heads[-1]

    @property
    def level(self) -> int:
        """Number of the last level in the tree; level 1 contains the children of the root."""
        return len(self.heads)

    @property
    def nr_nodes(self) -> int:
        """Number of nodes of the last level."""
        return self.head.nr_nodes

    def predict(
        self, vectors: np.ndarray, *, only_topk: int = 20, beam_size: int = 20, post_processor: str = "noop",
        only_labels: np.ndarray | None = None, windows: np.ndarray | None = None,
    ) -> csr_matrix:  # fmt: skip
        """Find the best nodes of the last level by beam search; return a documents × nodes matrix: columns in tree
        order, each row sorted by score. At each level above, ``beam_size`` nodes are kept. If the nodes are labels,
        ``only_labels`` restricts the search to these labels. ``windows`` lists the first window of each document, then
        the number of windows; with it, a node's score is its maximum over the document's windows.
        """
        kept = [None] * self.level if only_labels is None else self._leading_to(only_labels)
        parents: csr_matrix | None = None
        for level, (head, splits, own) in enumerate(zip(self.heads, self.splits, kept, strict=True), 1):
            parents = predict_level(
                head, vectors, parents, splits, only_topk=only_topk if level == self.level else beam_size,
                post_processor=post_processor, kept=own, windows=windows,
            )  # fmt: skip
        assert parents is not None
        return parents

    def to_labels(self, predicted: csr_matrix) -> csr_matrix:
        """Return the same predictions with labels instead of nodes as columns."""
        if self.labels is None:
            raise InputError(
                f"the last fine-tuned level ({self.level}) is above the labels",
                expected="a matcher that was fine-tuned down to the labels",
                fix="train with a larger max_match_clusters, or use the rankers' scores (concat-only)",
            )
        parts = predicted.data, self.labels[predicted.indices], predicted.indptr
        return csr_matrix(parts, shape=predicted.shape)

    def save(self, folder: str | Path) -> None:
        """Save the heads to a new folder; all their rows must be in this process."""
        rows = {name_of_head(level): head.rows for level, head in enumerate(self.heads)}
        write_checkpoint(folder, rows, self.extra())

    def extra(self) -> dict[str, np.ndarray]:
        """Return the arrays to save in addition to the rows of the heads."""
        about = {
            "format": _FORMAT, "version": 1, "dim": self.head.dim,
            "normalize": [head.scaling.normalize for head in self.heads],
            "scale": [head.scaling.factor for head in self.heads],
        }  # fmt: skip
        extra = {"about": np.array(json.dumps(about))}
        extra |= {f"splits/{number}": splits for number, splits in enumerate(self.splits)}
        return extra if self.labels is None else extra | {"labels": self.labels}

    def _leading_to(self, labels: np.ndarray) -> list[np.ndarray]:
        """Return, for each level, a mask of the nodes on the paths to the given labels."""
        chosen = np.zeros(self.nr_nodes, bool)
        chosen[labels] = True
        kept = [chosen if self.labels is None else chosen[self.labels]]
        for splits in self.splits[:0:-1]:
            kept.insert(0, np.diff(np.concatenate([[0], np.cumsum(kept[0])])[splits]) > 0)
        return kept


def load_label_search(folder: str | Path) -> LabelSearch:
    """Load the heads that a ``Matcher`` saved on any number of ranks; this process then holds all their rows."""
    tables, found = read_checkpoint(folder)
    about = parse_json(str(found["about"]), of=f"{folder}: about") if "about" in found else {}
    if about.get("format") != _FORMAT or about.get("version") != 1:
        raise InputError(f"{folder} is not a label head", expected="a folder that Matcher.save wrote")
    scale, normalize = about.get("scale"), about.get("normalize")
    right = (
        type(about.get("dim")) is int
        and isinstance(scale, list)
        and isinstance(normalize, list)
        and len(scale) == len(normalize)
        and all(type(one) in (int, float) for one in scale)
        and all(type(one) is bool for one in normalize)
        and all(f"splits/{number}" in found for number in range(len(scale)))
    )
    if not right:
        raise InputError(f"{folder}: the label head's description is damaged", fix="copy the model again")
    splits = [found[f"splits/{number}"] for number in range(len(about["scale"]))]
    heads = []
    for level, one in enumerate(splits):
        rows, expected = tables.get(name_of_head(level)), (int(one[-1]), about["dim"] + 1)
        if rows is None or rows.shape != expected:
            raise InputError(
                f"{folder}: the rows of level {level + 1} do not fit its nodes", expected=f"shape {expected}",
                received="no array" if rows is None else f"shape {rows.shape}", fix="copy the model again",
            )  # fmt: skip
        heads.append(WholeHead(rows, Scaling(about["normalize"][level], about["scale"][level])))
    return LabelSearch(heads, splits, found.get("labels"))


def name_of_head(level: int) -> str:
    """Return the name of a level's rows in files; level 0 contains the children of the root."""
    return f"head/level_{level + 1}"


def load_pecos_head(path: Path, nr_labels: int, dim: int) -> LabelSearch:
    """Load a PECOS model's label head. Its nodes become children of the root: PECOS stores no levels above them."""
    content = read_torch(path)
    weights, bias = (_embedding(path, content, name) for name in ("W", "b"))
    rows = len(weights) - 1  # the last row stands for padding
    if weights.ndim != 2 or weights.shape[1] != dim or bias.shape != (rows + 1, 1) or rows < 1:
        raise InputError(
            f"{path} does not fit the encoder",
            expected=f"a label head of {dim} columns with one bias per row",
            received=f"weights {weights.shape}, biases {bias.shape}",
            fix="the folder contains files of two models: copy the model again",
        )
    head = WholeHead(np.hstack([weights[:rows], bias[:rows]]))
    return LabelSearch([head], [np.array([0, rows], np.int64)], np.arange(rows) if rows == nr_labels else None)


def _embedding(path: Path, content: Any, name: str) -> np.ndarray:
    """Return the weights of one of the head's two embedding layers, ``W`` or ``b``."""
    found = content
    for key in ("_modules", name, "_parameters", "weight"):
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, np.ndarray):
        raise InputError(
            f"{path} is not a label head of PECOS",
            expected="a TransformerLinearXMCHead with the embeddings W and b",
            received=f"no tensor for {name}",
            fix="copy the file again; without it the model still predicts with its rankers (concat-only)",
        )
    return found.astype(np.float32, copy=False)
