"""Files for TensorBoard's projector: the rows of the heads, with names of the nodes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import spmatrix

from xmc_tf.common.files.atomic import atomic_file
from xmc_tf.matcher.head import LabelHead
from xmc_tf.tree import LabelTree

MOST_NODES = 10_000  # browsers are slow with more
_NAMES_OF_A_CLUSTER = 3


def write_projector(
    logdir: str | Path,
    heads: Sequence[LabelHead],
    tree: LabelTree,
    Y: spmatrix,
    names: Sequence[str] | None = None,
    most: int = MOST_NODES,
) -> None:
    """Write the rows of every level that is small enough. Call it on all ranks.

    Example:
        >>> write_projector("logs", matcher.heads, tree, Y, names)      # tensorboard --logdir logs, "Projector"

    Args:
        logdir: TensorBoard's folder; rank 0 writes.
        heads: heads of the levels, the top first.
        tree: tree over the labels.
        Y: documents × labels, to count the documents of each label.
        names: label names. Default: the label numbers.
        most: maximum number of nodes of a level that is written.
    """
    frequency = np.diff(Y.tocsc().indptr)
    config = []
    for level, head in enumerate(heads, start=1):
        if head.nr_nodes > most:
            break
        rows = head.gathered(head.strategy.communicator)
        if head.strategy.rank() != 0:
            continue
        folder = Path(logdir) / "projector"
        folder.mkdir(parents=True, exist_ok=True)
        vectors, what = f"level_{level}.vectors.tsv", f"level_{level}.nodes.tsv"
        with atomic_file(folder / vectors) as part:
            np.savetxt(part, rows[:, :-1], fmt="%.5g", delimiter="\t")
        lines = ["name\tdocuments", *_nodes(tree, level, frequency, names)]
        with atomic_file(folder / what) as part:
            part.write_text("\n".join(lines) + "\n", encoding="utf-8")
        config.append(
            f'embeddings {{\n  tensor_name: "level {level}"\n  tensor_path: "projector/{vectors}"\n'
            f'  metadata_path: "projector/{what}"\n}}\n'
        )
    if config:
        with atomic_file(Path(logdir) / "projector_config.pbtxt") as part:
            part.write_text("".join(config), encoding="utf-8")


def _nodes(tree: LabelTree, level: int, frequency: np.ndarray, names: Sequence[str] | None) -> list[str]:
    """Return a line for every node: its most frequent labels, and the number of their documents."""
    lines = []
    for node in range(tree.level_sizes[level]):
        labels = tree.labels_under(level, node)
        best = labels[np.argsort(-frequency[labels], kind="stable")][:_NAMES_OF_A_CLUSTER]
        name = " · ".join(" ".join(names[label].split()) if names is not None else str(label) for label in best)
        more = f" (+{len(labels) - len(best):,})" if len(labels) > len(best) else ""
        lines.append(f"{name}{more}\t{int(frequency[labels].sum())}")
    return lines
