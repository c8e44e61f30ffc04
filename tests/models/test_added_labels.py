"""Labels added to a trained model: predictions, export, explanation, and names that are not new."""

import asyncio
import json

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.label_names.cases import many
from tests.refusals import refused
from tests.serving.cases import assert_export_answers
from xmc_tf.common.errors import InputError
from xmc_tf.export import main as export_command
from xmc_tf.labels.add import main as add_command
from xmc_tf.models.incremental.added_labels import add_labels
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.predict import main as predict_command
from xmc_tf.server.page.answering import ExplainedAnswers
from xmc_tf.serving.local import LocalModel

NEW = ["Quantum Chemistry\tmolecular orbitals", "sea ice (Arctic)"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model of labels with documents and one without, and the same model with two more labels."""
    folder = tmp_path_factory.mktemp("added")
    names, texts, Y = many()
    Y = Y.tolil()
    Y[:, 3] = 0
    XRLinear.train(texts, Y.tocsr(), names=names, threads=1).save(folder / "model")
    (folder / "names.txt").write_text("".join(f"{line}\n" for line in NEW))
    add_command(["-m", str(folder / "model"), str(folder / "names.txt"), "-o", str(folder / "more")])
    return folder


def test_new_labels_are_found_by_all_of_their_names_and_others_stay(folders):
    names, texts, _ = many()
    model, more = XRLinear.load(folders / "model"), XRLinear.load(folders / "more")
    assert (model.nr_labels, more.nr_labels, more.metadata.nr_labels) == (40, 42, 42)
    assert more.names == [*names, "Quantum Chemistry", "sea ice (Arctic)"]
    asked = ["advances in quantum chemistry", "Molecular orbital theory", "the ice of the sea", names[3]]
    best = [row[0][0] for row in more.best(asked, k=1)]
    assert best == ["Quantum Chemistry", "Quantum Chemistry", "sea ice (Arctic)", names[3]]
    first, second = model.predict(texts), more.predict(texts)
    assert second.shape == (len(texts), 42)
    assert np.array_equal(first.toarray(), second.toarray()[:, :40])
    assert more.predict(texts, scores="ranker").shape == (len(texts), 42)


def test_server_and_page_count_the_new_labels(folders):
    pytest.importorskip("uvicorn")
    from xmc_tf.server.application import Application, Limits
    from xmc_tf.server.predictions import Predictions
    from xmc_tf.server.versions import ServedModel

    sent = []

    async def ask(path):
        async def send(message):
            sent.append(message)

        scope = {"type": "http", "path": path, "method": "GET", "headers": []}
        routes = Predictions(ServedModel(folders / "more"), Limits())
        await Application(routes, Limits())(scope, None, send)

    asyncio.run(ask("/v1/models/xmc/metadata"))
    assert json.loads(sent[1]["body"])["metadata"]["numbers"] == {"nr_labels": 42, "k": 10, "most": 42}
    page = ExplainedAnswers(folders / "more")
    assert (page.about()["labels"], page.about()["k"]) == (42, 42)
    assert page.ask("advances in quantum chemistry", 42)["labels"][0]["name"] == "Quantum Chemistry"


def test_files_that_do_not_change_are_linked(folders):
    for path in (folders / "model").rglob("*"):
        same = folders / "more" / path.relative_to(folders / "model")
        if path.is_file() and path.parent.name not in ("label_names", "fusion") and path.parent != folders / "model":
            assert same.samefile(path), path


def test_only_new_labels_may_be_chosen(folders):
    more = XRLinear.load(folders / "more")
    more.set_output_constraint([41])
    texts = ["sea ice and quantum chemistry", "nothing"]
    assert more.predict(texts).indices.tolist() == [41]
    assert more.predict(texts, scores="ranker").nnz == 0
    more.set_output_constraint([3, 40])
    assert set(more.predict([*texts, many()[0][3]]).indices.tolist()) == {3, 40}


def test_the_export_answers_as_the_model(folders):
    names, texts, _ = many()
    more = XRLinear.load(folders / "more")
    asked = [*texts[:30], "sea ice and quantum chemistry", "quantum", names[3], ""]
    assert_export_answers(more, folders / "served" / "1", asked, only_topk=8)
    paths = LocalModel(folders / "served" / "1").ask([asked[30]], "paths")
    new = int(np.flatnonzero(paths["labels"][0] == 41)[0])
    assert (paths["nodes"][0, new] == -1).all()
    assert paths["names"][0, new] == b"sea ice (Arctic)"


def test_a_new_label_is_explained_by_its_name(folders):
    explained = XRLinear.load(folders / "more").explain("sea ice", k=1)
    assert "sea ice (Arctic)" in str(explained)
    assert "label name" in str(explained)


def test_a_saved_model_keeps_them_and_takes_more(folders):
    more = XRLinear.load(folders / "more")
    more.save(folders / "again")
    assert XRLinear.load(folders / "again").metadata.nr_labels == 42
    assert add_labels(folders / "again", ["third"], folders / "third") == 43
    assert XRLinear.load(folders / "third").best(["a third thing"], k=1)[0][0][0] == "third"


def test_the_command_shows_what_it_would_do(folders, capsys):
    path = folders / "list.txt"
    path.write_text(f"{NEW[0]}\nother name\n")
    flags = ["-m", str(folders / "more"), str(path)]
    add_command([*flags, "--dry-run", "--skip-known"])
    out = capsys.readouterr().out
    assert "would add 1 labels to the 42" in out
    assert "42  other name" in out
    assert "left out 1 names that the model has already" in out
    known = r"1 of 2 names are not new[^$]*line 1: 'Quantum Chemistry' is label 40 of the"
    refused(known, add_command, [*flags, "-o", str(folders / "no")])
    refused("no output", add_command, flags)
    assert not (folders / "no").exists()


def test_a_prediction_and_an_export_count_the_new_labels(folders, capsys, caplog):
    for k, warned in (("42", False), ("43", True)):
        predict_command(["-m", str(folders / "more"), "-q", "quantum chemistry", "-k", k])
        assert ("the model has only 42 labels" in caplog.text) is warned
    assert capsys.readouterr().out.count("Quantum Chemistry") == 2
    caplog.clear()
    export_command(["-m", str(folders / "more"), "-o", str(folders / "all" / "1"), "-k", "42"])
    assert "the model has only" not in caplog.text


def test_names_that_repeat_and_models_without_names(folders):
    with pytest.raises(InputError, match=r"line 2: 'SEA  floor' is in line 1"):
        add_labels(folders / "model", ["sea floor", "SEA  floor"], folders / "no")
    refused("the model itself", add_labels, folders / "model", ["sea floor"], folders / "model")
    names, texts, Y = many()
    XRLinear.train(texts, Y, names=names, label_names=False, threads=1).save(folders / "plain")
    refused("labels cannot be added to", add_labels, folders / "plain", ["sea floor"], folders / "no")


def test_names_are_appended_where_the_training_data_are_kept(tmp_path):
    names, texts, Y = many()
    model = XRLinear.train(texts, Y, names=names, threads=1, keep_training_data=True)
    model.save(tmp_path / "model")
    assert add_labels(tmp_path / "model", NEW, tmp_path / "more") == 42
    more = XRLinear.load(tmp_path / "more")
    assert (more.ranker.nr_labels, more.metadata.content["nr_documents"]) == (42, len(texts))
    ranked = more.predict(["molecular orbitals of water"], scores="ranker", only_topk=3)
    assert ranked.indices[0] == 40  # by the rankers, not only by its mention
    assert [row[0][0] for row in more.best(["the ice of the sea"], k=1)] == ["sea ice (Arctic)"]
    grown = more.with_documents(["ice cover in the north"], csr_matrix(([1.0], ([0], [41])), shape=(1, 42)))
    assert (grown.nr_labels, grown.metadata.content["nr_documents"]) == (42, len(texts) + 1)
    assert np.allclose(model.predict(texts).toarray(), more.predict(texts).toarray()[:, :40], atol=0.05)
