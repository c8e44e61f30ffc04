"""All levels: training, beam search, saving and loading, resuming after an interruption, TensorBoard."""

import dataclasses
import re

import numpy as np
import pytest
from google.protobuf import text_format
from scipy.sparse import csr_matrix
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.projector import ProjectorConfig

from tests.matcher.tiny import DIM, LABELS, TREE, TinyEncoder, documents, encode, store_of
from tests.refusals import refused
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.data import as_features
from xmc_tf.matcher import fine_tune, progress
from xmc_tf.matcher.head import LabelHead
from xmc_tf.matcher.label_search import load_label_search
from xmc_tf.matcher.matcher import Matcher
from xmc_tf.matcher.predict_levels import predict_level
from xmc_tf.matcher.tasks import MatcherData, MatcherSettings, Validation
from xmc_tf.params import (
    LinearChainParams,
    LinearChainPredParams,
    LinearLevelParams,
    LinearLevelPredParams,
    MatcherParams,
    MatcherPredParams,
    RankerParams,
    RankerPredParams,
)
from xmc_tf.rankers.fit import train_rankers
from xmc_tf.ranks.solo import Solo

PARAMS = MatcherParams(
    negative_sampling="tfn+man",
    loss_function="squared-hinge",
    bootstrap_method="linear",
    learning_rate=0.02,
    head_learning_rate=0.05,
    batch_size=16,
    max_steps=12,
    logging_steps=5,
    save_steps=4,
    hidden_dropout_prob=0.0,
)
PRED = MatcherPredParams(only_topk=3, post_processor="sigmoid")
N = 60
NAMES = [f"label\t{number}" for number in range(LABELS)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    texts, Y = documents(N)
    held_out, Y_held_out = documents(30, seed=9)
    folder = tmp_path_factory.mktemp("data")
    return store_of(texts, folder / "train"), Y, Validation(store_of(held_out, folder / "held_out"), Y_held_out)


def train(data, folder, params=PARAMS, logdir=None, max_match_clusters=32768, **more_data):
    """Return a trained matcher with a tiny encoder; ``more_data`` are further fields of ``MatcherData``."""
    store, Y, _ = data
    return Matcher.train(
        CollectiveStrategy(Solo(), seed=1),
        TinyEncoder(),
        MatcherData(store, Y, TREE, pad_id=0, **more_data),
        MatcherSettings(params, PRED, max_match_clusters, seed=3),
        folder=folder,
        logdir=logdir,
    )


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return train(data, folder / "work", logdir=folder / "logs", names=NAMES), folder


def raw(matcher, vectors):
    """Return the scores of all nodes of the last level."""
    head = matcher.head
    rows = head.rows_between(0, head.nr_nodes)
    return head.scaling.apply(vectors) @ rows[:, :-1].T + rows[:, -1]


def test_it_finds_the_labels(data, trained):
    store, Y, _ = data
    matcher, _ = trained
    predicted = matcher.to_labels(matcher.predict(encode(matcher.encoder, store, np.arange(N)), beam_size=4))
    best = predicted.indices[predicted.indptr[:-1]]
    assert np.asarray(Y[np.arange(N), best]).mean() > 0.8
    assert [result.steps for result in matcher.results] == [12, 12, 12]
    assert matcher.results[1].losses[-1] < matcher.results[1].losses[0]


def test_with_all_nodes_as_candidates_the_last_level_is_trained_alone(data, tmp_path):
    store, Y, _ = data
    params = dataclasses.replace(
        PARAMS, negative_sampling="all", loss_function="cross-entropy", bootstrap_method="centroid", max_steps=16
    )
    matcher = train(data, tmp_path / "work", (PARAMS, PARAMS, params))
    assert [head.nr_nodes for head in matcher.heads] == [LABELS]
    predicted = matcher.to_labels(matcher.predict(encode(matcher.encoder, store, np.arange(N))))
    best = predicted.indices[predicted.indptr[:-1]]
    assert np.asarray(Y[np.arange(N), best]).mean() > 0.8


def whole(matcher):
    """Return weights and biases of all levels."""
    return [(head.local()[:, :-1], head.local()[:, -1]) for head in matcher.heads]


@pytest.mark.parametrize("post_processor", ["noop", "log-sigmoid", "l3-hinge"])
def test_predictions_equal_those_of_rankers_with_the_same_weights(data, trained, post_processor):
    """Beam search of linear rankers with the same weights returns the same scores."""
    store, Y, _ = data
    matcher, _ = trained
    vectors = encode(matcher.encoder, store, np.arange(N))
    level = LinearLevelPredParams(only_topk=4, post_processor=post_processor)
    model = train_rankers(
        as_features(vectors),
        Y,
        TREE.to_chain(),
        params=RankerParams(hlm_args=LinearChainParams("tfn", LinearLevelParams(max_iter=1))),
        pred_params=RankerPredParams(hlm_args=LinearChainPredParams(level)),
    )
    levels = [
        dataclasses.replace(one, stored=csr_matrix(head.local().T).tocsc())
        for one, head in zip(model.levels, matcher.heads, strict=True)
    ]
    model = dataclasses.replace(model, levels=levels)
    wanted = model.predict(as_features(vectors), only_topk=5, beam_size=4, post_processor=post_processor)
    got = matcher.to_labels(matcher.predict(vectors, only_topk=5, beam_size=4, post_processor=post_processor))
    np.testing.assert_allclose(got.toarray(), wanted.toarray(), rtol=1e-4, atol=1e-5)
    for row in range(N):  # the best come first
        scores = got.data[got.indptr[row] : got.indptr[row + 1]]
        assert (np.diff(scores) <= 0).all()


def test_a_loaded_matcher_predicts_the_same(data, trained, tmp_path):
    store, _, _ = data
    matcher, _ = trained
    matcher.save(tmp_path / "head")
    again = load_label_search(tmp_path / "head")
    vectors = encode(matcher.encoder, store, np.arange(N))
    one, other = (each.to_labels(each.predict(vectors, only_topk=4)) for each in (matcher, again))
    np.testing.assert_array_equal(one.toarray(), other.toarray())
    assert (again.level, again.nr_nodes) == (3, LABELS)


def test_a_folder_that_is_no_head_is_refused(trained):
    _, folder = trained
    refused("is not a label head", load_label_search, folder / "work" / "level_1" / "done")


def test_scale_and_normalisation_are_kept(data, tmp_path):
    params = dataclasses.replace(PARAMS, normalize_vectors=True, logit_scale=4.0, max_steps=3)
    matcher = train(data, tmp_path / "work", params, max_match_clusters=3)
    matcher.save(tmp_path / "head")
    again = load_label_search(tmp_path / "head")
    vectors = encode(matcher.encoder, data[0], np.arange(N))
    np.testing.assert_array_equal(raw(again, vectors), raw(matcher, vectors))
    np.testing.assert_allclose(raw(again, 7 * vectors), raw(again, vectors), rtol=1e-3, atol=1e-4)


def test_only_the_upper_levels(data, tmp_path):
    matcher = train(data, tmp_path, dataclasses.replace(PARAMS, max_steps=1), max_match_clusters=4)
    assert (matcher.level, matcher.nr_nodes, matcher.labels) == (1, 3, None)
    refused("is above the labels", matcher.to_labels, matcher.predict(encode(matcher.encoder, data[0], np.arange(3))))


class StopError(Exception):
    """An error that interrupts a run."""


def test_an_interrupted_run_resumes(data, trained, tmp_path, monkeypatch, caplog):
    """The result is that of an uninterrupted run, though it was interrupted below the top level."""
    unbroken, _ = trained
    real, made = fine_tune.save_training, []

    def save(folder, *rest):
        if len(made) == 4:
            raise StopError
        made.append(real(folder, *rest))

    monkeypatch.setattr(fine_tune, "save_training", save)
    monkeypatch.setattr(progress, "WORTH_SAYING_S", 0.0)
    monkeypatch.setattr(progress, "_TIMED_S", 0.0)
    with pytest.raises(StopError), caplog.at_level("INFO"):
        train(data, tmp_path, max_match_clusters=6)
    # The time of all levels is estimated before the long part.
    said = re.findall(r"level \d: about .+ for the other .+(?=, at)", caplog.text)
    assert re.fullmatch(r"level 1: about \S+ s for the other 10 steps and the 12 steps of later levels", said[0])
    assert re.fullmatch(r"level 2: about \S+ s for the other 10 steps", said[1])
    monkeypatch.setattr(fine_tune, "save_training", real)
    resumed = train(data, tmp_path, max_match_clusters=6)
    for ours, theirs in zip(resumed.heads, unbroken.heads[:2], strict=True):
        np.testing.assert_array_equal(ours.local(), theirs.local())
    assert [result.steps for result in resumed.results] == [12, 12]
    assert sum(len(result.losses) for result in resumed.results) == 24 - 4 * 4


def test_validation_restores_the_best_state_and_stops_early(data, tmp_path):
    """With a learning rate that is far too high, a state of an early validation is the best and is restored."""
    params = dataclasses.replace(
        PARAMS, learning_rate=0.5, head_learning_rate=0.5, max_steps=80, max_no_improve_cnt=2, lr_schedule="constant"
    )
    matcher = train(data, tmp_path, params, validation=data[2], max_match_clusters=3)
    (result,) = matcher.results
    means = [np.mean(list(measures.values())) for _, measures in result.validations]
    assert result.stopped_early
    assert result.steps == 4 * len(means) < 80
    assert np.argmax(means) == len(means) - 3
    held_out = data[2]
    vectors = encode(matcher.encoder, held_out.store, np.arange(30))
    best = matcher.predict(vectors, only_topk=3)
    first = best.indices[best.indptr[:-1]]
    truth = np.zeros((30, 3))
    rows, columns = held_out.Y.nonzero()
    truth[rows, columns // 4] = 1
    assert 100 * truth[np.arange(30), first].mean() == pytest.approx(max(result.validations, key=mean_of)[1]["P@1"])


def mean_of(validation):
    return np.mean(list(validation[1].values()))


def test_held_out_documents_do_not_change_the_training(data, tmp_path):
    """The labels of documents that are not trained on have no effect."""
    store, Y, _ = data
    rows = np.arange(10, N)
    one = train(data, tmp_path / "one", rows=rows, max_match_clusters=3)
    other_labels = csr_matrix(np.vstack([np.roll(Y[:10].toarray(), 5, axis=1), Y[10:].toarray()]))
    two = train((store, other_labels, None), tmp_path / "two", rows=rows, max_match_clusters=3)
    vectors = encode(one.encoder, store, np.arange(N))
    np.testing.assert_array_equal(raw(one, vectors), raw(two, vectors))


def test_tensorboard_shows_the_curves(trained):
    _, folder = trained
    events = EventAccumulator(str(folder / "logs"), size_guidance={"tensors": 0})
    events.Reload()
    tags = set(events.Tags()["tensors"])
    curves = {"loss", "learning_rate", "gradient_norm", "documents_per_second", "tokens_per_second", "padding_share"}
    assert {f"level_{level}/{curve}" for level in (1, 2, 3) for curve in curves} <= tags
    assert [event.step for event in events.Tensors("level_2/loss")] == list(range(1, 13))
    assert [event.step for event in events.Tensors("level_2/learning_rate")] == [4, 5, 8, 10, 12]


def test_prediction_in_small_blocks(monkeypatch):
    """Small blocks of documents and rows give the same result as one block."""
    from xmc_tf.matcher import predict_levels

    rng = np.random.default_rng(1)
    splits = np.array([0, 3, 3, 4, 9, 12])
    head = LabelHead(CollectiveStrategy(Solo()), "pieces", 12, DIM, splits, initial=rng.normal(size=(12, DIM + 1)))
    vectors = rng.normal(size=(20, DIM)).astype(np.float32)
    parents = csr_matrix(rng.random((20, 5)) * (rng.random((20, 5)) < 0.5))
    wanted = predict_level(head, vectors, parents, splits, only_topk=4, post_processor="l2-hinge")
    monkeypatch.setattr(predict_levels, "ROWS_AT_ONCE", 4)
    monkeypatch.setattr(predict_levels, "SCORES_AT_ONCE", 11)
    got = predict_level(head, vectors, parents, splits, only_topk=4, post_processor="l2-hinge")
    np.testing.assert_allclose(got.toarray(), wanted.toarray(), rtol=1e-5)
    raw = vectors @ head.local()[:, :-1].T + head.local()[:, -1]
    squashed = np.exp(-(np.maximum(1 - raw, 0) ** 2)) * np.repeat(parents.toarray(), np.diff(splits), axis=1)
    for row in range(20):
        found = got.indices[got.indptr[row] : got.indptr[row + 1]]
        possible = np.flatnonzero(np.repeat(parents.toarray()[row] > 0, np.diff(splits)))
        best = possible[np.argsort(-squashed[row, possible], kind="stable")][:4]
        assert found.tolist() == best.tolist()


@pytest.mark.parametrize("post", ["noop", "sigmoid", "l3-hinge"])
def test_only_some_labels(post):
    """The search keeps only nodes above the labels, even with a narrow beam."""
    rng = np.random.default_rng(2)
    splits = [np.array([0, 4]), np.array([0, 3, 3, 4, 9]), np.array([0, 2, 4, 6, 8, 10, 12, 14, 16, 18])]
    strategy = CollectiveStrategy(Solo())
    heads = [
        # Scores far below zero: some post-processors make them exactly 0, and a node still counts or does not.
        LabelHead(strategy, f"some_{t}", int(one[-1]), DIM, one, initial=rng.normal(-9, 5, size=(one[-1], DIM + 1)))
        for t, one in enumerate(splits)
    ]
    matcher = Matcher(strategy, heads, splits, rng.permutation(18))
    vectors = rng.normal(size=(30, DIM)).astype(np.float32)
    labels = np.array([0, 5, 6, 11])
    found = matcher.to_labels(
        matcher.predict(vectors, beam_size=4, only_topk=9, post_processor=post, only_labels=labels)
    )
    every = matcher.to_labels(matcher.predict(vectors, beam_size=99, only_topk=99, post_processor=post)).toarray()
    assert np.diff(found.indptr).tolist() == [4] * 30
    assert set(found.indices) == set(labels)
    np.testing.assert_allclose(found.toarray()[:, labels], every[:, labels], rtol=1e-5)
    narrow = matcher.predict(vectors, beam_size=1, only_topk=9, post_processor=post, only_labels=labels)
    assert np.diff(narrow.indptr).min() >= 1
    assert set(matcher.to_labels(narrow).indices) <= set(labels)


def test_tensorboard_shows_tree_parameters_and_vectors(data, trained):
    _, Y, _ = data
    matcher, folder = trained
    events = EventAccumulator(str(folder / "logs"), size_guidance={"tensors": 0})
    events.Reload()
    assert b"| 2 | 6 |" in events.Tensors("tree")[0].tensor_proto.string_val[0]
    said = events.Tensors("level_3/parameters")[0].tensor_proto.string_val[0]
    assert b"| head_learning_rate | 0.05 |" in said
    config = ProjectorConfig()
    text_format.Parse((folder / "logs" / "projector_config.pbtxt").read_text(), config)
    assert [one.tensor_name for one in config.embeddings] == ["level 1", "level 2", "level 3"]
    for level, one in enumerate(config.embeddings):
        vectors = np.loadtxt(folder / "logs" / one.tensor_path, delimiter="\t")
        np.testing.assert_allclose(vectors, matcher.heads[level].local()[:, :-1], rtol=1e-4)
        lines = (folder / "logs" / one.metadata_path).read_text().splitlines()
        assert len(lines) == 1 + len(vectors)
    often = np.diff(Y.tocsc().indptr)
    assert lines[4] == f"label 3\t{often[3]}"
    top = (folder / "logs" / config.embeddings[0].metadata_path).read_text().splitlines()[1]
    best = sorted(range(4), key=lambda label: -often[label])[:3]
    assert top == " · ".join(f"label {label}" for label in best) + f" (+1)\t{often[:4].sum()}"
