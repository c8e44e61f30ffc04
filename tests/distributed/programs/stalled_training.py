"""A training that stalls: with skip, rank 1 skips a lookup; with away, rank 1 stops and rank 2 sleeps."""

import os
import signal
import sys
import time

import tensorflow as tf

from xmc_tf import CollectiveStrategy
from xmc_tf.ranks.stalls import watch as stalls

how = sys.argv[1]
strategy = CollectiveStrategy(stall_timeout=float(sys.argv[2]) if len(sys.argv) > 2 else None)
items = strategy.table("items", 100, 4)
scale = tf.Variable(2.0)
optimizer = strategy.optimizer("sgd")


@tf.function
def step(with_items):
    with tf.GradientTape() as tape:
        loss = tf.square(scale)
        if with_items:
            loss *= tf.reduce_sum(strategy.lookup(items, tf.range(10)))
    variables = [scale, items.variable] if with_items else [scale]
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    return loss


def turn_aside():
    if how == "away" and strategy.rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "away" and strategy.rank() == 2:
        time.sleep(600)


watch = stalls._watch
timeout, watch.timeout = watch.timeout, None  # until the steps are traced, for which a busy machine takes any time
for _ in range(3):
    step(True)
watch.timeout = timeout
print("trained", flush=True)
turn_aside()
step(how != "skip" or strategy.rank() != 1)
print("went on", flush=True)
