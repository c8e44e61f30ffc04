"""Label names as evidence beside an encoder: held-out documents, stages, predictions, the export."""

import re

import numpy as np
import pytest

from tests.pipeline.corpus import LABELS, made_stages, run_train, texts_and_labels
from tests.refusals import refused
from tests.serving.cases import assert_export_answers
from xmc_tf.fusion import Fusion
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.params import XTransformerParams
from xmc_tf.pipeline.held_out import held_out_documents
from xmc_tf.pipeline.inputs import Documents, Recipe, TrainingInputs


@pytest.fixture(scope="module")
def named(corpus):
    """A fine-tuned model with label names; the encoder is not trained on the held-out documents."""
    return run_train(corpus, corpus / "named", "--labels", corpus / "labels.txt")


def test_the_model_predicts_probabilities(corpus, named):
    texts, _ = texts_and_labels(corpus, "tst")
    assert {"label_names", "fusion"} <= {path.name for path in named.folder.iterdir()}
    assert Fusion.load(named.folder / "fusion").nr_held_out == len(held_out_documents(160, 0, fine_tuned=True)) == 40
    found, scores = named.predict(texts), named.predict(texts, scores="ranker")
    assert np.diff(found.indptr).tolist() == [5] * 60
    assert ((found.data > 0) & (found.data < 1)).all()
    assert (found != scores).nnz
    few = named.predict(texts, threshold=0.2)
    assert 0 < few.nnz == (found.data >= 0.2).sum() < found.nnz
    refused("post-processor does not apply", named.predict, texts, scores="probability", post_processor="sigmoid")


def test_finished_stages_are_kept(corpus, named, caplog):
    caplog.set_level("INFO")
    run_train(corpus, corpus / "again", "--labels", corpus / "labels.txt")
    assert made_stages(caplog.text) == []
    for part in ("label_names/names.npz", "fusion/fusion.json", "fusion/centers.npy"):
        assert (corpus / "again" / part).read_bytes() == (named.folder / part).read_bytes()


@pytest.mark.parametrize(
    ("count", "tuned", "as_it_is"), [(19, 0, 0), (800, 200, 200), (3000, 300, 750), (10**6, 20_000, 20_000)]
)
def test_fine_tuning_leaves_enough_documents(count, tuned, as_it_is):
    for fine_tuned, expected in ((True, tuned), (False, as_it_is)):
        assert len({*held_out_documents(count, 0, fine_tuned=fine_tuned).tolist()}) == expected


def test_names_are_needed(corpus):
    refused("label names cannot be used", run_train, corpus, corpus / "none", "--no-fine-tune", "--label-names", "true")


def test_probabilities_without_names(corpus, caplog, tmp_path):
    caplog.set_level("INFO")
    plain = run_train(corpus, corpus / "plain", "--no-fine-tune")
    assert plain.evidence is None
    assert "not calibrated probabilities: without label names, an encoder is trained on all documents" in caplog.text
    assert plain.metadata.content["no_probabilities"].startswith("without label names, an encoder is trained on all")
    model = run_train(corpus, corpus / "probable", "--no-fine-tune", "--probabilities", "true")
    assert not (model.folder / "label_names").exists()
    texts, _ = texts_and_labels(corpus, "tst")
    found = model.predict(texts)
    assert ((found.data > 0) & (found.data < 1)).all()
    assert (model.predict(texts, scores="ranker") != plain.predict(texts)).nnz == 0
    explained = model.explain(texts[0], k=2)
    assert [label.score for label in explained.labels] == pytest.approx(found[0].data[:2].tolist(), abs=1e-6)
    assert {label.combined for label in explained.labels} == {"probability from rankers and the encoder"}
    assert_export_answers(model, tmp_path / "1", list(texts.lines()), only_topk=5)


@pytest.mark.full
def test_several_trees_share_the_evidence_of_two(corpus, tmp_path):
    flags = ["--no-fine-tune", "--trees", 3, "--labels", corpus / "labels.txt"]
    model = run_train(corpus, corpus / "trees", *flags)
    texts, _ = texts_and_labels(corpus, "tst")
    assert [tree.nr_labels for tree in (model.tree, *model.more_trees)] == [24] * 3
    assert [path.name for path in (corpus / "work" / "held-out" / "ensemble").iterdir()] == ["1"]
    again = XTransformer.load(corpus / "trees")
    assert (again.predict(texts) != model.predict(texts)).nnz == 0
    assert_export_answers(model, tmp_path / "served" / "1", list(texts.lines()), only_topk=5)


def test_an_effort_chooses_the_trees_of_the_rankers(corpus):
    inputs = TrainingInputs(Documents(*texts_and_labels(corpus)))
    recipe = Recipe(effort="balanced").for_data(150_000, 16_000)
    trees = recipe.params.ranker_trees
    assert (len(trees), {tree.max_leaf_size for tree in trees}) == (4, {100, 400})
    assert recipe.params.preliminary_indexer_params == Recipe().params.preliminary_indexer_params
    assert recipe.params.ranker_params == Recipe().params.ranker_params
    few = Recipe(effort="best").for_data(inputs.documents.nr_documents, inputs.documents.nr_labels)
    assert len(few.params.ranker_trees) == 1
    for flags, message in (
        (["--effort", "best", "--trees", 2], "cannot be combined"),
        (["--effort", "fast"], "effort 'fast' and nr-splits"),
        (["--only-encoder", "--trees", 2], "--trees and --only-encoder are mutually exclusive"),
    ):
        refused(message, run_train, corpus, corpus / "none", "--no-fine-tune", *flags)
    refused("there are no rankers", Recipe, XTransformerParams(only_encoder=True), effort="fast")


def test_a_head_that_does_harm_is_left_out(corpus, caplog):
    caplog.set_level("INFO")
    flags = ["--labels", corpus / "labels.txt", "--max-match-clusters", LABELS, "--loss-function", "cross-entropy"]
    model = run_train(corpus, corpus / "harmful", *flags, "--learning-rate", 1e-9)
    with_head, without = map(
        float, re.search(r"documents: ([\d.]+) with .*, ([\d.]+) without it", caplog.text).groups()
    )
    assert with_head < without
    assert "it is left out" in caplog.text
    assert model.metadata.ensemble_method == "concat-only"
