"""One side of ``encoder_speed``: training steps and forward passes of an encoder, measured in this process.

    encoder_side.py SIDE PRECISION SHAPES

SIDE is "tensorflow" (the xmc_tf that Python finds) or "pytorch"; PRECISION is "float32" or "bf16"; SHAPES is JSON: for
each name, the lengths of a batch's documents. Prints one line of JSON: by shape, seconds of the clock and of the
processor for a step and for a forward pass, and the largest memory of the process in MiB.
"""

import json
import os
import resource
import sys
import time

import numpy as np

WORDS, WIDTH, LAYERS, HEADS, INNER, LABELS, LONGEST = 30522, 384, 6, 12, 1536, 2842, 512
SIZES = {
    "vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": INNER, "max_position_embeddings": LONGEST,
}  # fmt: skip
RATE, CLIP, SCALE = 1e-4, 1.0, 20.0
_SECONDS, _MOST, _LEAST = 3.0, 30, 3


def batches(lengths):
    """Return ids, mask and labels of a batch."""
    rng = np.random.default_rng(0)
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int32)
    ids = np.where(mask > 0, rng.integers(1000, WORDS, mask.shape), 0).astype(np.int32)
    return ids, mask, rng.integers(0, LABELS, len(lengths))


def measure(run):
    """Return seconds of the clock and of the processor, the medians of several calls."""
    for number in range(2):
        run(number)
    clocks, processor = [], []
    began = time.perf_counter()
    while len(clocks) < _LEAST or (time.perf_counter() - began < _SECONDS and len(clocks) < _MOST):
        clock, used = time.perf_counter(), time.process_time()
        run(len(clocks))
        clocks.append(time.perf_counter() - clock)
        processor.append(time.process_time() - used)
    return [float(np.median(clocks)), float(np.median(processor))]


def tensorflow_side(precision):
    """Return functions that prepare a training step and a forward pass of a batch."""
    from xmc_tf.encoder import Encoder  # isort: skip  first, quietly

    import tensorflow as tf
    from transformers import BertConfig

    from xmc_tf.collective.strategy import CollectiveStrategy
    from xmc_tf.matcher.optimizer import make_optimizer
    from xmc_tf.params import MatcherParams
    from xmc_tf.ranks.solo import Solo

    encoder = Encoder.from_config(BertConfig(**SIZES), pooling="mean")
    if precision != "float32":
        encoder.compute_in(precision)
    head = tf.Variable(tf.random.normal([LABELS, WIDTH], stddev=0.02), name="head")
    variables = [*encoder.trainable_variables, head]
    params = MatcherParams(model_shortcut="x", learning_rate=RATE, max_grad_norm=CLIP, warmup_steps=0)
    optimizer = make_optimizer(CollectiveStrategy(Solo()), params, 100_000, encoder.trainable_variables)
    optimizer.build(variables)
    sizes = [tf.TensorSpec([None, None], tf.int32)] * 2

    @tf.function(input_signature=[*sizes, tf.TensorSpec([None], tf.int64)], autograph=False)
    def step(ids, mask, labels):
        with tf.GradientTape() as tape:
            vectors = tf.math.l2_normalize(encoder.in_graph(ids, mask, training=True), axis=1)
            logits = SCALE * tf.matmul(vectors, head, transpose_b=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    def training(ids, mask, labels):
        given = tf.constant(ids), tf.constant(mask), tf.constant(labels)
        return lambda number: step(*given).numpy()

    def forward(ids, mask, labels):
        given = tf.constant(ids), tf.constant(mask)
        return lambda number: encoder.in_graph(*given).numpy()

    return training, forward


def pytorch_side(precision):
    """Return functions that prepare a training step and a forward pass of a batch."""
    import torch
    from transformers import BertConfig, BertModel

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = BertModel(BertConfig(**SIZES), add_pooling_layer=False)
    head = torch.nn.Linear(WIDTH, LABELS, bias=False)
    weights = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=RATE, weight_decay=0.0, fused=True)
    half = precision != "float32"

    def embed(ids, mask):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            states = model(input_ids=ids, attention_mask=mask).last_hidden_state
        there = mask[:, :, None].float()
        return (states.float() * there).sum(1) / there.sum(1)

    def tensors(*arrays):
        return [torch.tensor(one).long() for one in arrays]

    def training(ids, mask, labels):
        ids, mask, labels = tensors(ids, mask, labels)

        def run(number):
            model.train()
            vectors = torch.nn.functional.normalize(embed(ids, mask))
            loss = torch.nn.functional.cross_entropy(SCALE * head(vectors), labels)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, CLIP)
            optimizer.step()
            return loss.item()

        return run

    def forward(ids, mask, labels):
        ids, mask = tensors(ids, mask)

        def run(number):
            model.eval()
            with torch.inference_mode():
                return embed(ids, mask).numpy()

        return run

    return training, forward


def main(side, precision, shapes):
    training, forward = (tensorflow_side if side == "tensorflow" else pytorch_side)(precision)
    found = {}
    for name, lengths in json.loads(shapes).items():
        batch = batches(lengths)
        found[name] = {"forward": measure(forward(*batch)), "step": measure(training(*batch))}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"shapes": found, "memory": round(memory)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
