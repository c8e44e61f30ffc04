"""``python -m xmc_tf.tree.show``: show a label tree as indented text or as a Graphviz drawing."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.common.numbers import whole
from xmc_tf.common.process import cli
from xmc_tf.common.process.terminal import printable
from xmc_tf.data import load_matrix, load_names
from xmc_tf.params import TfidfParams, add_flags, add_model_place, model_place
from xmc_tf.store.checksums import MODEL_HEADER
from xmc_tf.store.files import atomic_file
from xmc_tf.store.models import ENCODER, FUSION, FUSION_HEADER, MODULES_FILE, NO_PROBABILITIES, PROMPTS_FILE
from xmc_tf.store.outputs import check_output_path
from xmc_tf.tree.chain_io import CONFIG, load_chain
from xmc_tf.tree.label_tree import LabelTree

# Longer names would push the other names of a cluster out of view.
_NAME_LENGTH = 40


class TreeView:
    """The part of a tree to show: ``depth`` levels below the root. A cluster's name lists ``words`` of its labels."""

    def __init__(
        self, tree: LabelTree, names: Sequence[str] | None = None, max_children: int = 16, depth: int = 2,
        frequencies: np.ndarray | None = None, words: int = 4,
    ) -> None:  # fmt: skip
        self.tree, self.names, self.frequencies = tree, names, frequencies
        for name, value, least in (("depth", depth, 0), ("max_children", max_children, 1), ("words", words, 1)):
            if not isinstance(value, int) or value < least:
                wanted = f"a whole number of {least} or more"
                raise InputError(f"{name} is out of range", expected=wanted, received=repr(value))
        self.depth, self.most, self.words = min(depth, tree.depth), max_children, words
        for what, given in (("names", names), ("frequencies", frequencies)):
            if given is not None and len(given) != tree.nr_labels:
                wanted = f"{tree.nr_labels:,}, one per label"
                raise InputError(f"the {what} do not fit the tree", expected=wanted, received=f"{len(given):,}")

    def text(self) -> str:
        """Return the tree as indented text."""

        def below(level: int, node: int, margin: str) -> Iterator[str]:
            children, hidden = self.children(level, node)
            for n, child in enumerate(children):
                last = n == len(children) - 1 and not hidden
                yield f"{margin}{'└─' if last else '├─'} {self.name(level + 1, child)}"
                yield from below(level + 1, child, margin + ("   " if last else "│  "))
            if hidden:
                yield f"{margin}└─ … and {hidden:,} more"

        return "\n".join([self.name(0, 0), *below(0, 0, "")])

    def dot(self) -> str:
        """Return the tree as a Graphviz graph (``dot -Tsvg tree.dot > tree.svg``)."""

        def below(level: int, node: int) -> Iterator[str]:
            children, hidden = self.children(level, node)
            for child in children:
                yield f"  n{level + 1}_{child} [label={_quoted(self.name(level + 1, child))}];"
                yield f"  n{level}_{node} -> n{level + 1}_{child};"
                yield from below(level + 1, child)
            if hidden:
                yield f"  more{level}_{node} [label={_quoted(f'… and {hidden:,} more')}, style=dashed];"
                yield f"  n{level}_{node} -> more{level}_{node} [style=dashed];"

        head = ["digraph labels {", "  rankdir=LR;", '  node [shape=box, fontname="sans-serif"];']
        return "\n".join([*head, f"  n0_0 [label={_quoted(self.name(0, 0))}];", *below(0, 0), "}"])

    def _biggest_first(self, labels: np.ndarray) -> np.ndarray:
        """Return the positions that order the labels by descending frequency, then by ascending number."""
        if self.frequencies is None:
            return np.argsort(labels, kind="stable")
        return np.lexsort((labels, -np.asarray(self.frequencies, np.float64)[labels]))

    def children(self, level: int, node: int) -> tuple[list[int], int]:
        """Return the children to show and the number of hidden ones. A single child is never hidden, as "1 more" saves
        no space.
        """
        if level == self.depth:
            return [], 0
        children = self.tree.children(level, node)
        shown = len(children) if len(children) <= self.most + 1 else self.most
        if level + 1 < self.tree.depth:
            return list(children[:shown]), len(children) - shown
        labels = self.tree.labels[children.start : children.stop]
        return (children.start + self._biggest_first(labels)[:shown]).tolist(), len(children) - shown

    def name(self, level: int, node: int) -> str:
        labels = self.tree.labels_under(level, node)
        if level == self.tree.depth:
            name = self._name(labels[0])
            return name if self.frequencies is None else f"{name} ({int(self.frequencies[labels[0]]):,})"
        count = f"{labels.size:,} label{'' if labels.size == 1 else 's'}"
        if level == 0 or labels.size == 0:
            return count
        biggest = labels[self._biggest_first(labels)[: self.words]]
        rest = " …" if labels.size > biggest.size else ""
        return f"{count}: {', '.join(self._name(label) for label in biggest)}{rest}"

    def _name(self, label: int) -> str:
        name = str(label) if self.names is None else " ".join(self.names[label].split())
        # Anyone may have written the names: keep control codes off the user's terminal.
        name = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)
        return name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 1] + "…"


def _quoted(text: str) -> str:
    """Return the text as a quoted Graphviz string, in which only quotes and backslashes need escapes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def parser() -> argparse.ArgumentParser:
    out = cli.make_parser(
        "xmc_tf.tree.show", "Print a label tree; clusters are named after a few labels (with -y, the most frequent)."
    )
    add_model_place(out, "folder of a tree or a model (also of PECOS), or a matrix of labels × clusters (.npz)")
    out.add_argument("--labels", metavar="NAMES.txt", help="label names, one per line (default: those of the model)")
    add_flags(out, label_path={"help": "matrix of documents × labels, .npz, for label frequencies"})
    out.add_argument("--depth", type=whole, default=2, help="number of levels to print below the root")
    out.add_argument("--max-children", type=whole, default=16, help="maximum number of children printed per node")
    out.add_argument("--words", type=whole, default=4, help="number of labels in the name of a cluster")
    out.add_argument("--dot", metavar="FILE", help="write a Graphviz file instead of printing")
    add_flags(out, "force")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    options = parser().parse_args(argv)
    place = model_place(options)
    inputs = {"MODEL": place, "--labels": options.labels, "-y": options.label_path}
    check_output_path("--dot", options.dot, inputs, ["digraph labels {"], force=options.force)
    given = Path(place)
    inside = given / ("concat_model" if (given / "concat_model").is_dir() else "tree")
    is_model = given.is_dir() and not (given / CONFIG).exists() and inside.is_dir()
    tree = load_chain(inside if is_model else given)
    labels = options.labels
    if labels is None and is_model and (given / "labels.txt").exists():
        labels = given / "labels.txt"
    names = None if labels is None else load_names(labels, tree.nr_labels)
    frequencies = None
    if options.label_path is not None:
        matrix = load_matrix(options.label_path, name="labels")
        if matrix.shape[1] != tree.nr_labels:
            raise InputError(
                f"{options.label_path} does not fit the tree", expected=f"{tree.nr_labels:,} columns, one per label",
                received=f"{matrix.shape[1]:,}",
            )  # fmt: skip
        frequencies = np.bincount(csr_matrix(matrix).indices, minlength=tree.nr_labels)
    view = TreeView(tree, names, options.max_children, options.depth, frequencies, options.words)
    about = _about(given) if is_model else []
    if options.dot is None:
        print("\n".join([*about, *([""] if about else []), view.text()]))
        return
    with atomic_file(options.dot) as part:
        part.write_text(view.dot() + "\n", encoding="utf-8")
    path = printable(options.dot)
    print(f"{path}: draw it with  dot -Tsvg {path} -o tree.svg", file=sys.stderr)


def _about(model: Path) -> list[str]:
    """Return lines that describe the features and the scores of a model."""
    header, scores = model / "features" / "params.json", _about_scores(model)
    params = TfidfParams.from_json(read_json(header).get("params", {})) if header.exists() else None
    features = [] if params is None else [f"features: {params.description}"]
    return [*features, *_about_encoder(model / ENCODER), *([f"scores: {scores}"] if scores else [])]


def _about_encoder(folder: Path) -> list[str]:
    """Describe how a model's encoder makes embeddings: its pooling, the layers behind it, and the prompt of texts."""
    if not (header := folder / MODULES_FILE).exists():
        return []
    content, file = read_json(header), folder / PROMPTS_FILE
    prompt = read_json(file)["prompts"]["document"] if file.exists() else ""
    dense = [f", dense {one['inputs']} > {one['outputs']}" for one in content.get("layers", ()) if one["outputs"]]
    return [f"encoder: pooling {content['pooling']}{''.join(dense)}{f', prompt {prompt!r}' if prompt else ''}"]


def _about_scores(model: Path) -> str:
    """Describe how a model's probabilities were learned or why it has none; return an empty string if unknown."""
    if (header := model / MODEL_HEADER).exists() and (why := read_json(header).get(NO_PROBABILITIES)):
        return f"no probabilities: {why}"
    if (header := model / FUSION / FUSION_HEADER).exists():
        learned = read_json(header)
        error, documents = learned.get("calibration_error"), int(learned.get("nr_held_out", 0))
        if not documents:
            return "from rankers and label names; too few documents could be held out to learn probabilities"
        learned_from = f"probabilities, learned from {documents:,} held-out documents"
        differ = "on these, they differ from the share of right labels by"
        return learned_from if error is None else f"{learned_from}; {differ} {100 * error:.1f} points"
    return ""


if __name__ == "__main__":
    cli.run(main)
