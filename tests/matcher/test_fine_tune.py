"""Fine-tuning of one level: it learns, equals plain Keras, stops, and resumes."""

import dataclasses
from contextlib import contextmanager

import keras
import numpy as np
import pytest
import tensorflow as tf
from transformers import BertConfig

from tests.encoder.tiny import tiny_encoder
from tests.matcher.tiny import DIM, TREE, WORDS, TinyEncoder, documents, encode, store_of
from tests.refusals import refused
from xmc_tf.collective.optimizers.keras_optimizer import LossScale
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.common.errors import InputError
from xmc_tf.data import TokenStore
from xmc_tf.encoder import Encoder, frozen_states
from xmc_tf.matcher import fine_tune
from xmc_tf.matcher.candidates import CandidateSampler, EveryNode, LevelData, TrainingBatches, parents_matched
from xmc_tf.matcher.fine_tune import fine_tune_level
from xmc_tf.matcher.head import LabelHead, head_loss
from xmc_tf.matcher.heads import Scaling
from xmc_tf.matcher.optimizer import make_optimizer
from xmc_tf.matcher.progress import TimeEstimate
from xmc_tf.matcher.tasks import levels_of
from xmc_tf.params import MatcherParams
from xmc_tf.ranks.solo import Solo

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
    """Documents, and the parts of a training, which are made again for each training."""

    def __init__(self, folder):
        self.folder = folder
        texts, self.Y = documents(60)
        self.store = store_of(texts, folder / "tokens")
        self.tasks = levels_of(TREE, self.Y, max_match_clusters=12)
        self.task = self.tasks[1]

    def sampler(self, params=PARAMS):
        matched = parents_matched(self.task, "tfn", self.tasks[0].targets)
        return CandidateSampler(self.task, matched, params.max_active_matching_labels, 3)

    def data(self, params=PARAMS):
        return LevelData(self.store, self.sampler(params), pad_id=0)

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
            self.data(params),
            params,
            folder=self.folder / folder,
            seed=7,
            **options,
        )
        return result, encoder, head


def changed(**values):
    return dataclasses.replace(PARAMS, **values)


def test_training_equals_plain_keras(world):
    """The reference uses the same batches, a dense head, an AdamW for each part, and one clipping."""
    params = changed(weight_decay=0.1, max_grad_norm=0.3, max_steps=12, max_active_matching_labels=None)
    result, encoder, head = world.train(params)

    plain = TinyEncoder()
    rows = tf.Variable(tf.zeros([world.task.nr_nodes, DIM + 1]))
    linear = np.interp(np.arange(12), [0, 4, 12], [0, 1, 0])
    kinds = {"head": [rows], "decayed": [plain.words, plain.kernel], "bias": [plain.bias]}
    optimizers = {
        "head": keras.optimizers.AdamW(0.05, weight_decay=0.1, epsilon=1e-8),
        "decayed": keras.optimizers.AdamW(0.01, weight_decay=0.1, epsilon=1e-8),
        "bias": keras.optimizers.Adam(0.01, epsilon=1e-8),
    }
    rates = {"head": 0.05, "decayed": 0.01, "bias": 0.01}
    batches = TrainingBatches(world.data(params), batch=16, seed=7)
    wanted = []
    stream = batches.stream()
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
    assert head.table.slots == {}  # their memory is free for the next level


def test_accumulated_batches_make_one_step(world):
    """Two batches of 8 make the same step as one with the documents of both: the mean of the gradients."""
    params = changed(batch_size=8, gradient_accumulation_steps=2, max_steps=6)
    result, _, head = world.train(params)
    assert result.steps == len(result.losses) == 6

    strategy, plain, rows = world.parts(params)
    optimizer = make_optimizer(strategy, dataclasses.replace(params, gradient_accumulation_steps=1), 6, [])
    batches = TrainingBatches(world.data(params), batch=8, seed=7)
    variables = [*plain.trainable_variables, rows.table.variable]
    wanted = []
    stream = batches.stream()
    for _ in range(6):
        with tf.GradientTape() as tape:
            loss = 0.0
            for batch in (next(stream), next(stream)):
                ragged = tf.RaggedTensor.from_row_splits(batch.candidates, batch.splits)
                vectors = plain(batch.ids, batch.mask)
                losses = rows.losses(
                    vectors, ragged, ragged.with_flat_values(batch.targets), head_loss("squared-hinge")
                )
                loss += tf.reduce_mean(losses) / 2
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        wanted.append(float(loss))
    np.testing.assert_allclose(result.losses, wanted, rtol=1e-5)
    np.testing.assert_allclose(head.local(), rows.local(), rtol=1e-3, atol=1e-4)


class StopError(Exception):
    """An error that interrupts a run."""


@contextmanager
def interrupted_after_two_checkpoints(monkeypatch):
    """Interrupt the training in the block as soon as it has written its second checkpoint."""
    real, made = fine_tune.save_training, []

    def save(*arguments):
        made.append(real(*arguments))
        if len(made) == 2:
            raise StopError

    with monkeypatch.context() as patch:
        patch.setattr(fine_tune, "save_training", save)
        with pytest.raises(StopError):
            yield


def test_it_resumes_with_the_same_batches_and_dropout(world, monkeypatch):
    """With four batches per epoch, the second checkpoint, at step 20, is at the end of the fifth epoch."""
    unbroken, encoder, head = world.train(dropout=0.4)
    without, _, _ = world.train(folder="without")
    assert not np.allclose(unbroken.losses[5:], without.losses[5:], rtol=1e-3)
    with interrupted_after_two_checkpoints(monkeypatch):
        world.train(folder="broken", dropout=0.4)
    resumed, again, rows = world.train(folder="broken", dropout=0.4)
    assert (resumed.first_step, resumed.steps) == (20, 24)
    assert resumed.losses == unbroken.losses[20:]
    assert resumed.curves.by_name == unbroken.curves.by_name
    np.testing.assert_allclose(
        resumed.curves.by_name["loss"], list(enumerate(unbroken.losses, 1)), atol=1e-6, err_msg="one point per step"
    )
    np.testing.assert_array_equal(rows.local(), head.local())
    np.testing.assert_array_equal(again.words.numpy(), encoder.words.numpy())
    finished, _, _ = world.train(folder="broken", dropout=0.4)  # there is nothing left to do
    assert (finished.first_step, finished.steps, finished.losses) == (24, 24, [])
    assert finished.curves.by_name == unbroken.curves.by_name


@pytest.mark.parametrize(
    "more",
    [{"gradient_accumulation_steps": 2, "token_budget": 60}, pytest.param({"xla": True}, marks=pytest.mark.full)],
)
def test_upper_layers_learn_from_the_output_of_the_frozen_ones(world, monkeypatch, more):
    """As where it is computed again in each step, also for windows. What is frozen has no slots."""
    with TokenStore.create(world.folder / "windows") as writer:
        writer.write([part for text in documents(60)[0] for part in np.array_split(text, 2)], np.full(60, 2))
    tokens = world.store = TokenStore.open(world.folder / "windows")
    params, made = changed(max_steps=4, **more), []
    monkeypatch.setattr(fine_tune, "make_optimizer", lambda *given: made.append(make_optimizer(*given)) or made[-1])

    def train(folder):
        encoder = tiny_encoder("bert", pooling="mean", hidden_dropout_prob=0.2)
        encoder.freeze("1")
        strategy = CollectiveStrategy(Solo(), seed=2)
        level = world.task.level, world.task.nr_nodes, encoder.dim, world.task.splits
        return world.train(params, folder, (strategy, encoder, LabelHead.for_level(strategy, *level, params)))

    again, plain, _ = train("again")
    world.store = tokens.with_states(frozen_states(plain, tokens, np.arange(len(tokens))))
    result, encoder, _ = train("run")
    np.testing.assert_allclose(result.losses, again.losses, rtol=1e-3)
    for name, variable in tiny_encoder("bert").weights.items():
        same = np.array_equal(encoder.weights[name], variable)
        assert same == (encoder.is_frozen(name) or name.startswith("pooler.")), name
    shapes = [tuple(one.shape) for one in made[-1].variables]
    assert shapes.count(tuple(encoder.weights["layer.1.inner.kernel"].shape)) == 2
    assert tuple(encoder.weights["words"].shape) not in shapes


def test_a_head_in_bfloat16_learns_and_resumes(world, monkeypatch):
    """All nodes are candidates; the rows are updated while their gradients are computed."""
    params = changed(
        negative_sampling="all", loss_function="cross-entropy", head_precision="bf16", max_steps=60, save_steps=20,
        learning_rate=0.03,
    )  # fmt: skip
    monkeypatch.setattr(world, "sampler", lambda params: EveryNode(world.task))
    result, encoder, head = world.train(params)
    assert head.table.variable.dtype == tf.bfloat16
    assert np.mean(result.losses[-5:]) < 0.5 * np.mean(result.losses[:5])
    scores = encode(encoder, world.store, np.arange(60)) @ head.local()[:, :-1].T + head.local()[:, -1]
    assert (np.asarray(world.task.targets[np.arange(60), scores.argmax(axis=1)]).ravel() > 0).mean() > 0.7
    with interrupted_after_two_checkpoints(monkeypatch):
        world.train(params, "broken")
    resumed, _, rows = world.train(params, "broken")
    assert (resumed.first_step, resumed.losses) == (40, result.losses[40:])
    np.testing.assert_array_equal(rows.local(), head.local())


@pytest.mark.parametrize("other", [{"negative_sampling": "tfn"}, {"gradient_accumulation_steps": 2}])
def test_what_a_head_in_bfloat16_needs_is_named(other):
    with pytest.raises(InputError, match=f"{next(iter(other))}(.|\n)*head_precision bf16"):
        MatcherParams(**{"negative_sampling": "all", "head_precision": "bf16"} | other)


def test_epochs_determine_the_number_of_steps(world):
    result, _, _ = world.train(changed(max_steps=0, num_train_epochs=2, gradient_accumulation_steps=3))
    assert result.steps == 2  # of four batches of 16 for 60 documents, twice


def test_a_token_budget_cuts_batches(world):
    params = changed(max_steps=0, num_train_epochs=1, token_budget=40)
    result, _, _ = world.train(params)
    assert result.steps > 8
    assert 0 <= result.padding_share < 0.1


def test_half_precision_skips_steps_that_overflow(world, monkeypatch):
    """While the loss scale makes gradients overflow, steps are skipped; their batches are not repeated."""
    strategy, encoder, head = world.parts()
    real, made = strategy.optimizer, []

    def huge(*given, **options):
        assert options["loss_scale"] == "dynamic"
        made.append(real(*given, **{**options, "loss_scale": LossScale(2.0**127)}))
        return made[0]

    monkeypatch.setattr(strategy, "optimizer", huge)
    head.scaling = Scaling(factor=20.0)
    params = changed(mixed_precision="fp16", max_steps=12, warmup_steps=0)
    result, _, _ = world.train(params, parts=(strategy, encoder, head))
    assert result.steps == len(result.losses) == 12
    assert 0 < int(made[0].iterations) < 12
    assert float(made[0].loss_scale.value) == 2.0 ** (127 - 12 + int(made[0].iterations))
    assert np.isfinite(head.local()).all()
    assert np.isfinite(encoder.words.numpy()).all()


@pytest.mark.full
def test_half_precision_inside_the_encoder(world):
    config = BertConfig(
        vocab_size=WORDS, hidden_size=DIM, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    losses = {}
    for precision in ("off", "fp16"):  # bfloat16: tests/encoder/test_encoder.py
        encoder = Encoder.from_config(config, pooling="mean", seed=1)
        encoder.compute_in(precision)
        strategy, _, head = world.parts()
        params = changed(mixed_precision=precision, max_steps=4, warmup_steps=0)
        losses[precision] = world.train(params, precision, (strategy, encoder, head))[0].losses
    assert losses["fp16"] != losses["off"]
    np.testing.assert_allclose(losses["fp16"], losses["off"], rtol=0.01)


def test_a_loss_of_nan_ends_the_training(world):
    parts = world.parts()
    parts[1].bias.assign(np.full(DIM, np.nan, np.float32))
    refused(r"the loss of step 1 is nan(.|\n)*learning_rate", world.train, parts=parts)
    assert not (world.folder / "run").exists()  # no checkpoint of it


def test_xla_gives_the_same(world):
    plain, _, _ = world.train(changed(max_steps=3))
    compiled, _, _ = world.train(changed(max_steps=3, xla=True), "compiled")
    np.testing.assert_allclose(compiled.losses, plain.losses, rtol=1e-4)


def test_the_time_of_the_steps_is_estimated_from_the_first_ones():
    now, counts = iter([100.0, 100.0, 104.0, 111.0]), tf.constant(0.0)
    estimate = TimeEstimate(clock=lambda: next(now))
    said = [estimate.after_step(100 - step, counts) for step in range(1, 6)]
    # The first step is not timed. Nothing is said before ten seconds or ten steps, and then once.
    assert said == [None, None, "about 9 min for the other 97 steps, at 5.5 s each", None, None]
