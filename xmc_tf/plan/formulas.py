"""The sizes of data, encoders and machines, and estimates for each stage of a training from them."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xmc_tf.collective.optimizers.row_wise.optimizers import RowAdam, RowMeanAdam
from xmc_tf.common.errors import InputError
from xmc_tf.common.lanes import WIDTH
from xmc_tf.encoder.network.architecture import lower_layers
from xmc_tf.encoder.reading import read_saved
from xmc_tf.encoder.sentence_transformers import read_modules
from xmc_tf.encoder.sources import EncoderSource
from xmc_tf.rankers.tasks import cut_clusters
from xmc_tf.store.models import MODULES_FILE
from xmc_tf.tree.label_embeddings import MANY_ENTRIES, STRONGEST
from xmc_tf.tree.label_tree import binary_depth, half_bounds, upper_splits

# Seconds of one core, measured on 7,534 and on 153,161 library records.
_A_FEATURE_ENTRY = 1e-6
_A_TREE_ENTRY = 2e-8
_A_SUMMED_ENTRY = 9e-8
_DIFFERENT = 0.75  # share of a label's feature entries that are distinct
_UNITS_A_SECOND = 7e6  # work of the solvers on one core
# Cost of a dense entry relative to a sparse one: 384 dense columns beside 41 sparse entries took 2.4 times as long.
_DENSE_ENTRY = 0.15
# Weights of all levels per feature of a label's documents, measured with the default threshold.
_WEIGHTS_AN_ENTRY = 0.75
_RANGE_BYTES = 3e8  # of label embeddings that a thread sums at a time
# Bytes per level and label of a document: labels, matched documents, and the orders in which they are read.
_A_LABEL_OF_A_LEVEL = 12
_FLOAT = 4
_SLOTS = len(RowAdam().slots)  # of the encoder's Adam too
_COPIES = 2 + _SLOTS  # a weight, its gradient and the slots
_HEAD_COPIES = _COPIES + _SLOTS + 2  # and arrays of the size of the head while all rows are updated: slots, step, rows
# Of a head in bfloat16: bytes of a weight and of a row's slots, and rows that are scored at once.
_HALF, _AVERAGE, _ROWS_AT_ONCE = 2, _FLOAT * len(RowMeanAdam().slots), 8192
_SCORE_ARRAYS = 8  # one number per document and node: scores, targets, weights, losses and gradients


@dataclass(frozen=True)
class DataSizes:
    labels: int
    documents: int
    labels_per_document: float = 5.0
    entries: float = 40.0  # mean number of TF-IDF features of a document
    features: int = 1_000_000  # different TF-IDF features
    tokens: int = 128  # mean number that the encoder reads


@dataclass(frozen=True)
class EncoderSize:
    layers: int
    width: int  # of layers
    feed_forward: int  # width of the inner layer
    heads: int
    vocabulary: int
    positions: int = 512
    frozen: int | None = None  # number of lower layers that are not trained, with the embeddings; None: all are trained
    adapters: int = 0  # rank of adapters that are trained instead of the weights of layers; 0: none
    pooled: int | None = None  # width of embeddings after the modules that follow the layers; None: that of layers

    @property
    def dim(self) -> int:
        """The width of embeddings."""
        return self.pooled or self.width

    @property
    def lower(self) -> "EncoderSize":
        """The frozen layers."""
        return replace(self, layers=self.frozen or 0, frozen=None)

    @property
    def upper(self) -> "EncoderSize":
        """The layers above the frozen ones."""
        return replace(self, layers=self.layers - (self.frozen or 0), frozen=None)

    @property
    def trained_weights(self) -> int:
        """The number of weights that are trained."""
        if self.adapters:  # beside four matrices of a layer: queries, keys and values are one
            return self.upper.layers * self.adapters * (8 * self.width + 2 * self.feed_forward)
        return self.weights if self.frozen is None else self.upper.layer_weights

    @property
    def layer_weights(self) -> int:
        """The number of weights in all layers: attention, feed-forward and normalization."""
        return self.layers * (4 * self.width**2 + 2 * self.width * self.feed_forward + 9 * self.width)

    @property
    def weights(self) -> int:
        """The total number of weights, including embeddings of tokens and positions."""
        return self.layer_weights + (self.vocabulary + self.positions) * self.width

    def forward_flops(self, tokens: int) -> float:
        """Return the number of floating-point operations to encode one document."""
        return 2.0 * self.layer_weights * tokens + 4.0 * self.layers * tokens**2 * self.width

    def activation_bytes(self, tokens: int, half: bool) -> float:
        """Return the memory of one document's activations, in bytes. They are kept until the gradients are computed."""
        # In half precision, a layer keeps 34 bytes per token and width, and 5 per attention weight (Korthikanti et al.
        # 2022, https://arxiv.org/abs/2205.05198).
        kept = self.layers * tokens * (34.0 * self.width + 5.0 * self.heads * tokens)
        return kept if half else 2 * kept


ENCODERS = {
    "all-minilm-l6-v2": EncoderSize(6, 384, 1536, 12, 30522),
    "distilbert-base": EncoderSize(6, 768, 3072, 12, 30522),
    "bert-base": EncoderSize(12, 768, 3072, 12, 30522),
    "bert-base-multilingual": EncoderSize(12, 768, 3072, 12, 119547),
    "bert-large": EncoderSize(24, 1024, 4096, 16, 30522),
    "roberta-base": EncoderSize(12, 768, 3072, 12, 50265, 514),
    "roberta-large": EncoderSize(24, 1024, 4096, 16, 50265, 514),
    "xlm-roberta-base": EncoderSize(12, 768, 3072, 12, 250002, 514),
    "xlm-roberta-large": EncoderSize(24, 1024, 4096, 16, 250002, 514),
    "mpnet-base": EncoderSize(12, 768, 3072, 12, 30527, 514),
    "deberta-v3-base": EncoderSize(12, 768, 3072, 12, 128100),
}


def encoder_size(name: str, train_layers: str = "all", lora_rank: int = 0) -> EncoderSize:
    """Return the size of an encoder, given by a name in ``ENCODERS`` or a folder with a ``config.json``."""
    if (config := Path(name) / "config.json").is_file():
        return replace(_from_config(config, train_layers), adapters=lora_rank)
    known = re.sub(r"-(un)?cased$", "", name.lower().rpartition("/")[2])
    if known not in ENCODERS:
        raise InputError(
            f"--encoder {name} is unknown", expected=f"a folder with a config.json, or {', '.join(ENCODERS)}",
            fix="name a known encoder of similar size",
        )  # fmt: skip
    size = replace(ENCODERS[known], adapters=lora_rank)
    return size if train_layers == "all" else replace(size, frozen=lower_layers(size.layers, train_layers))


def _from_config(path: Path, train_layers: str) -> EncoderSize:
    source = EncoderSource(path.parent, "encoder")
    config, modules = read_saved(source)
    if source.read(MODULES_FILE) is None:
        modules, _ = read_modules(source)
    positions = config.positions or min(config.max_length, 512)
    frozen = config.architecture.frozen_layers(config, train_layers)
    return EncoderSize(
        config.layers, config.width, config.inner, config.heads, config.vocabulary, positions, frozen,
        pooled=modules.width(config),
    )  # fmt: skip


@dataclass(frozen=True)
class Device:
    """The sustained speed and the memory of one device."""

    single: float  # floating-point operations per second, in TF32 if possible
    half: float
    memory: float  # bytes; 0: the host's memory


# Encoder training commonly reaches a third of a GPU's peak. The figure of a CPU core was measured by fine-tuning
# all-MiniLM-L6-v2 on two cores with AVX-512.
_OF_PEAK = 0.33
DEVICES = {
    "cpu-core": Device(4e10, 4e10, 0),
    "t4": Device(8.1e12 * _OF_PEAK, 65e12 * _OF_PEAK, 16e9),
    "v100": Device(15.7e12 * _OF_PEAK, 125e12 * _OF_PEAK, 32e9),
    "l4": Device(60e12 * _OF_PEAK, 121e12 * _OF_PEAK, 24e9),
    "a10": Device(62.5e12 * _OF_PEAK, 125e12 * _OF_PEAK, 24e9),
    "a100": Device(156e12 * _OF_PEAK, 312e12 * _OF_PEAK, 80e9),
    "h100": Device(495e12 * _OF_PEAK, 989e12 * _OF_PEAK, 80e9),
    "h200": Device(495e12 * _OF_PEAK, 989e12 * _OF_PEAK, 141e9),
}


_WITHIN_A_HOST = 2e10  # bytes per second between ranks, over PCI Express


@dataclass(frozen=True)
class Machines:
    hosts: int
    ranks_per_host: int
    cores_per_rank: int = 4  # for the rankers
    network: float = 1.25e9  # bytes per second of a host, in each direction
    memory: float = 256e9  # bytes of each host

    @property
    def ranks(self) -> int:
        return self.hosts * self.ranks_per_host

    def ring_seconds(self, sent: float) -> float:
        """Return the duration of an all-reduce in which each rank sends ``sent`` bytes to the next rank."""
        # Neighbours in the ring share a host, so only one rank per host uses the network.
        return sent / (self.network if self.hosts > 1 else _WITHIN_A_HOST)

    def pairwise_seconds(self, sent: float) -> float:
        """Return the duration of an all-to-all in which each rank sends ``sent`` bytes, evenly to all other ranks."""
        leaving = (self.ranks - self.ranks_per_host) / max(self.ranks - 1, 1)
        # All ranks of a host send at the same time.
        per_rank = self.network / self.ranks_per_host if self.hosts > 1 else _WITHIN_A_HOST
        return sent * leaving / per_rank + sent * (1 - leaving) / _WITHIN_A_HOST


def parse_hosts(text: str) -> tuple[int, int]:
    """Parse ``4x8`` (hosts x ranks per host) or ``8`` (ranks on one host); return hosts and ranks per host."""
    match = re.fullmatch(r"(?:(\d{1,5})\s*[x×X*]\s*)?(\d{1,5})", text.strip())
    hosts, ranks = (int(match[1] or 1), int(match[2])) if match else (0, 0)
    if hosts < 1 or ranks < 1:
        raise InputError(
            "--hosts is not valid", expected="hosts x ranks per host, such as 4x8, or the number of ranks on one host",
            received=json.dumps(text),
        )  # fmt: skip
    return hosts, ranks


@dataclass(frozen=True)
class StageEstimate:
    """The estimate for one stage of a training run."""

    name: str
    memory: float  # bytes per rank
    on_device: bool = False  # the memory is the GPU's
    sent: float = 0.0  # bytes that each rank sends
    seconds: float = 0.0
    detail: str = ""
    wire_share: float = 0.0  # share of the time that ranks wait for the network
    disk: float = 0.0  # bytes that all ranks write to the model's disk


def size(number: float) -> str:
    """Format a number of bytes with a readable unit."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if number >= scale:
            return f"{number / scale:,.1f} {unit}"
    return f"{number / 1e3:,.0f} KB"


def features(data: DataSizes, machines: Machines) -> StageEstimate:
    """Estimate TF-IDF. Each rank counts the words of its own documents."""
    entries = data.documents * data.entries
    return StageEstimate(
        "TF-IDF", memory=entries / machines.ranks * 16 + data.features * 200,
        sent=data.features * 24.0 if machines.ranks > 1 else 0.0,
        seconds=entries * _A_FEATURE_ENTRY / (machines.ranks * machines.cores_per_rank),
        detail=f"{size(entries * 8)} of features in the shared folder",
    )  # fmt: skip


def tree(data: DataSizes, machines: Machines, max_leaf_size: int = 100) -> StageEstimate:
    """Estimate the label tree. It clusters labels by the mean features of their documents."""
    given = _label_entries(data)
    per_label = min(given / data.labels * _DIFFERENT, data.features)
    if given > MANY_ENTRIES:
        per_label = min(per_label, STRONGEST)
    entries = data.labels * per_label
    depth = binary_depth(data.labels, max_leaf_size)
    cores = machines.ranks * machines.cores_per_rank
    # Clustering needs the embeddings and two copies; summing, the documents of each label and the sums of a range.
    clustering = entries * 8 * 3
    summing = entries * 8 + data.documents * data.labels_per_document * 32 + machines.cores_per_rank * _RANGE_BYTES
    return StageEstimate(
        "label tree", memory=max(clustering, summing) + data.documents * data.entries * 8,
        sent=entries * 8 / machines.ranks if machines.ranks > 1 else 0.0,
        seconds=(given * _A_SUMMED_ENTRY + entries * depth * _A_TREE_ENTRY) / cores,
        detail=f"{depth} halvings of {data.labels:,} labels",
    )  # fmt: skip


def _label_entries(data: DataSizes) -> float:
    """Return the number of feature entries of each label's documents, summed over all labels."""
    return data.documents * data.labels_per_document * data.entries


class RankerWork(NamedTuple):
    """The work to train the rankers of one tree, measured in feature entries read by one pass over all labels."""

    total: float
    longest: float  # of the root's task, which one core solves from beginning to end
    entries: float  # that the root's task reads: those of all documents
    other: float  # that the largest other task reads


def ranker_work(data: DataSizes, entries: float, *, nr_splits: int = 16, max_leaf_size: int = 100) -> RankerWork:
    """Estimate the work for one tree's rankers, for documents with ``entries`` features (a dense one counts less).

    A document is matched to a cluster if it has one of the cluster's labels. Labels are assumed to be independent, and
    clusters to be equally frequent: a cluster contains so many labels that their different frequencies hardly matter.
    """
    leaves = half_bounds(data.labels, binary_depth(data.labels, max_leaf_size))
    works: list[np.ndarray] = []
    gathered: list[float] = []
    for splits in [*upper_splits(leaves.size - 1, nr_splits, None), leaves]:
        clusters = splits.size - 1
        share = -np.expm1(-data.labels_per_document / clusters) if works else 1.0  # of the documents, for one cluster
        gathered.append(data.documents * share * (entries + 1))
        works.append(cut_clusters(np.diff(splits), np.full(clusters, gathered[-1])).work)
    total = float(sum(work.sum() for work in works))
    return RankerWork(total, float(works[0].max()), gathered[0], max(gathered[1:], default=gathered[0]))


def rankers(
    data: DataSizes, width: int, machines: Machines, *, trees: int = 1, nr_splits: int = 16, max_leaf_size: int = 100,
    streamed: bool | None = None,
) -> StageEstimate:  # fmt: skip
    """Estimate the linear rankers. Their work is shared evenly, but takes at least as long as the root's task.

    ``width`` is the dimension of the embeddings next to the features, or 0. ``streamed`` rankers are written to disk as
    soon as they are solved (default: on one rank, for large data).
    """
    work = ranker_work(data, data.entries + _DENSE_ENTRY * width, nr_splits=nr_splits, max_leaf_size=max_leaf_size)
    cores = machines.ranks * machines.cores_per_rank
    # Of each document in a task: the state of a register of labels.
    a_document = WIDTH * 4 + WIDTH + 24
    root, other = (8 * one + one / (data.entries + 1) * a_document for one in (work.entries, work.other))
    mapped = data.documents * (data.entries * 8 + width * 4)
    levels = 1 + len(upper_splits(2 ** binary_depth(data.labels, max_leaf_size), nr_splits, None))
    problems = data.documents * data.labels_per_document * _A_LABEL_OF_A_LEVEL * levels
    weights = 8.0 * trees * (_label_entries(data) * _WEIGHTS_AN_ENTRY + data.labels * width)
    alone = machines.ranks == 1
    if streamed is None:
        streamed = alone and _label_entries(data) > MANY_ENTRIES
    # Rank 0 makes the problems of many ranks. One process keeps the weights, beside a copy of those of a level.
    memory = 8.0 * (data.documents + data.labels) + problems + root + (machines.cores_per_rank - 1) * other
    held = weights * 1.6 if alone and not streamed else 0.0
    return StageEstimate(
        "rankers",
        memory=memory + held,
        seconds=max(work.total / cores, work.longest) / _UNITS_A_SECOND * trees,
        detail=f"the root's task: {work.longest / work.total:.1%} of the work; {size(mapped)} of features mapped",
        # Weights are written in PECOS's format and arranged for search; ranks also write blocks, which are joined.
        disk=weights * (1 if streamed else 2 if alone else 3),
    )


@dataclass(frozen=True)
class FineTuningOptions:
    """The options that affect the time and memory of fine-tuning."""

    batch_size: int = 32  # per rank
    epochs: float = 3
    max_match_clusters: int = 32768
    half: bool = False
    half_head: bool = False
    docs_per_second: float | None = None  # measured on one rank (default: estimated from the device)
    nr_splits: int = 16
    max_leaf_size: int = 100


def trained_nodes(labels: int, options: FineTuningOptions) -> int:
    """Return the number of nodes on the last fine-tuned level, which may be the label level."""
    leaves = 2 ** binary_depth(labels, options.max_leaf_size)
    levels = [len(splits) - 1 for splits in upper_splits(leaves, options.nr_splits, None)][1:]
    below_root = [nodes for nodes in (*levels, leaves, labels) if nodes > 1] or [labels]
    fitting = [nodes for nodes in below_root if nodes <= options.max_match_clusters]
    if not fitting:
        raise InputError(
            "--max-match-clusters is too small: no level of the tree can be fine-tuned",
            expected=f"at least {min(below_root):,}",
            received=f"{options.max_match_clusters:,}",
        )
    return max(fitting)


def fine_tuning(
    data: DataSizes, encoder: EncoderSize, machines: Machines, device: Device, options: FineTuningOptions
) -> StageEstimate:
    """Estimate fine-tuning. The encoder is replicated on all ranks, and the label head is sharded."""
    ranks, batch = machines.ranks, options.batch_size
    nodes = trained_nodes(data.labels, options)
    steps = options.epochs * data.documents / (batch * ranks)
    dense = (encoder.weights + encoder.trained_weights * (_COPIES - 1)) * _FLOAT
    if options.half_head:
        head, scored = nodes / ranks * (_HALF * (encoder.dim + 1) + _AVERAGE), min(nodes / ranks, _ROWS_AT_ONCE)
    else:
        head, scored = nodes / ranks * (encoder.dim + 1) * _HEAD_COPIES * _FLOAT, nodes / ranks
    activations = batch * encoder.upper.activation_bytes(data.tokens, options.half)
    scores = _SCORE_ARRAYS * batch * ranks * scored * _FLOAT
    # A ring all-reduce of the gradients. Embeddings go to all other ranks, and their gradients return.
    gradients = 2 * (ranks - 1) / ranks * encoder.trained_weights * _FLOAT
    embeddings = 2 * (ranks - 1) * batch * (encoder.dim + 1) * _FLOAT
    speed = device.half if options.half else device.single
    passes = 2 if encoder.adapters else 3  # forward, to the inputs, and to the weights
    flops = passes * encoder.upper.forward_flops(data.tokens) + 6.0 * nodes * encoder.dim
    compute = batch / options.docs_per_second if options.docs_per_second else batch * flops / speed
    wire = machines.ring_seconds(gradients) + machines.pairwise_seconds(embeddings)
    rate = batch * ranks / (compute + wire)
    return StageEstimate(
        "fine-tuning", memory=dense + head + activations + scores, on_device=device.memory > 0,
        sent=steps * (gradients + embeddings), seconds=steps * (compute + wire),
        detail=f"{nodes:,} nodes, {steps:,.0f} steps, {rate:,.0f} documents/s on all ranks",
        wire_share=wire / (compute + wire),
    )  # fmt: skip


def frozen_layers(
    data: DataSizes, encoder: EncoderSize, machines: Machines, device: Device, options: FineTuningOptions
) -> StageEstimate:
    """Estimate the output of the frozen layers, which is computed once and mapped into memory."""
    written = float(data.documents) * data.tokens * encoder.width * (_HALF if options.half else _FLOAT)
    found = _encoding("frozen layers", encoder.lower, data, encoder, machines, device, options)
    return replace(found, disk=written, detail=f"{encoder.frozen} of {encoder.layers} layers, with the embeddings")


def embeddings(
    data: DataSizes, encoder: EncoderSize, machines: Machines, device: Device, options: FineTuningOptions
) -> StageEstimate:
    """Estimate the cost of embedding all documents, by the layers above the frozen ones."""
    found = _encoding("embeddings", encoder.upper, data, encoder, machines, device, options)
    return replace(found, detail=f"{size(data.documents * encoder.dim * _FLOAT)} in the shared folder")


def _encoding(
    name: str, layers: EncoderSize, data: DataSizes, encoder: EncoderSize, machines: Machines, device: Device,
    options: FineTuningOptions,
) -> StageEstimate:  # fmt: skip
    """Estimate a pass of all documents through some layers, a third of the cost of training these."""
    each = layers.forward_flops(data.tokens) / (device.half if options.half else device.single)
    if options.docs_per_second:
        trained = encoder.upper.forward_flops(data.tokens)
        each = layers.forward_flops(data.tokens) / trained / (3 * options.docs_per_second)
    # Nothing is kept for gradients: two layers' activations at a time.
    activations = options.batch_size * encoder.activation_bytes(data.tokens, options.half) / encoder.layers * 2
    return StageEstimate(
        name, memory=encoder.weights * _FLOAT + activations, on_device=device.memory > 0,
        seconds=data.documents * each / machines.ranks,
    )  # fmt: skip
