"""Estimates for fine-tuning the encoder, and for computing the embeddings."""

from dataclasses import dataclass

from xmc_tf.common.errors import InputError
from xmc_tf.plan.sizes import DataSizes, Device, EncoderSize, Machines
from xmc_tf.plan.stage import StageEstimate, size
from xmc_tf.tree.grouping import binary_depth, upper_splits

_FLOAT = 4
_COPIES = 4  # a weight, its gradient and Adam's two averages
# The same for the label head, and arrays of its size while all rows are updated: new averages, step and new rows.
_HEAD_COPIES = 8
# Of a head in bfloat16: bytes of a weight and of a row's average, and rows that are scored at once.
_HALF, _AVERAGE, _ROWS_AT_ONCE = 2, 4, 8192
_SCORE_ARRAYS = 8  # one number per document and node: scores, targets, weights, losses and gradients


@dataclass(frozen=True)
class FineTuningOptions:
    """The options that determine time and memory."""

    batch_size: int = 32  # per rank
    epochs: float = 3
    max_match_clusters: int = 32768
    half: bool = False
    half_head: bool = False
    docs_per_second: float | None = None  # measured on one rank (default: estimated from the device)
    nr_splits: int = 16
    max_leaf_size: int = 100


def trained_nodes(labels: int, options: FineTuningOptions) -> int:
    """Return the number of nodes of the last level that is fine-tuned, which may be the labels themselves."""
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
    """Estimate fine-tuning: the encoder is replicated, the label head is sharded."""
    ranks, batch = machines.ranks, options.batch_size
    nodes = trained_nodes(data.labels, options)
    steps = options.epochs * data.documents / (batch * ranks)
    dense = encoder.weights * _COPIES * _FLOAT
    if options.half_head:
        head, scored = nodes / ranks * (_HALF * (encoder.width + 1) + _AVERAGE), min(nodes / ranks, _ROWS_AT_ONCE)
    else:
        head, scored = nodes / ranks * (encoder.width + 1) * _HEAD_COPIES * _FLOAT, nodes / ranks
    activations = batch * encoder.activation_bytes(data.tokens, options.half)
    scores = _SCORE_ARRAYS * batch * ranks * scored * _FLOAT
    # A ring all-reduce of the gradients. Embeddings go to all other ranks, and their gradients return.
    gradients = 2 * (ranks - 1) / ranks * encoder.weights * _FLOAT
    embeddings = 2 * (ranks - 1) * batch * (encoder.width + 1) * _FLOAT
    sent = gradients + embeddings
    speed = device.half if options.half else device.single
    flops = 3 * encoder.forward_flops(data.tokens) + 6.0 * nodes * encoder.width
    compute = batch / options.docs_per_second if options.docs_per_second else batch * flops / speed
    wire = machines.ring_seconds(gradients) + machines.pairwise_seconds(embeddings)
    rate = batch * ranks / (compute + wire)
    return StageEstimate(
        "fine-tuning",
        memory=dense + head + activations + scores,
        on_device=device.memory > 0,
        sent=steps * sent,
        seconds=steps * (compute + wire),
        detail=f"{nodes:,} nodes, {steps:,.0f} steps, {rate:,.0f} documents/s on all ranks",
        wire_share=wire / (compute + wire),
    )


def embeddings(
    data: DataSizes, encoder: EncoderSize, machines: Machines, device: Device, options: FineTuningOptions
) -> StageEstimate:
    """Estimate computing all embeddings, which costs a third of a training step per document."""
    speed = device.half if options.half else device.single
    flops = encoder.forward_flops(data.tokens)
    each = 1 / (3 * options.docs_per_second) if options.docs_per_second else flops / speed
    batch = options.batch_size
    # Nothing is kept for gradients: two layers' activations at a time.
    activations = batch * encoder.activation_bytes(data.tokens, options.half) / encoder.layers * 2
    return StageEstimate(
        "embeddings",
        memory=encoder.weights * _FLOAT + activations,
        on_device=device.memory > 0,
        sent=0.0,
        seconds=data.documents * each / machines.ranks,
        detail=f"{size(data.documents * encoder.width * _FLOAT)} on the shared folder",
    )
