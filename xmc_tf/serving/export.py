"""Export of a model as a SavedModel that TensorFlow and TensorFlow Serving load without this package."""

import dataclasses
import json
import logging
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csc_matrix

from xmc_tf.common.process.quiet import muted_stderr

with muted_stderr():
    import tensorflow as tf
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from xmc_tf.common.activity import doing
from xmc_tf.common.errors import InputError
from xmc_tf.common.progress import Progress
from xmc_tf.features import Tfidf
from xmc_tf.fusion import decide
from xmc_tf.metrics import format_table
from xmc_tf.params import DECISIONS, SEARCH, PredictionOptions
from xmc_tf.params.pools import LABELS_OF_TREE
from xmc_tf.rankers.ensemble import Rankers, trees_of
from xmc_tf.rankers.level import Level
from xmc_tf.rankers.xlinear import XLinear
from xmc_tf.serving.arrangement import PRECISIONS, Arrangement, arrange
from xmc_tf.serving.fused_search import EvidenceParts, FusedSearch
from xmc_tf.serving.label_head import BlendedSearch, LabelHeadParts
from xmc_tf.serving.query import CallerEmbeddings, DenseFeatures
from xmc_tf.serving.search import LevelSearch, MeanSearch, TreeSearch
from xmc_tf.serving.signatures import Answers, Signatures
from xmc_tf.serving.streamed import StreamedVariables
from xmc_tf.serving.warmup import check_warmup, example_texts, write_warmup
from xmc_tf.store.checksums import checksum_of, record_files
from xmc_tf.store.models import ABOUT, EXPORT, SERVING
from xmc_tf.store.publishing import publish

_KEPT = (*SEARCH, *DECISIONS)  # options of predictions that an exported model keeps
_OF_A_CALL = [field.name for field in dataclasses.fields(PredictionOptions) if field.name not in _KEPT]
_EXAMPLES = 3  # number of labels named per node to describe it


class Exported(NamedTuple):
    folder: Path
    trees: list[list[Arrangement]]  # the levels of each tree, without their arrays
    bytes: int  # of all variables

    def table(self) -> str:
        rows = []
        for tree, levels in enumerate(self.trees, 1):
            of = f" of tree {tree}" if len(self.trees) > 1 else ""
            for number, level in enumerate(levels, 1):
                counts = [f"{number}{of}", f"{level.nr_nodes:,}", f"{level.nr_weights:,}"]
                rows.append([*counts, f"{level.density:.1%}", level.name, f"{level.bytes / 1e6:,.1f}"])
        return format_table(["level", "nodes", "weights", "full", "form", "MB"], rows)


class ModelParts(NamedTuple):
    ranker: Rankers  # an ensemble over several trees becomes one graph
    names: list[str] | None  # None: the labels' numbers
    tfidf: Tfidf | None  # None: no sparse features, or those of another program
    dense: DenseFeatures | None = None
    head: LabelHeadParts | None = None  # its scores and the rankers' are averaged; needs `dense`
    evidence: EvidenceParts | None = None  # None: the rankers' scores

    @property
    def nr_labels(self) -> int:
        """Number of labels, including labels that the rankers do not know."""
        return self.ranker.nr_labels if self.evidence is None else self.evidence.fusion.nr_labels

    @property
    def reads_text(self) -> bool:
        """Whether the exported model accepts texts and not just features."""
        if self.tfidf is None and self.ranker.nr_sparse:
            return False
        return not self.ranker.nr_dense if self.dense is None else self.dense.reads_text


class Warmup(NamedTuple):
    texts: Sequence[str] | Sequence[bytes]
    nr_texts: int = 64  # spread evenly over all of them


def export_model(
    parts: ModelParts,
    folder: str | Path,  # an older export is replaced atomically; other files stay
    options: PredictionOptions | None = None,
    warmup: Warmup | None = None,
    *,
    precision: str = "fp32",
) -> Exported:
    """Export a model with all steps from text to label names. Only one level of the tree is in memory at a time."""
    options, folder = options or PredictionOptions(), Path(folder)
    check_export(options, precision)
    if warmup is not None:
        check_warmup(*warmup)
        if not parts.reads_text:
            raise InputError(
                "warm-up requests cannot be written: the exported model cannot read texts",
                expected="a model that reads text",
                fix="export it without warm-up requests (without -t)",
            )
    ranker, tfidf, dense = parts.ranker, parts.tfidf, parts.dense
    if dense is None and ranker.nr_dense:
        dense = CallerEmbeddings(ranker.nr_dense)
    if (0 if dense is None else dense.dim) != ranker.nr_dense:
        raise InputError(
            "the dense features do not fit the rankers",
            expected=f"{ranker.nr_dense} dimensions, as in the training of the rankers",
            received=str(0 if dense is None else dense.dim),
        )
    nr_labels = parts.nr_labels
    asked = options
    parts, options = _decided(parts, options)
    trees = trees_of(ranker)
    _check_several_trees(trees, options)
    beams = _beams(trees[0], options)
    with publish(folder, EXPORT) as part:
        store = StreamedVariables(part / "variables" / "blocks")
        levels, searches = list[list[Arrangement]](), list[TreeSearch]()
        for number, tree in enumerate(trees):
            arranged, tree_search = _stream_levels(tree, options, store, f"tree_{number}_" if number else "", precision)
            levels.append(arranged)
            searches.append(tree_search)
        linear: TreeSearch | MeanSearch = searches[0]
        if len(searches) > 1:
            linear = MeanSearch(searches, LABELS_OF_TREE if parts.head is None else parts.head.pool)
        search: TreeSearch | MeanSearch | BlendedSearch = linear
        if parts.head is not None:
            assert dense is not None
            new = None if parts.head.new is None else store.add("new_labels", parts.head.new)
            search = BlendedSearch(linear, parts.head, store.add("label_head", parts.head.rows), dense.length, new)
        fused = None if parts.evidence is None else FusedSearch(parts.evidence)
        parents, examples = _stream_tree(trees[0].levels, store)
        names = None if parts.names is None else tf.Variable(parts.names, trainable=False, name="names")
        most = min(max(beams), ranker.nr_labels)
        answers = Answers(names, parents, examples, options.threshold)
        graph = None if tfidf is None else tfidf.graph()
        made = Signatures(graph, dense, search, answers, ranker.nr_sparse, nr_labels, beams[-1], most, fused)
        signatures = made.functions()
        tracked = [*([] if dense is None else dense.tracked), *([] if fused is None else [fused])]
        variables = [] if graph is None else list(graph.variables)
        servable = tf.Module()
        servable.streamed, servable.tfidf, servable.tracked, servable.names = store.variables, variables, tracked, names
        _save(part, servable, signatures, store)
        bytes_ = store.bytes + _bytes([*variables, *tracked])
        about = {
            "format": SERVING,
            "settings": _recorded(asked, options, precision, parts.evidence is not None),
            "k": beams[-1],
            "beams": beams,
            "most": most,
            "post_processors": _post_processors(trees[0], options),
            "nr_labels": nr_labels,
            "nr_sparse": ranker.nr_sparse,
            "nr_dense": ranker.nr_dense,
            "nodes": [level.nr_nodes for level in levels[0]],
            "signatures": sorted(signatures),
            "bytes": bytes_,
        }
        if warmup is not None:
            write_warmup(part, *warmup)
            about["examples"] = example_texts(*warmup)
        about["files"] = record_files(part, exclude=[ABOUT])
        about["checksum"] = checksum_of(about)
        (part / ABOUT).parent.mkdir(exist_ok=True)
        (part / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return Exported(folder, levels, bytes_)


def check_export(options: PredictionOptions, precision: str) -> None:
    options.refuse(dict.fromkeys(_OF_A_CALL, "an exported model does not keep it"))
    if precision not in PRECISIONS:
        raise InputError(f"unknown number format of weights: {precision!r}", expected=", ".join(PRECISIONS))


def _check_several_trees(trees: Sequence[XLinear], options: PredictionOptions) -> None:
    """Raise an InputError if scores that may be negative would be averaged over several trees."""
    if len(trees) > 1 and any(tree.scores_may_be_negative(options.post_processor) for tree in trees):
        raise InputError(
            "the mean over several trees cannot be exported with a post-processor whose scores may be negative",
            expected="sigmoid, or l1-hinge to l4-hinge",
            received=_post_processors(trees[0], options)[-1],
            fix="choose one of these with -pp, or export a model of one tree",
        )


def _decided(parts: ModelParts, options: PredictionOptions) -> tuple[ModelParts, PredictionOptions]:
    """Drop the evidence if the scores are the rankers'; otherwise, set the threshold and the post-processor."""
    decision = decide(options, None if parts.evidence is None else parts.evidence.fusion)
    if not decision.probable:
        return parts._replace(evidence=None), options
    assert parts.evidence is not None
    limit, post = decision.threshold, parts.evidence.post_processor
    return parts, dataclasses.replace(options, scores=None, threshold=limit, min_precision=None, post_processor=post)


def _recorded(asked: PredictionOptions, decided: PredictionOptions, precision: str, probable: bool) -> dict[str, Any]:
    return {
        "only_topk": asked.only_topk,
        "beam_size": asked.beam_size,
        "post_processor": decided.post_processor,
        "threshold": decided.threshold,
        "precision": precision,
        "scores": "probability" if probable else asked.scores,
        "min_precision": asked.min_precision,
    }


def _beams(ranker: XLinear, options: PredictionOptions) -> list[int]:
    """Return the number of nodes to keep at each level, as in the rankers' own search."""
    beams = [level.pred_params.only_topk for level in ranker.levels]
    if options.beam_size is not None:
        beams[:-1] = [options.beam_size] * (len(beams) - 1)
    if options.only_topk is not None:
        beams[-1] = options.only_topk
    return [min(beam, level.clusters.shape[0]) for beam, level in zip(beams, ranker.levels, strict=True)]


def _post_processors(ranker: XLinear, options: PredictionOptions) -> list[str]:
    return [options.post_processor or level.pred_params.post_processor for level in ranker.levels]


def _stream_levels(
    ranker: XLinear, options: PredictionOptions, store: StreamedVariables, prefix: str, precision: str = "fp32"
) -> tuple[list[Arrangement], TreeSearch]:
    """Arrange and write the levels of a tree one by one; return their arrangements and the search of the tree."""
    levels, searches = [], []
    beams, posts = _beams(ranker, options), _post_processors(ranker, options)
    arriving = ranker.levels[0].clusters.shape[1]
    with Progress("arranging the weights", ranker.nr_weights, "weights") as progress:
        for number, (level, post) in enumerate(zip(ranker.levels, posts, strict=True)):
            arranged = arrange(
                level.weights, csc_matrix(level.clusters), level.bias, nr_sparse=ranker.nr_sparse,
                nr_dense=ranker.nr_dense, beam=arriving, precision=precision,
            )  # fmt: skip
            variables = {
                name: store.add(f"{prefix}level_{number}_{name}", array) for name, array in arranged.arrays.items()
            }
            arranged = dataclasses.replace(arranged, arrays={})  # frees memory before the next level
            searches.append(LevelSearch(arranged, variables, post))
            levels.append(arranged)
            arriving = min(beams[number], arriving * arranged.most_children)
            progress.add(arranged.nr_weights)
    return levels, TreeSearch(searches, ranker.levels[0].clusters.shape[1], beams, posts[0])


def _stream_tree(levels: Sequence[Level], store: StreamedVariables) -> tuple[list[Any], list[Any]]:
    """Write the parent of each node and, for nodes above the labels, example labels; return the variables."""
    parents, examples = list[Any](), list[Any]()
    below: np.ndarray | None = None
    for number in range(len(levels) - 1, -1, -1):
        clusters = levels[number].clusters
        parent = np.zeros(clusters.shape[0], np.int32)
        parent[clusters.indices] = np.repeat(np.arange(clusters.shape[1], dtype=np.int32), np.diff(clusters.indptr))
        parents.insert(0, store.add(f"parents_{number}", parent))
        below = _examples(clusters, below)
        if number:
            examples.insert(0, store.add(f"examples_{number - 1}", below))
    return parents, examples


def _examples(clusters: csc_matrix, below: np.ndarray | None) -> np.ndarray:
    """Return example labels of each parent, from its first, middle and last child; -1 for missing labels."""
    first, last = clusters.indptr[:-1].astype(np.int64), clusters.indptr[1:].astype(np.int64)
    out = np.full((clusters.shape[1], _EXAMPLES), -1, np.int32)
    some = last > first
    for column in range(_EXAMPLES):
        at = first + (last - first - 1) * column // (_EXAMPLES - 1)
        child = clusters.indices[at[some]]
        out[some, column] = child if below is None else below[child, column]
        if below is None and column:
            # With fewer children than examples, each label appears once.
            out[some, column] = np.where((out[some, :column] == child[:, None]).any(axis=1), -1, child)
    return out


def _save(part: Path, servable: tf.Module, signatures: dict[str, Any], store: StreamedVariables) -> None:
    for name in ("absl", "tensorflow"):  # their warnings about names in the graph do not help users
        logging.getLogger(name).setLevel(logging.WARNING)
    with doing("saving the graph of the model"):
        tf.saved_model.save(servable, str(part), signatures=signatures)
        # Loading infers output shapes again. A server holds several copies of all graphs, with a hundred bytes for each
        # shape: 8 MB with an encoder. Shapes of functions' arguments stay, as they describe inputs.
        path = part / "saved_model.pb"
        model = SavedModel.FromString(path.read_bytes())
        for meta in model.meta_graphs:
            library = (function.node_def for function in meta.graph_def.library.function)
            for node in chain(meta.graph_def.node, *library):
                if "_output_shapes" in node.attr:
                    del node.attr["_output_shapes"]
        path.write_bytes(model.SerializeToString(deterministic=True))
        store.merge_into(part)


def _bytes(tracked: Sequence[Any]) -> int:
    variables = {
        id(variable): variable
        for one in tracked
        for variable in (one.variables if hasattr(one, "variables") else [one] if isinstance(one, tf.Variable) else [])
    }
    return sum(int(one.shape.num_elements()) * one.dtype.size for one in variables.values())
