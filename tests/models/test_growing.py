"""Documents appended to a linear model: exact and adjusted weights, new labels, errors, and the command."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csc_matrix, csr_matrix

from tests.files import contents, largest_file
from tests.label_names.cases import many
from tests.linear.cases import ranker_params
from tests.refusals import refused
from xmc_tf.append import main as append_command
from xmc_tf.data import as_features
from xmc_tf.labels.merge import main as merge_command
from xmc_tf.labels.remove import main as remove_command
from xmc_tf.models.folder import CARD, MARK
from xmc_tf.models.incremental.training_data import TrainingData
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import HierarchicalKMeansParams, RankerParams, TfidfParams, XRLinearParams, several_trees
from xmc_tf.rankers.ensemble import trees_of
from xmc_tf.rankers.fit import train_rankers
from xmc_tf.rankers.incremental.kernels import adjust_labels
from xmc_tf.rankers.kernels.gather import Positives, SolverSettings

FEW = slice(290, 293)
TREE = HierarchicalKMeansParams(nr_splits=4, max_leaf_size=4)


@pytest.fixture(scope="module")
def data():
    names, texts, Y = many()
    alone = [names.count(name) == 1 for name in names]
    names = [name if alone[number] else f"{name} {number}" for number, name in enumerate(names)]
    return names, texts, csr_matrix(Y)


@pytest.fixture(scope="module")
def model(data):
    names, texts, Y = data
    ranker = ranker_params(
        Cp=0.8, Cn=0.9, bias=2.0, eps=0.05, max_iter=50, threshold=0.05, max_nonzeros_per_label=100,
    )  # fmt: skip
    # By default, words of a single document are features if documents are few; an exact training remembers them better.
    params = XRLinearParams(tree=several_trees(TREE, 2), ranker=ranker, tfidf=TfidfParams(min_df=3))
    return XRLinear.train(texts[:290], Y[:290], names=names, params=params, threads=1, keep_training_data=True)


def weights(model):
    """Return the weights of all levels of all trees."""
    return [level.weights for ranker in trees_of(model.ranker) for level in ranker.levels]


def trained_on_its_trees(model):
    """Return the weights of a training on all data of a model with its trees."""
    training, params = model.training_data, RankerParams.from_json(model.metadata.train_params)
    return [
        level.weights
        for tree in (model.tree, *model.more_trees)
        for level in train_rankers(as_features(training.X), training.Y, tree.to_chain(), params=params).levels
    ]


def same(one, other):
    """Return whether two matrices have the same bytes."""
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("indptr", "indices", "data"))


def test_exact_weights_are_those_of_a_training_with_the_same_trees(model, data):
    _, texts, Y = data
    grown = model.with_documents(texts[FEW], Y[FEW], exact=True, threads=2)
    assert all(map(same, weights(grown), trained_on_its_trees(grown)))
    assert not any(map(same, weights(grown), weights(model)))
    assert grown.metadata.content["nr_documents"] == 293
    assert np.array_equal(
        np.rint(np.expm1(grown.evidence.fusion.log_documents)), np.asarray(Y[:293].sum(axis=0)).ravel()
    )


def test_adjusted_weights_do_not_depend_on_threads_and_change_only_touched_clusters(model, data):
    _, texts, Y = data
    grown, again = (model.with_documents(texts[FEW], Y[FEW], threads=threads) for threads in (1, 3))
    assert all(map(same, weights(grown), weights(again)))
    clusters = model.ranker.models[0].levels[-1].clusters
    touched = np.asarray((Y[FEW] @ clusters).sum(axis=0)).ravel() > 0
    changed = abs(weights(grown)[2] - weights(model)[2]).max(axis=0).toarray().ravel() > 0
    labels = np.asarray(clusters @ touched.astype(float)).ravel() > 0
    assert 0 < touched.sum() < len(touched)
    assert not changed[~labels].any()
    assert changed[labels].sum() > labels.sum() / 2


def test_adjusted_models_know_their_new_documents(model, data):
    _, texts, Y = data
    texts, Y = texts[290:], Y[290:]
    before, after = (
        one.evaluate(texts, Y, rows="all").at("nDCG", 3) for one in (model, model.with_documents(texts, Y))
    )
    exact = model.with_documents(texts, Y, exact=True).evaluate(texts, Y, rows="all").at("nDCG", 3)
    assert before < exact - 0.02 < after


def test_the_kernel_minimizes_its_objective():
    rng = np.random.default_rng(0)
    X = csr_matrix(np.where(rng.random((30, 12)) < 0.4, rng.random((30, 12)), 0).astype(np.float32))
    earlier, rows = np.arange(20, dtype=np.int32), np.arange(20, 30, dtype=np.int32)
    sign = np.where(np.arange(10) % 3, -1.0, 1.0)
    positives = Positives(np.array([0, 4]), rows[sign > 0], np.zeros(0, np.float32))
    old = csc_matrix(rng.normal(size=(13, 1)).astype(np.float32))
    settings = SolverSettings(2.0, 0.5, 1.0, 1e-7, 10_000, 0.0, 0)
    columns = adjust_labels(
        X.indptr.astype(np.int64), X.indices, X.data, earlier, rows, np.zeros(1, np.int64), positives,
        old.indptr.astype(np.int64), old.indices, old.data, np.zeros(12, np.int32), settings, True,
    )  # fmt: skip
    held = 1 + 0.5 * np.append(np.square(X[:20].toarray()).sum(axis=0), 20)
    new, v = np.column_stack([X[20:].toarray(), np.ones(10)]), old.toarray().ravel().astype(np.float64)

    def objective(w):
        loss = np.where(sign > 0, 2.0, 0.5) * np.maximum(0, 1 - sign * (new @ w)) ** 2
        return 0.5 * (held * (w - v) ** 2).sum() + loss.sum()

    best = minimize(objective, v, method="BFGS", options={"gtol": 1e-9}).x
    found = np.zeros(13)
    found[columns.features[: columns.indptr[1]]] = columns.weights[: columns.indptr[1]]
    assert np.allclose(found, best, atol=1e-4)
    assert not np.allclose(v, best, atol=0.05)


@pytest.mark.parametrize("exact", [False, True])
def test_new_labels_come_with_their_documents(model, data, exact, tmp_path):
    names, texts, _ = data
    documents = ["quantum rockets", "rockets of quantum steel", texts[0]]
    labels = [["rocketry", names[3]], ["rocketry"], ["archery", names[7]]]
    grown = model.with_documents(documents, labels, new_labels=True, exact=exact)
    assert grown.names == [*names, "archery", "rocketry"]
    assert (grown.nr_labels, grown.metadata.nr_labels, grown.tree.nr_labels) == (42, 42, 42)
    if exact:
        assert all(map(same, weights(grown), trained_on_its_trees(grown)))
    # Not by their names alone.
    for ranker in trees_of(grown.ranker):
        assert ranker.levels[-1].weights.tocsc()[:, 40:].getnnz(axis=0).all()
    assert grown.best(["all about rocketry"], k=1)[0][0][0] == "rocketry"
    assert grown.best(["archery"], k=1, scores="probability")[0][0][0] == "archery"
    grown.save(tmp_path / "grown")
    loaded = XRLinear.load(tmp_path / "grown")
    assert (loaded.predict(texts) != grown.predict(texts)).nnz == 0
    assert loaded.with_documents(documents[:1], labels[:1]).training_data.nr_documents == 294


def test_new_labels_are_placed_beside_similar_ones(model, data):
    _, texts, Y = data
    label = int(np.asarray(Y[:290].sum(axis=0)).argmax())
    own = [texts[row] for row in Y[:290, label].nonzero()[0]]
    grown = model.with_documents(own, [["twin"]] * len(own), new_labels=True)
    for tree in (grown.tree, *grown.more_trees):
        assert tree.path(40) == tree.path(label)


def test_label_matrices_may_have_further_columns(model, data):
    _, texts, _ = data
    more = csr_matrix((np.ones(3), ([0, 1, 2], [3, 41, 41])), shape=(3, 42))
    grown = model.with_documents(texts[FEW], more, new_labels=["no documents", "two documents"])
    assert grown.names[40:] == ["no documents", "two documents"]
    assert grown.training_data.counts[40:].tolist() == [0, 2]  # and a name each, which is no document
    assert np.diff(grown.training_data.Y.tocsc().indptr)[40:].tolist() == [1, 3]
    refused("at most 40 columns", model.with_documents, texts[FEW], more)


def test_labels_without_names_are_added_by_their_numbers(data):
    _, texts, Y = data
    plain = XRLinear.train(texts, Y, params=XRLinearParams(tree=TREE), keep_training_data=True)
    more = csr_matrix((np.ones(2), ([0, 1], [40, 40])), shape=(2, 41))
    assert plain.with_documents(texts[:2], more, new_labels=True).predict(texts[:2]).shape == (2, 41)
    refused("no names", plain.with_documents, texts[:1], [["cats"]])


@pytest.mark.parametrize("scheme", ["tfn+man", "man"])
def test_models_with_confused_labels_as_counterexamples_grow(data, scheme):
    names, texts, Y = data
    params = XRLinearParams(tree=TREE, ranker=RankerParams.from_json({"hlm_args": {"neg_mining_chain": scheme}}))
    model = XRLinear.train(texts[:290], Y[:290], names=names, params=params, threads=1, keep_training_data=True)
    with_tfn = model.metadata.train_params
    with_tfn["hlm_args"]["neg_mining_chain"] = "tfn"
    like_tfn = dataclasses.replace(model, metadata=model.metadata.replace(train_params=with_tfn))
    for exact in (False, True):
        grown, expected = (
            one.with_documents(texts[290:292] * 2, [["seasons"]] * 4, new_labels=True, exact=exact)
            for one in (model, like_tfn)
        )
        assert all(same(a, b) for a, b in zip(weights(grown), weights(expected), strict=True))
        assert "seasons" in [name for name, _ in grown.best(texts[290:291], k=3)[0]]


def test_what_cannot_be_appended_is_refused(model, data):
    names, texts, Y = data
    refused(r"document 1: 'nothing'[^?]*--new-labels", model.with_documents, texts[:2], [[names[0]], ["nothing"]])
    refused(f"did you mean '{names[4]}'", model.with_documents, texts[:1], [[names[4] + "s"]])
    refused("nothing to append", model.with_documents, [], [])
    refused("nothing to append", model.with_documents, ["a"], [[]])
    forgetful = dataclasses.replace(model, own_training=None)
    refused("keep_training_data=True", forgetful.with_documents, texts[:1], Y[:1])
    ranker = RankerParams.from_json({"hlm_args": {"neg_mining_chain": "tfn+usn"}})
    refused("usn", TrainingData.of, as_features(csr_matrix((1, 1))), Y[:1], ranker)
    logistic = model.metadata.train_params
    logistic["hlm_args"]["model_chain"]["solver_type"] = "L2R_LR_DUAL"
    other = dataclasses.replace(model, metadata=model.metadata.replace(train_params=logistic))
    refused("--exact", other.with_documents, texts[FEW], Y[FEW])


def test_the_command_replaces_the_model_or_leaves_it(model, data, tmp_path, monkeypatch, capsys):
    names, texts, _ = data
    folder, table = tmp_path / "model", tmp_path / "new.csv"
    model.save(folder)
    (folder / CARD).write_text(MARK)
    table.write_text(f"text,labels\n{texts[0]},{names[0]}|{names[1]}\nrye bread,baking\n")
    command = ["-m", str(folder), str(table), "--label-separator", "|"]
    with monkeypatch.context() as patched:
        patched.setattr(TrainingData, "save", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            append_command([*command, "--new-labels"])
    assert XRLinear.load(folder).nr_labels == 40
    with largest_file(1000), pytest.raises(OSError, match=f"File too large.*{folder}"):
        append_command([*command, "--new-labels"])
    assert (folder / CARD).read_text() == MARK  # it was once removed before the new model was there
    append_command([*command, "--new-labels"])
    assert not (folder / CARD).exists()
    assert capsys.readouterr().out == f"{folder}: 2 documents appended; 41 labels, 1 of them new: 'baking'\n"
    assert XRLinear.load(folder).best(["bread and baking"], k=1)[0][0][0] == "baking"
    table.write_text("text,labels\n")
    refused("has no row with a text and a label", append_command, command)


def test_documents_that_the_model_has_are_left_out(model, data, tmp_path, capsys, caplog):
    """Appending a table twice once doubled its rows."""
    names, texts, Y = data
    grown = model.with_documents(texts[FEW], Y[FEW], threads=1)
    assert grown.with_documents(texts[FEW], Y[FEW]) is grown
    assert "the model already has all of these 3 documents with these labels" in caplog.text
    assert model.with_documents(as_features(model.features(texts[:290])), Y[:290]) is model
    assert grown.with_documents(texts[FEW], Y[FEW], new_labels=["baking"]).names == [*names, "baking"]
    again = model.with_documents(texts[285:293], Y[285:293], threads=1)
    assert "5 of 8 documents are left out: the model already has them" in caplog.text
    assert all(map(same, weights(again), weights(grown)))
    assert again.training_data.nr_documents == 293
    unknown = ["qqq zzz", "zzz qqq qqq"]  # no word of these is known
    assert grown.with_documents(unknown, Y[:2]).with_documents(unknown, Y[:2]).training_data.nr_documents == 297
    other = csr_matrix(np.roll(Y[:2].toarray(), 1, axis=1))
    assert model.with_documents(texts[:2], other, threads=1).training_data.nr_documents == 292
    assert "2 of 2 documents are in the model with other labels and are appended beside them" in caplog.text
    assert "further labels" not in caplog.text
    row = int(np.flatnonzero(np.diff(Y[:290].indptr) > 1)[0])
    fewer = csr_matrix(([1.0], ([0], Y[row].indices[:1])), shape=(1, Y.shape[1]))
    assert model.with_documents([texts[row]], fewer) is model
    assert "1 of 1 documents have further labels in the model, which stay" in caplog.text
    model.save(tmp_path / "model")
    lines = [f"{text},{'|'.join(names[at] for at in Y[row].indices)}" for row, text in enumerate(texts[:293])]
    (tmp_path / "table.csv").write_text("\n".join(["text,label", *lines]))
    command = ["-m", str(tmp_path / "model"), str(tmp_path / "table.csv"), "--label-separator", "|"]
    append_command(command)
    assert f"{tmp_path / 'model'}: 3 documents appended" in capsys.readouterr().out
    before = contents(tmp_path)
    append_command(command)
    assert capsys.readouterr().out == f"{tmp_path / 'model'}: 0 documents appended; 40 labels\n"
    assert "already has all of these 293 documents" in caplog.text
    assert contents(tmp_path) == before
    append_command([*command, "-o", str(tmp_path / "copy")])
    assert XRLinear.load(tmp_path / "copy").training_data.nr_documents == 293


@pytest.mark.parametrize("change", ["with_documents", "with_merged_labels", "without_labels"])
def test_two_changes_of_a_model_at_once_lose_nothing(model, data, tmp_path, monkeypatch, change):
    """The second once wrote the model that it had read before the first one's documents came."""
    names, texts, _ = data
    folder, tables = tmp_path / "model", [tmp_path / name for name in ("one.csv", "two.csv")]
    model.save(folder)
    for number, table in enumerate(tables):
        table.write_text(f"text,labels\nnumber {number} of {texts[number]},{names[number + 5]}\n")
    (tmp_path / "names.txt").write_text(f"{names[0]}\t{names[1]}\n" if "merged" in change else f"{names[0]}\n")
    second = [sys.executable, "-m", "xmc_tf.append", "-m", str(folder), str(tables[1])]
    ended, first = [], getattr(XRLinear, change)

    def meanwhile(self, *arguments, **options):
        ended.append(subprocess.run(second, capture_output=True, text=True, timeout=300, check=False))
        return first(self, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(XRLinear, change, meanwhile)
        command = {"with_documents": append_command, "with_merged_labels": merge_command}.get(change, remove_command)
        command(["-m", str(folder), str(tables[0] if command is append_command else tmp_path / "names.txt")])
    assert ended[0].returncode == 2
    assert f"{folder} is being written by another run" in ended[0].stderr
    append_command(second[3:])
    assert XRLinear.load(folder).training_data.nr_documents == 291 + (command is append_command)


def test_removed_labels_leave_the_others_as_they_are(model, data, tmp_path, capsys):
    names, texts, Y = data
    tree = model.tree
    cluster = tree.children(2, 1)  # all labels of a cluster, and one more
    removed = sorted({*tree.labels[list(cluster)].tolist(), 7})
    kept = np.setdiff1d(np.arange(40), removed)
    model.save(tmp_path / "model")
    (tmp_path / "names.txt").write_text("".join(f"{names[label]}\n" for label in removed))
    remove_command(["-m", str(tmp_path / "model"), str(tmp_path / "names.txt"), "-o", str(tmp_path / "smaller")])
    assert capsys.readouterr().out.endswith(f": {len(kept)} labels, {len(removed)} removed\n")
    smaller = XRLinear.load(tmp_path / "smaller")
    assert smaller.names == [names[label] for label in kept]
    for one, ranker in zip(trees_of(smaller.ranker), trees_of(model.ranker), strict=True):
        found = one.predict(as_features(model.features(texts)), beam_size=16, only_topk=40).toarray()
        expected = ranker.predict(as_features(model.features(texts)), beam_size=16, only_topk=40).toarray()
        assert np.array_equal(found, expected[:, kept])
    named = [names[label] for label in kept]
    found, expected = (
        one.evidence.names.mentions(named).precisions(len(named), one.nr_labels).toarray() for one in (smaller, model)
    )
    assert np.array_equal(found, expected[:, kept])
    assert [row[0][0] for row in smaller.best(named, k=1)].count(smaller.names[0]) <= 3
    grown = smaller.with_documents(texts[FEW], Y[FEW][:, kept], exact=True)
    assert grown.training_data.Y.shape == (293 + len(kept), len(kept))
    assert grown.training_data.nr_documents == 293
    refused("no label 'dogs'", model.without_labels, ["dogs"])
    refused("one that stays and has documents", model.without_labels, range(40))


def test_merged_labels_are_those_of_a_training_with_the_same_trees(model, data, tmp_path, capsys):
    names, texts, Y = data
    groups = [[names[5], names[30], names[9]], [names[20], names[2]]]
    kept = np.setdiff1d(np.arange(40), [30, 9, 2])
    merged = model.with_merged_labels(groups, threads=2)
    assert merged.names == [names[label] for label in kept]
    expected = Y[:290].toarray()
    expected[:, 5] = expected[:, [5, 30, 9]].max(axis=1)
    expected[:, 20] = expected[:, [20, 2]].max(axis=1)
    assert np.array_equal(merged.training_data.Y[:290].toarray(), expected[:, kept])
    assert all(map(same, weights(merged), trained_on_its_trees(merged)))
    documents = np.rint(np.expm1(merged.evidence.fusion.log_documents))
    assert np.array_equal(documents, expected[:, kept].sum(axis=0))
    # The names of merged labels are evidence of the one that stays.
    found, before = (
        one.evidence.names.mentions(names).precisions(len(names), one.nr_labels).toarray() for one in (merged, model)
    )
    before[:, 5] = before[:, [5, 30, 9]].max(axis=1)
    before[:, 20] = before[:, [20, 2]].max(axis=1)
    assert np.array_equal(found, before[:, kept])
    model.save(tmp_path / "model")
    (tmp_path / "groups.txt").write_text("".join("\t".join(group) + "\n" for group in groups))
    merge_command(["-m", str(tmp_path / "model"), str(tmp_path / "groups.txt")])
    assert capsys.readouterr().out == f"{tmp_path / 'model'}: 37 labels, 40 before\n"
    assert (XRLinear.load(tmp_path / "model").predict(texts[:20]) != merged.predict(texts[:20])).nnz == 0


def test_what_cannot_be_merged_is_refused(model, data):
    names, *_ = data
    for groups, message in (
        ([[names[0]]], "at least two labels"),
        ([], "at least one group"),
        ([[0, 1], [1, 2]], "label 1 occurs twice"),
        ([[0, "dogs"]], "no label 'dogs'"),
    ):
        refused(message, model.with_merged_labels, groups)
    refused("--keep-training-data", dataclasses.replace(model, own_training=None).with_merged_labels, [[0, 1]])
