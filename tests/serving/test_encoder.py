"""An exported model with an encoder: text to labels in one graph, as the fine-tuned model itself predicts."""

import shutil
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from tests.encoder.folders import add_modules, dense
from tests.encoder.tiny import tiny_encoder
from tests.encoder.vocabularies import byte_pairs, sentencepiece
from tests.pipeline.corpus import run_train, texts_and_labels
from tests.plain_tensorflow import TEXT_OPERATIONS, ask_in_batches, foreign_operations, nodes
from tests.refusals import refused
from tests.serving.cases import HARD, assert_same
from tests.serving.test_export import WAYS
from xmc_tf import export
from xmc_tf.data import load_matrix, save_matrix
from xmc_tf.encoder import Encoder, TextTokenizer
from xmc_tf.fusion import hidden_labels
from xmc_tf.fusion.weighted_numbers import NAMES
from xmc_tf.matcher.matcher import Matcher
from xmc_tf.models import prediction
from xmc_tf.models.saved_model import parts_of
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.pipeline.held_out import held_out_documents
from xmc_tf.serving.local import LocalModel
from xmc_tf.tree import show

pytestmark = pytest.mark.full

NEW, HELD_OUT = 2, 5  # a label without documents, and one that only held-out documents have


@pytest.fixture(scope="module")
def corpus(encoder_corpus):
    """Return texts, labels, and a tiny encoder."""
    return encoder_corpus


@pytest.fixture(scope="module")
def trained(corpus):
    """Return a model of TF-IDF, encoder and rankers, which reads long texts in windows."""
    flags = ("--no-fine-tune", "--labels", corpus / "labels.txt", "--long-texts", "max")
    return run_train(corpus, corpus / "windows", *flags)


@pytest.fixture(scope="module")
def served(trained, corpus):
    """Return its export by the command."""
    folder = corpus / "served" / "1"
    export.main(["-m", str(trained.folder), "-o", str(folder), "-k", "5", "-b", "8"])
    return folder


def texts_of(corpus):
    """Return hard texts, and the held-out ones."""
    held_out, _ = texts_and_labels(corpus, "tst")
    # A word as long as the longest text has no tokens that matter here, and takes its time.
    return [*HARD[:-1], *list(held_out.lines())[:40]]


def test_plain_tensorflow_answers_as_the_fine_tuned_model_does(trained, served, corpus):
    texts = texts_of(corpus)
    assert foreign_operations(served) <= TEXT_OPERATIONS
    assert not [node.op for node in nodes(served) if "PyFunc" in node.op]
    expected = trained.predict(texts, only_topk=5, beam_size=8, threads=1)
    for size, session in WAYS:
        answers = ask_in_batches(served, texts, size, session=session)
        assert_same(answers["labels"], answers["scores"], expected)


def test_embeddings_can_be_requested(trained, served, corpus):
    texts = texts_of(corpus)
    found = LocalModel(served).ask(texts, "embed")["embedding"]
    np.testing.assert_allclose(found, trained.encode(texts), atol=1e-5)
    assert LocalModel(served).ask([], "embed")["embedding"].shape == (0, 16)


def test_modules_and_prompt_of_an_encoder_reach_the_model_and_its_exports(corpus, tmp_path, capsys):
    encoder = shutil.copytree(corpus / "encoder", tmp_path / "encoder")
    add_modules(encoder, {"pooling_mode": "mean"}, [dense(16, 6), None], {"prompts": {"document": "word: "}})
    flags = ("--model-shortcut", encoder, "--train-layers", 1, "--work-dir", tmp_path / "work")
    model = run_train(corpus, tmp_path / "m", *flags)
    capsys.readouterr()
    show.main([str(model.folder)])
    assert "encoder: pooling mean, dense 16 > 6, prompt 'word: '" in capsys.readouterr().out
    moved = model.tensorflow_encoder.weights["after.0.kernel"] - Encoder.load(encoder).weights["after.0.kernel"]
    assert np.abs(moved).max() > 1e-5, "fine-tuning trains the Dense module"
    texts = texts_of(corpus)[-20:]
    expected = model.encode(texts)
    assert expected.shape == (20, 6)
    model.tokenizer = TextTokenizer.load(corpus / "encoder")
    assert np.abs(model.encode(texts) - expected).max() > 1e-3, "the prompt counts"
    model = XTransformer.load(model.folder)
    model.export_onnx(tmp_path / "onnx")
    np.testing.assert_allclose(XTransformer.load(tmp_path / "onnx").encode(texts), expected, atol=1e-5)
    export.main(["-m", str(model.folder), "-o", str(tmp_path / "served" / "1"), "-k", "5", "-b", "8"])
    served = LocalModel(tmp_path / "served" / "1")
    np.testing.assert_allclose(served.ask(texts, "embed")["embedding"], expected, atol=1e-5)
    answers = served.ask(texts)
    assert_same(answers["labels"], answers["scores"], model.predict(texts, only_topk=5, beam_size=8, threads=1))


@pytest.mark.parametrize(("architecture", "tokenizer"), [("qwen3", byte_pairs), ("t5", sentencepiece)])
def test_encoders_with_other_tokenizers_are_exported_whole(corpus, tmp_path, architecture, tokenizer):
    """Byte pairs, and pieces with a token at the end only, become ids in the graph, before the encoder and the head."""
    made = tokenizer(architecture)
    made.save_pretrained(tmp_path / "encoder")
    tiny_encoder(architecture, vocab_size=len(made), max_position_embeddings=300).save(tmp_path / "encoder")
    flags = ("--model-shortcut", tmp_path / "encoder", "--work-dir", tmp_path / "work")
    model = run_train(corpus, tmp_path / "m", *flags)
    export.main(["-m", str(model.folder), "-o", str(tmp_path / "served" / "1"), "-k", "5", "-b", "8"])
    served, texts = LocalModel(tmp_path / "served" / "1"), texts_of(corpus)
    np.testing.assert_allclose(served.ask(texts, "embed")["embedding"], model.encode(texts), atol=1e-5)
    answers = served.ask(texts)
    assert_same(answers["labels"], answers["scores"], model.predict(texts, only_topk=5, beam_size=8, threads=1))


def test_tokens_are_what_a_caller_may_send_instead(trained, served, corpus):
    tokenizer = trained.tokenizer
    held_out = texts_and_labels(corpus, "tst")[0].lines()
    texts = [text for text in held_out if len(tokenizer.tokenize([text], 99)[0]) <= 16][:6]
    assert len(texts) == 6
    tokens = tokenizer.tokenize(texts, 16)
    longest = max(map(len, tokens))
    token_ids, mask = np.zeros((6, longest), np.int32), np.zeros((6, longest), np.int32)
    for row, one in enumerate(tokens):
        token_ids[row, : len(one)], mask[row, : len(one)] = one, 1
    ids, weights = trained.tfidf.graph().padded(tf.constant(texts))
    signature = tf.saved_model.load(str(served)).signatures["features"]
    common = {"feature_ids": ids, "feature_weights": weights, "token_mask": tf.constant(mask)}
    expected = LocalModel(served).ask(texts)
    for wider in (0, 3):  # as a server pads them, with zeros
        padded = {name: tf.pad(value, [[0, 0], [0, wider]]) for name, value in common.items()}
        out = signature(token_ids=tf.pad(token_ids, [[0, 0], [0, min(wider, 16 - longest)]]),
                        **padded | {"token_mask": tf.pad(mask, [[0, 0], [0, min(wider, 16 - longest)]])})  # fmt: skip
        np.testing.assert_array_equal(out["labels"], expected["labels"])
        np.testing.assert_allclose(out["scores"], expected["scores"], atol=1e-5)
    for wrong, message in (
        ({"token_ids": tf.fill([6, longest], 10_000)}, "token_ids must lie between 0 and"),
        (
            {"token_ids": tf.zeros([6, 257], tf.int32), "token_mask": tf.zeros([6, 257], tf.int32)},
            "at most 256 columns",
        ),
        ({"token_ids": tf.zeros([6, longest - 1], tf.int32)}, "must have the same shape"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            signature(**{"token_ids": tf.constant(token_ids)} | common | wrong)


@pytest.fixture(scope="module")
def tuned(corpus):
    """Return a model that also uses its label head, truncates long texts, and has a label without documents."""
    Y = load_matrix(corpus / "Y.trn.npz").tolil()
    nr_documents = Y.shape[0]
    Y[:, NEW] = 0
    Y[np.setdiff1d(np.arange(nr_documents), held_out_documents(nr_documents, seed=0, fine_tuned=True)), HELD_OUT] = 0
    save_matrix(corpus / "Y.new.npz", Y.tocsr())
    flags = ("--labels", corpus / "labels.txt", "-y", corpus / "Y.new.npz", "--ensemble-method", "root_average")
    with (
        mock.patch.object(prediction, "blend", wraps=prediction.blend) as blend,
        mock.patch.object(Matcher, "train", wraps=Matcher.train) as fine_tune,
    ):
        model = run_train(corpus, corpus / "named-too", *flags)
    rows = fine_tune.call_args.args[2].rows
    assert rows[rows >= nr_documents].tolist() == [nr_documents + label for label in range(24) if label != NEW]
    ranked_alone = blend.call_args.args[-1]  # in the fit of the probabilities
    hidden = hidden_labels(np.arange(24) != NEW, 0)
    assert Y[:, HELD_OUT].nnz
    assert not hidden[HELD_OUT]
    assert np.flatnonzero(ranked_alone).tolist() == sorted([NEW, HELD_OUT, *np.flatnonzero(hidden)])
    return model


def test_the_mean_of_head_and_rankers(tuned, corpus):
    assert tuned.metadata.ensemble_method == "root_average"
    assert np.flatnonzero(tuned.new_to_head).tolist() == [NEW]
    folder = corpus / "served" / "2"
    export.main(["-m", str(tuned.folder), "-o", str(folder), "-k", "24", "-b", "8"])
    texts = texts_of(corpus)
    assert foreign_operations(folder) <= TEXT_OPERATIONS
    expected = tuned.predict(texts, only_topk=24, beam_size=8, threads=1)
    assert NEW in expected.indices
    assert (expected != tuned.predict(texts, only_topk=24, beam_size=8, ensemble_method="concat-only")).nnz
    local = LocalModel(folder)
    for size in (7, len(texts)):
        answers = [local.ask(texts[first : first + size]) for first in range(0, len(texts), size)]
        labels, scores = (np.concatenate([one[name] for one in answers]) for name in ("labels", "scores"))
        assert_same(labels, scores, expected)


def test_explained_shares_add_up_to_the_probability(tuned, corpus, monkeypatch):
    fusion, named = tuned.evidence.fusion, []
    weights = fusion.weights + 2.0 * (np.array(NAMES) == "whole name")  # the texts of the training lacked names
    monkeypatch.setattr(tuned.evidence, "fusion", replace(fusion, weights=weights))
    for name, text in zip(tuned.names, texts_of(corpus)[:4], strict=False):
        for label in tuned.explain(f"{name} {text}", k=24).labels:
            assert sum(share.amount for share in label.shares) == pytest.approx(label.score, abs=1e-6)
            assert {share.source for share in label.shares} <= {"label head", "tree", "label name"}
            named += [share.amount for share in label.shares if share.source == "label name"]
    assert max(named) > 1e-3


def test_labels_without_documents_are_scored_by_the_rankers_alone(tuned, corpus, tmp_path):
    texts = list(texts_and_labels(corpus, "tst")[0].lines())
    options = {"only_topk": 24, "scores": "ranker", "post_processor": "sigmoid"}
    mean, rankers, head = (
        tuned.predict(texts, ensemble_method=method, **options).toarray()
        for method in ("root_average", "concat-only", "transformer-only")
    )
    np.testing.assert_allclose(mean[:, NEW], rankers[:, NEW], rtol=1e-5)
    assert not np.allclose(head[:, NEW], rankers[:, NEW], rtol=0.01)
    others = np.delete(np.arange(24), NEW)
    np.testing.assert_allclose(mean[:, others], (np.sqrt(rankers) + np.sqrt(head))[:, others] ** 2 / 4, rtol=1e-5)
    tuned.export(tmp_path / "1", only_topk=24, scores="ranker", post_processor="sigmoid")
    np.testing.assert_allclose(LocalModel(tmp_path / "1").predict(texts).toarray(), mean, atol=1e-5)
    for label in tuned.explain(texts[0], k=24).labels:
        assert ("label head" in [one.source for one in label.evidence]) == (label.label != NEW)


def test_other_ensembles_are_not_exported(tuned, tmp_path):
    model = XTransformer(tuned.parts, tuned.metadata.replace(ensemble_method="round_robin"), where=tuned.folder)
    refused("the ensemble method round_robin cannot be exported", model.export, tmp_path / "1")
    refused("the ensemble method round_robin cannot be exported", parts_of, model)
