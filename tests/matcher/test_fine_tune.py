"""One level of fine-tuning: it learns, is what plain Keras would do, stops, and goes on where it was stopped."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.matcher.tiny import DIM, TREE, TinyEncoder, documents, encode, store_of
from xmc_tf.collective.solo import Solo
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.matcher.batches import TrainingBatches
from xmc_tf.matcher.candidates import CandidateSampler, parents_matched
from xmc_tf.matcher.fine_tune import fine_tune_level
from xmc_tf.matcher.head import LabelHead
from xmc_tf.matcher.levels import levels_of
from xmc_tf.params import MatcherParams

PARAMS = MatcherParams(
    loss_function="squared-hinge",
    learning_rate=0.01,
    head_learning_rate=0.05,
    batch_size=16,
    max_steps=24,
    warmup_steps=4,
    logging_steps=5,
    save_steps=10,
    max_active_matching_labels=6,
    hidden_dropout_prob=0.0,
)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


class World:
    """Documents, and everything made anew for every training over them."""

    def __init__(self, folder):
        self.folder = folder
        texts, self.Y = documents(60)
        self.store = store_of(texts, folder / "tokens")
        self.tasks = levels_of(TREE, self.Y, max_match_clusters=12)
        self.task = self.tasks[1]

    def sampler(self, params=PARAMS):
        matched = parents_matched(self.task, "tfn", self.tasks[0].targets)
        return CandidateSampler(self.task, matched, params.max_active_matching_labels, 3)

    def parts(self, params=PARAMS, dropout=0.0):
        strategy = CollectiveStrategy(Solo(), seed=2)
        head = LabelHead.for_level(strategy, self.task.level, self.task.nr_nodes, DIM, self.task.splits, params)
        return strategy, TinyEncoder(dropout=dropout), head

    def train(self, params=PARAMS, folder="run", parts=None, dropout=0.0, **options):
        strategy, encoder, head = parts or self.parts(params, dropout)
        result = fine_tune_level(
            strategy,
            encoder,
            head,
            self.store,
            self.sampler(params),
            params,
            pad_id=0,
            folder=self.folder / folder,
            seed=7,
            **options,
        )
        return result, encoder, head


def changed(**values):
    return dataclasses.replace(PARAMS, **values)


def test_it_learns(world):
    result, encoder, head = world.train(changed(max_steps=60, learning_rate=0.03))
    assert result.steps == len(result.losses) == 60
    assert np.mean(result.losses[-5:]) < 0.3 * np.mean(result.losses[:5])
    vectors = encode(encoder, world.store, np.arange(60))
    scores = vectors @ head.local()[:, :-1].T + head.local()[:, -1]
    best = scores.argmax(axis=1)
    right = np.asarray(world.task.targets[np.arange(60), best]).ravel() > 0
    assert right.mean() > 0.7
    assert head.table.slots == {}


def test_it_is_what_plain_keras_does(world):
    """The same batches through one dense head, one AdamW for each part, and one clipping, written plainly."""
    params = changed(weight_decay=0.1, max_grad_norm=0.3, max_steps=12, max_active_matching_labels=None)
    result, encoder, head = world.train(params)

    plain = TinyEncoder()
    rows = tf.Variable(tf.zeros([world.task.nr_nodes, DIM + 1]))
    linear = np.interp(np.arange(12), [0, 4, 12], [0, 1, 0])
    kinds = {"head": [rows], "decayed": [plain.words, plain.kernel], "bias": [plain.bias]}
    optimizers = {
        "head": tf_keras.optimizers.AdamW(0.05, weight_decay=0.1, epsilon=1e-8),
        "decayed": tf_keras.optimizers.AdamW(0.01, weight_decay=0.1, epsilon=1e-8),
        "bias": tf_keras.optimizers.Adam(0.01, epsilon=1e-8),
    }
    rates = {"head": 0.05, "decayed": 0.01, "bias": 0.01}
    batches = TrainingBatches(world.store, world.sampler(params), batch=16, seed=7, pad_id=0)
    wanted = []
    with batches.stream() as stream:
        for step in range(12):
            batch = next(stream)
            with tf.GradientTape() as tape:
                vectors = plain(batch.ids, batch.mask)
                scores = vectors @ tf.transpose(rows[:, :-1]) + rows[:, -1]
                losses = []
                for document in range(len(batch.documents)):
                    of = slice(batch.splits[document], batch.splits[document + 1])
                    slack = 1 - (2 * batch.targets[of] - 1) * tf.gather(scores[document], batch.candidates[of])
                    losses.append(tf.reduce_mean(tf.nn.relu(slack) ** 2))
                loss = tf.reduce_mean(losses)
            variables = [one for kind in kinds.values() for one in kind]
            clipped, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), 0.3)
            of_variable = {id(one): gradient for one, gradient in zip(variables, clipped, strict=True)}
            for kind, its in kinds.items():
                optimizers[kind].learning_rate = rates[kind] * linear[step]
                optimizers[kind].apply_gradients([(tf.convert_to_tensor(of_variable[id(one)]), one) for one in its])
            wanted.append(float(loss))
    np.testing.assert_allclose(result.losses, wanted, rtol=1e-4)
    np.testing.assert_allclose(head.local(), rows.numpy(), rtol=1e-3, atol=3e-4)
    np.testing.assert_allclose(encoder.kernel.numpy(), plain.kernel.numpy(), rtol=1e-3, atol=3e-4)
