"""What the pipeline makes is what its parts make one by one."""

import json
import pickle
import re
import shutil

import numpy as np
import pytest

from tests.pipeline.corpus import LABELS, run_train, texts_and_labels, train_flags
from tests.refusals import refused
from xmc_tf import predict, train
from xmc_tf.common.errors import InputError
from xmc_tf.common.process import cli
from xmc_tf.data import Features, TokenStore, as_features, load_matrix
from xmc_tf.encoder import Encoder, TextTokenizer, encode_documents, tokenize_file
from xmc_tf.features import Tfidf
from xmc_tf.matcher import fine_tune
from xmc_tf.matcher.label_search import load_label_search
from xmc_tf.metrics import ensemble, evaluate
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.models.xtransformer import TrainingRun, XTransformer
from xmc_tf.params import (
    HierarchicalKMeansParams,
    LinearChainParams,
    LinearLevelParams,
    MatcherParams,
    MatcherPredParams,
    PredictionOptions,
    RankerParams,
    XTransformerParams,
    XTransformerPredParams,
)
from xmc_tf.pipeline.embeddings import rows_of_length
from xmc_tf.pipeline.ensembles import chosen_method
from xmc_tf.pipeline.inputs import Recipe
from xmc_tf.rankers.fit import train_rankers
from xmc_tf.rankers.layout import stored
from xmc_tf.tree import load_chain
from xmc_tf.tree.kmeans import build_tree
from xmc_tf.tree.label_embeddings import label_embedding


def rows_of(predicted):
    """Label → score of each row, in order."""
    return [
        list(zip(predicted.indices[a:b].tolist(), predicted.data[a:b].round(5).tolist(), strict=True))
        for a, b in zip(predicted.indptr[:-1], predicted.indptr[1:], strict=True)
    ]


def vectors(model_folder, texts, tmp_path):
    """By the parts themselves, not by the model."""
    tokenizer = TextTokenizer.load(model_folder / "encoder")
    store = tokenize_file(texts, tokenizer, tmp_path / "tokens", max_length=16)
    assert isinstance(store, TokenStore)
    return encode_documents(Encoder.load(model_folder / "encoder"), store)


def test_the_folder_is_whole_and_portable(corpus, frozen, tuned):
    assert {path.name for path in frozen.folder.iterdir()} == {
        "params.json", "labels.txt", "documents", "tree", "features", "encoder", "ranker"
    }  # fmt: skip
    assert {path.name for path in tuned.folder.iterdir()} == {
        "params.json", "documents", "tree", "features", "encoder", "head", "ranker"
    }  # fmt: skip
    for model in (frozen, tuned):
        text = (model.folder / "params.json").read_text()
        assert str(corpus) not in text  # nothing absolute
        metadata = json.loads(text)
        assert (metadata["nr_labels"], metadata["nr_documents"], metadata["embedding_dim"]) == (LABELS, 160, 16)
        assert metadata["nr_features"] == model.tfidf.nr_features + 16
        assert {"tensorflow", "transformers", "numba", "xmc_tf"} <= set(metadata["versions"])
    assert frozen.names[0] == "library 1"


def test_vectors_that_are_kept_are_those_that_encode_gives(corpus, frozen, tmp_path):
    """Of length 1, though the rankers were given shorter ones."""
    model = tmp_path / "model"
    more = ["--no-fine-tune", "--embedding-weight", 0.3, "--save-emb-dir", tmp_path / "kept"]
    train.main(train_flags(corpus, model, *more))
    kept = np.load(tmp_path / "kept" / "X.trn.npy")
    np.testing.assert_allclose(kept, frozen.encode(texts_and_labels(corpus)[0]), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(kept, axis=1), 1, rtol=1e-6)
    assert json.loads((model / "params.json").read_text())["embedding_weight"] == 0.3


def test_a_frozen_model_is_rankers_on_tfidf_and_vectors(corpus, frozen, tmp_path):
    texts, Y = texts_and_labels(corpus)
    E = rows_of_length(1.0, vectors(frozen.folder, texts, tmp_path))
    tfidf = Tfidf.fit(texts, threads=1)
    X = Features(as_features(tfidf.transform(texts)).sparse, E)
    tree = build_tree(label_embedding("pifa", X, Y), frozen_tree_params(frozen))
    assert tree == frozen.tree
    params = RankerParams(hlm_args=LinearChainParams("tfn+man", LinearLevelParams(threshold=0.01)))
    rankers = train_rankers(X, Y, tree.to_chain(), params=params, threads=1)
    held_out, _ = texts_and_labels(corpus, "tst")
    F = rows_of_length(1.0, vectors(frozen.folder, held_out, tmp_path / "held-out"))
    expected = rankers.predict(
        Features(as_features(tfidf.transform(held_out)).sparse, F), beam_size=8, only_topk=5, threads=1
    )
    predicted = frozen.predict(held_out)
    assert [[label for label, _ in row] for row in rows_of(predicted)] == [
        [label for label, _ in row] for row in rows_of(expected)
    ]
    np.testing.assert_allclose(predicted.data, expected.data, atol=1e-5)
    np.testing.assert_allclose(frozen.encode(held_out), F, atol=1e-5)
    assert np.allclose(np.linalg.norm(F, axis=1), 1)


def test_the_rankers_are_mapped_from_their_layout(corpus, frozen, tmp_path, monkeypatch):
    """They have sparse and dense features."""
    monkeypatch.setattr(stored, "FEWEST_WEIGHTS", 1)
    folder = shutil.copytree(frozen.folder, tmp_path / "model")
    frozen.ranker.save(folder / "ranker")
    about = json.loads((folder / "params.json").read_text())
    (folder / "params.json").write_text(json.dumps({key: about[key] for key in about.keys() - {"files", "checksum"}}))
    mapped = XTransformer.load(folder)
    held_out, _ = texts_and_labels(corpus, "tst")
    assert (mapped.predict(held_out) != frozen.predict(held_out)).nnz == 0
    assert not any("weights" in vars(level) for level in mapped.ranker.levels)


def frozen_tree_params(model):
    return XTransformerParams.from_json(model.metadata.train_params).refined_indexer_params


def test_heads_and_rankers_together(corpus, tuned, tmp_path):
    texts, _ = texts_and_labels(corpus, "tst")
    raw = vectors(tuned.folder, texts, tmp_path)
    matcher = load_label_search(tuned.folder / "head")
    heads = matcher.to_labels(matcher.predict(raw, only_topk=5, beam_size=8, post_processor="l3-hinge"))
    by_heads = tuned.predict(texts, ensemble_method="transformer-only")
    assert [[label for label, _ in row] for row in rows_of(by_heads)] == [
        [label for label, _ in row] for row in rows_of(heads)
    ]
    np.testing.assert_allclose(by_heads.data, heads.data, atol=1e-4)
    rankers = tuned.predict(texts)
    assert rows_of(rankers) == rows_of(tuned.predict(texts, ensemble_method="concat-only"))
    pools = [tuned.predict(texts, only_topk=100, ensemble_method=one) for one in ("transformer-only", "concat-only")]
    for method in ("rank_average", "round_robin"):
        both = ensemble(method, pools)
        predicted = tuned.predict(texts, ensemble_method=method)
        assert np.diff(predicted.indptr).max() == 5
        for ours, whole in zip(rows_of(predicted), rows_of(both), strict=True):
            assert ours == [(label, pytest.approx(score, abs=1e-5)) for label, score in whole[:5]]


@pytest.mark.parametrize(
    ("loss", "said", "used"),
    [("cross-entropy", "noop", "sigmoid"), ("weighted-hinge", "noop", "l3-hinge"), ("hinge", "l1-hinge", "l1-hinge")],
)
def test_a_mean_takes_scores_of_one_scale(corpus, tuned, loss, said, used):
    texts, _ = texts_and_labels(corpus, "tst")
    content = tuned.metadata.to_json()
    content["train_params"]["matcher_params_chain"][-1]["loss_function"] = loss
    content["pred_params"]["matcher_params_chain"][-1]["post_processor"] = said
    model = XTransformer(tuned.parts, ModelMetadata(content), where=tuned.folder)
    heads = tuned.predict(texts, ensemble_method="transformer-only", post_processor=used, beam_size=8, only_topk=100)
    rankers = tuned.predict(texts, only_topk=100, ensemble_method="concat-only")
    for method in ("average", "root_average"):
        expected = ensemble(method, [heads, rankers])
        predicted = model.predict(texts, ensemble_method=method)
        for ours, whole in zip(rows_of(predicted), rows_of(expected), strict=True):
            assert [score for _, score in ours] == pytest.approx([score for _, score in whole[:5]], abs=1e-4)


def test_only_some_labels_whoever_scores_them(corpus, tuned, tmp_path, capsys):
    texts, _ = texts_and_labels(corpus, "tst")
    model = XTransformer.load(tuned.folder)
    model.set_output_constraint([1, 9, 17, 20])
    for method in ("concat-only", "transformer-only", "average", "root_average", "round_robin"):
        whole = tuned.predict(texts, ensemble_method=method, only_topk=99, beam_size=99).toarray()
        found = model.predict(texts, ensemble_method=method, only_topk=9, beam_size=4)
        assert set(found.indices) == {1, 9, 17, 20}
        if method != "round_robin":  # whose scores are places
            columns = np.array([1, 9, 17, 20])
            np.testing.assert_allclose(found.toarray()[:, columns], whole[:, columns], atol=1e-5)
    model.set_output_constraint(None)
    for method in ("concat-only", "transformer-only"):
        asked = tuned.predict(texts, ensemble_method=method, k=9, beam_size=4, only_labels=[1, 9, 17, 20])
        model.set_output_constraint([1, 9, 17, 20])
        assert rows_of(asked) == rows_of(model.predict(texts, ensemble_method=method, only_topk=9, beam_size=4))
        model.set_output_constraint(None)
    assert rows_of(model.predict(texts)) == rows_of(tuned.predict(texts))  # both are as they were
    (tmp_path / "only.txt").write_text("9\n17\n")
    predict.main(["-m", str(tuned.folder), "-q", "forest", "-k", "5", "--only-labels", str(tmp_path / "only.txt")])
    assert {line.split()[1] for line in capsys.readouterr().out.splitlines() if line} == {"9", "17"}


def test_a_matrix_in_pieces_and_options(corpus, tuned):
    texts, _ = texts_and_labels(corpus, "tst")
    whole = tuned.predict(texts, only_topk=3)
    assert np.diff(whole.indptr).tolist() == [3] * 60
    pieces = tuned.predict(texts, only_topk=3, max_pred_chunk=17)
    assert rows_of(pieces) == rows_of(whole)
    assert tuned.predict([]).shape == (0, LABELS)
    assert tuned.best(texts[:1], k=2)[0][0][0] == str(whole.indices[0])
    refused("only_topk is out of range", tuned.predict, texts, only_topk=0)


def test_given_features_stand_before_the_vector(corpus, tmp_path, capsys):
    flags = ["-x", corpus / "X.trn.npz", "--no-fine-tune", "-tt", corpus / "X.tst.txt", "-yt", corpus / "Y.tst.npz"]
    refused("same kind of features", run_train, corpus, tmp_path / "m", *flags)
    flags += ["-xt", corpus / "X.tst.npz", "--fix-clustering", "--layout", "pecos"]
    model = run_train(corpus, tmp_path / "m", *flags)
    printed = r"^==== evaluation results ====\nprec   = [\d. ]+\nrecall = [\d. ]+$"
    assert re.search(printed, capsys.readouterr().out, re.MULTILINE)
    assert (model.nr_given_features, model.ranker.nr_features, model.ranker.nr_dense) == (30, 46, 16)
    texts, Y = texts_and_labels(corpus, "tst")
    X = load_matrix(corpus / "X.tst.npz")
    assert (Y.toarray()[np.arange(60), model.predict(texts, X, only_topk=1).indices] > 0).mean() > 0.9
    refused("30 features", model.predict, texts)
    refused("do not fit the model", model.predict, texts, X[:, :20])


def test_text_alone(corpus, tmp_path):
    model = run_train(corpus, tmp_path / "m", "--no-fine-tune", "--text-only", "--fix-clustering")
    assert "features" not in model.parts
    assert (model.ranker.nr_sparse, model.ranker.nr_dense) == (0, 16)
    texts, _ = texts_and_labels(corpus, "tst")
    assert np.diff(model.predict(texts).indptr).max() == 5
    refused("computes its features from the texts", model.predict, texts, load_matrix(corpus / "X.tst.npz"))


def test_label_features_make_the_first_tree(corpus, tmp_path):
    order = np.random.default_rng(3).permutation(LABELS)
    np.save(tmp_path / "Z.npy", np.eye(LABELS, dtype=np.float32)[order])
    run_train(corpus, tmp_path / "m", "--only-encoder", "--no-fine-tune", "--fix-clustering", "--label-feat-path",
              tmp_path / "Z.npy")  # fmt: skip
    expected = build_tree(np.eye(LABELS, dtype=np.float32)[order], HierarchicalKMeansParams(4, max_leaf_size=6))
    assert load_chain(tmp_path / "m" / "tree") == expected


def test_the_api_gives_what_the_command_gives(corpus, frozen, tmp_path):
    texts, Y = texts_and_labels(corpus)
    params = XTransformerParams.from_json(frozen.metadata.train_params)
    encoder = {"model_shortcut": str(corpus / "encoder")}
    params = XTransformerParams.from_json(
        {**params.to_json(), "matcher_params_chain": {**params.matcher_params_chain.to_json(), **encoder}}
    )
    pred_params = XTransformerPredParams.from_json(frozen.metadata.pred_params)
    held_out, truth = texts_and_labels(corpus, "tst")
    expected = frozen.predict(held_out)
    run = TrainingRun(work_dir=tmp_path / "work", threads=1)
    model = XTransformer.train(list(texts), Y, names=frozen.names, params=params, pred_params=pred_params, run=run)
    assert model.names == frozen.names
    assert rows_of(model.predict(held_out, beam_size=8, only_topk=5)) == rows_of(expected)
    model.save(tmp_path / "m")
    loaded = XTransformer.load(tmp_path / "m")
    assert rows_of(loaded.predict(held_out, beam_size=8, only_topk=5)) == rows_of(expected)
    found = loaded.evaluate(held_out, [[frozen.names[label] for label in row.indices] for row in truth], ks=(1, 3))
    assert found.at("P", 3) == evaluate(truth, loaded.predict(held_out)).at("P", 3)


def test_a_tree_may_be_given(corpus, tmp_path):
    texts, Y = texts_and_labels(corpus)
    order = np.random.default_rng(3).permutation(LABELS)
    Z = np.eye(LABELS, dtype=np.float32)[order]
    indexer = HierarchicalKMeansParams(4, max_leaf_size=6)
    expected = build_tree(Z, indexer)
    params = XTransformerParams(
        indexer, matcher_params_chain=MatcherParams(model_shortcut=str(corpus / "encoder")), do_fine_tune=False,
        only_encoder=True, fix_clustering=True,
    )  # fmt: skip
    prediction = XTransformerPredParams(MatcherPredParams(truncate_length=16))
    run = TrainingRun(work_dir=tmp_path / "work")
    model = XTransformer.train(texts, Y, tree=expected, params=params, pred_params=prediction, run=run)
    assert model.tree == expected


def test_what_a_model_cannot_do_is_said(corpus, frozen, tmp_path):
    texts, _ = texts_and_labels(corpus, "tst")
    refused("its encoder was not fine-tuned", frozen.predict, texts, ensemble_method="average")
    refused("needs a label head", run_train, corpus, tmp_path / "m", "--no-fine-tune", "--ensemble-method", "average")
    about = {"format": "xmc_tf.model", "version": 1}
    (tmp_path / "params.json").write_text(json.dumps({**about, "model": "XLinear"}))
    refused("is not an XR-Transformer model", XTransformer.load, tmp_path)
    (tmp_path / "params.json").write_text(json.dumps({**about, "model": "XTransformer", "nr_labels": 3}))
    refused("encoder/ is missing", XTransformer.load, tmp_path)
    refused("does not exist", XTransformer.load, tmp_path / "nothing")


def test_a_model_has_a_short_name_and_is_pickled_by_its_folder(corpus, tuned):
    texts, _ = texts_and_labels(corpus, "tst")
    expected = tuned.predict(texts)
    content = pickle.dumps(tuned)
    assert len(content) < 100_000
    assert (pickle.loads(content).predict(texts) != expected).nnz == 0
    for thing in (tuned, tuned.encoder, tuned.matcher, tuned.ranker, tuned.tfidf):
        assert re.fullmatch(rf"{type(thing).__name__}\(.{{5,150}}\)", repr(thing)), repr(thing)
    again = pickle.loads(pickle.dumps(tuned.tfidf))  # by content
    assert (again.transform(texts) != tuned.tfidf.transform(texts)).nnz == 0
    temporary = XTransformer(tuned.parts, tuned.metadata, where=tuned.folder, temp_dir=object())
    with pytest.raises(TypeError, match=r"fix: save it"):
        pickle.dumps(temporary)


def test_an_encoder_without_rankers_and_from_where_an_interrupted_training_resumes(
    corpus, tmp_path, monkeypatch, caplog
):
    """Ctrl-C as soon as the second checkpoint is written; then the same command, to the end."""
    save, saved, hints = fine_tune.save_training, [], []

    def interrupting(*arguments, **options):
        if len(saved) == 2:
            raise KeyboardInterrupt
        saved.append(save(*arguments, **options))

    flags = train_flags(
        corpus, tmp_path / "m", "--only-encoder", "--code-path", corpus / "C.npz", "--max-match-clusters", 7,
        "--max-steps", 16, "--steps-scale", 0.5, "--save-steps", 2,
    )  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr(fine_tune, "save_training", interrupting)
        patched.setattr(cli, "on_interrupt", hints.append)
        with pytest.raises(KeyboardInterrupt):
            train.main(flags)
    assert [hint() for hint in hints] == ["Rerun the command to resume from fine-tuning, level 1, step 4 of 8."]
    caplog.clear()
    caplog.set_level("INFO", logger="xmc_tf")
    train.main(flags)
    assert "step 4" in caplog.text
    assert "step 2 of 8" not in caplog.text

    model = XTransformer.load(tmp_path / "m")
    assert {path.name for path in model.folder.iterdir()} == {"params.json", "documents", "tree", "encoder", "head"}
    assert model.matcher.level == 1  # 4 nodes, and not the 8 below them
    texts, _ = texts_and_labels(corpus, "tst")
    assert model.encode(texts).shape == (60, 16)
    refused("is above the labels", model.predict, texts)
    refused("trained with only_encoder", model.predict, texts, ensemble_method="concat-only")


@pytest.mark.parametrize(
    ("loss", "in_file", "head_of_labels", "chosen"),
    [
        ("cross-entropy", None, True, "root_average"),
        ("cross-entropy", None, False, "concat-only"),  # a head of clusters scores no labels
        ("weighted-squared-hinge", None, True, "concat-only"),  # margins are no probabilities
        ("weighted-squared-hinge", "average", True, "average"),
        ("cross-entropy", "transformer-only", True, "concat-only"),  # PECOS's files mean the levels by it
        ("cross-entropy", "rank_average", True, "rank_average"),
    ],
)
def test_what_files_say_or_what_the_loss_allows(loss, in_file, head_of_labels, chosen):
    recipe = Recipe(
        params=XTransformerParams(matcher_params_chain=MatcherParams(loss_function=loss)),
        pred_params=XTransformerPredParams(matcher_params_chain=MatcherPredParams(ensemble_method=in_file)),
    )
    assert chosen_method(recipe, head_of_labels) == chosen


@pytest.mark.parametrize("method", ["concat-only", "average"])
def test_scores_of_rankers_that_there_are_not(method):
    with pytest.raises(InputError, match=f"{method} needs rankers(.|\n)*--only-encoder"):
        Recipe(XTransformerParams(only_encoder=True), prediction=PredictionOptions(ensemble_method=method))


def test_the_embedding_and_the_words_add_up(corpus, frozen):
    text = texts_and_labels(corpus, "tst")[0][0]
    found = frozen.explain(text, k=3)
    assert [(one.name, pytest.approx(one.score)) for one in found.labels] == frozen.best([text], k=3)[0]
    for label in found.labels:
        (tree,) = label.evidence
        assert tree.score == pytest.approx(label.score, rel=1e-4)
        for node in tree.path:
            total = sum(one.amount for one in node.contributions) + node.embedding + node.bias
            assert total == pytest.approx(node.raw)
            assert node.embedding != 0
    assert "embedding" in found.to_text()


@pytest.mark.parametrize("method", ["average", "root_average", "transformer-only", "concat-only"])
def test_label_head_and_tree_are_the_sources_that_the_method_uses(corpus, tuned, method):
    text = texts_and_labels(corpus, "tst")[0][1]
    tuned.metadata = tuned.metadata.replace(ensemble_method=method)
    label = tuned.explain(text, k=1).labels[0]
    assert (label.label, label.score) == (
        pytest.approx(tuned.predict([text], only_topk=1).indices[0]),
        pytest.approx(tuned.predict([text], only_topk=1).data[0]),
    )
    sources = {one.source: one.score for one in label.evidence}
    expected = {"transformer-only": ["label head"], "concat-only": ["tree"]}
    assert list(sources) == expected.get(method, ["label head", "tree"])
    power = 0.5 if method == "root_average" else 1
    mean = (sum(score**power for score in sources.values()) / len(sources)) ** (1 / power)
    assert mean == pytest.approx(label.score, rel=1e-4)
    assert sum(share.amount for share in label.shares) == pytest.approx(label.score, rel=1e-4)
    assert [share.source for share in label.shares] == list(sources)
