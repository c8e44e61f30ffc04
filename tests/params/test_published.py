"""PECOS's published files load as they are, and what we write holds what they held."""

import json
import logging

import pytest

from tests.params import published
from xmc_tf.params import (
    HierarchicalKMeansParams,
    LinearLevelParams,
    MatcherParams,
    MatcherPredParams,
    RankerParams,
    RankerPredParams,
    TfidfParams,
    XTransformerParams,
    XTransformerPredParams,
    linear_skeleton,
    load_blocks,
    skeleton,
    xtransformer_skeleton,
)


def write(path, data):
    path.write_text(json.dumps(data, indent=1))
    return path


def load(path, **classes):
    """Return the parameters in a file, by default those of a whole model."""
    classes = classes or {"train_params": XTransformerParams, "pred_params": XTransformerPredParams}
    blocks = load_blocks(path, ignore=("tfidf_params",), **classes)
    return tuple(blocks[name] or classes[name]() for name in classes)


LINEAR = {"train_params": RankerParams, "pred_params": RankerPredParams, "indexer_params": HierarchicalKMeansParams}


def without_retired(data):
    if isinstance(data, dict):
        gone = ("imbalanced_ratio", "imbalanced_depth", "save_emb_dir")
        return {key: without_retired(value) for key, value in data.items() if key not in gone}
    return [without_retired(entry) for entry in data] if isinstance(data, list) else data


def contains(whole, part):
    """Return whether ``whole`` contains all keys of ``part``; it may have more keys with defaults."""
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return whole == part


def test_published_file_loads_and_round_trips(tmp_path, caplog):
    data = published.xtransformer()
    with caplog.at_level(logging.WARNING):
        train, pred = load(write(tmp_path / "params.json", data))
    assert train.preliminary_indexer_params.min_codes == 16
    assert [level.max_steps for level in train.matcher_params_chain] == [600, 800, 1200]
    assert train.matcher_params_chain[0].bootstrap_method == "weighted-linear"
    assert train.matcher_params_chain[0].pre_tokenize is True  # younger than the file: its default
    assert train.ranker_params.hlm_args.neg_mining_chain == ("tfn", "tfn", "tfn+man")
    assert train.ranker_params.hlm_args.model_chain[2].Cn == 4.0
    assert pred.ranker_params.hlm_args.model_chain[-1].only_topk == 25

    text = skeleton(train_params=train, pred_params=pred)
    assert contains(json.loads(text), without_retired(data))
    (tmp_path / "again.json").write_text(text)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert load(tmp_path / "again.json") == (train, pred)
    assert not caplog.records


def test_retired_keys_are_named_in_one_warning(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        load(write(tmp_path / "params.json", published.xtransformer()))
    (record,) = caplog.records
    message = record.getMessage()
    assert "params.json: train_params.preliminary_indexer_params.imbalanced_ratio" in message
    assert "train_params.refined_indexer_params.imbalanced_depth" in message
    assert "train_params.save_emb_dir" in message


def test_published_linear_file(tmp_path):
    data = published.xlinear()
    train, pred, tree = load(write(tmp_path / "params.json", data), **LINEAR)
    assert train.rel_mode == "induce"
    assert tree.max_leaf_size == 16
    assert isinstance(pred, RankerPredParams)
    text = skeleton(train_params=train, pred_params=pred, indexer_params=tree)
    assert contains(json.loads(text), without_retired(data))


def test_defaults_are_those_of_pecos_but_for_the_recipe():
    """Of the encoder's fine-tuning it is ours, since PECOS's makes good encoders worse."""
    train = XTransformerParams()
    assert train.preliminary_indexer_params == HierarchicalKMeansParams(
        nr_splits=16, min_codes=None, max_leaf_size=100, spherical=True, seed=0, kmeans_max_iter=20, threads=-1,
        do_sample=False, max_sample_rate=1.0, min_sample_rate=0.1, warmup_ratio=0.4,
    )  # fmt: skip
    assert train.ranker_params.hlm_args.model_chain == LinearLevelParams(
        threshold=0.1, max_nonzeros_per_label=None, solver_type="L2R_L2LOSS_SVC_DUAL", Cp=1, Cn=1, max_iter=100,
        eps=0.1, bias=1, threads=-1, verbose=0, newton_eps=0.01,
    )  # fmt: skip
    recipe = MatcherParams(
        negative_sampling="all", loss_function="cross-entropy", bootstrap_method="centroid", batch_size=32,
        num_train_epochs=3,
    )  # fmt: skip
    assert train.matcher_params_chain == recipe
    assert (recipe.learning_rate, recipe.max_steps, recipe.max_num_labels_in_gpu) == (1e-4, 0, 65536)
    assert (recipe.normalizes, recipe.scale, recipe.head_rate) == (True, 20.0, 2.5e-4)
    pecos = MatcherParams(loss_function="squared-hinge")
    assert (pecos.normalizes, pecos.scale, pecos.head_rate) == (False, 1.0, 1e-4)
    assert train.max_match_clusters == 32768
    assert RankerParams().mode == "full-model"
    assert XTransformerPredParams().matcher_params_chain == MatcherPredParams(
        only_topk=20, post_processor="noop", ensemble_method=None, truncate_length=128
    )


def test_skeletons_are_files_with_all_defaults(tmp_path):
    (tmp_path / "x.json").write_text(xtransformer_skeleton())
    assert load(tmp_path / "x.json") == (XTransformerParams(), XTransformerPredParams())
    (tmp_path / "l.json").write_text(linear_skeleton())
    assert load(tmp_path / "l.json", **LINEAR) == (RankerParams(), RankerPredParams(), HierarchicalKMeansParams())
    assert '"class_fullname": "pecos.xmc.base###MLModel.TrainParams"' in linear_skeleton()
    blocks = ("train_params", "pred_params", "indexer_params")
    for name in ("x.json", "l.json"):
        assert load_blocks(tmp_path / name, ignore=blocks, tfidf_params=TfidfParams)["tfidf_params"] == TfidfParams()


@pytest.mark.parametrize("nothing", [{}, {"train_params": None}, {"train_params": {"ranker_params": None}}])
def test_blocks_that_are_left_out_or_null_have_their_defaults(tmp_path, nothing):
    assert load(write(tmp_path / "p.json", nothing)) == (XTransformerParams(), XTransformerPredParams())


def test_missing_blocks_can_be_recognized(tmp_path):
    path = write(tmp_path / "p.json", {"train_params": {}, "seed": 3})
    blocks = load_blocks(path, ignore=("seed",), train_params=RankerParams, pred_params=RankerPredParams)
    assert blocks == {"train_params": RankerParams(), "pred_params": None}
