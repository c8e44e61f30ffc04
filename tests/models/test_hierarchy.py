"""The hierarchy of a vocabulary, from the SKOS file to the report, in linear models and in models with an encoder."""

import json

import pytest
from scipy.sparse import csr_matrix, save_npz

from tests.pipeline.corpus import run_train
from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.data.vocabularies import LabelHierarchy
from xmc_tf.evaluate import main as run_evaluate
from xmc_tf.linear.train import main as run_linear
from xmc_tf.models.incremental.added_labels import add_labels
from xmc_tf.models.loading import load

NAMES = ("animals", "cats", "dogs", "tea", "coffee")
PREFIX = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
DRINKS = "http://v/drinks"  # not a label
HIERARCHY = LabelHierarchy(
    {"cats": ("animals",), "coffee": (DRINKS,), "dogs": ("animals",), "tea": (DRINKS,)}
)  # fmt: skip


def write_vocabulary(path, names):
    """Write a vocabulary in which the second and third name are narrower than the first, the next two than drinks."""
    lines = [f'<http://v/{number}> skos:prefLabel "{name}"@en .' for number, name in enumerate(names)]
    lines += [f"<http://v/{number}> skos:broader <http://v/0> ." for number in (1, 2)]
    lines += [f"<{DRINKS}> skos:narrower <http://v/{number}> ." for number in (3, 4)]
    path.write_text(PREFIX + "\n".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return the folder of a linear model that was trained with a vocabulary."""
    folder = tmp_path_factory.mktemp("vocabulary")
    labels = [number % 5 for number in range(90)]
    texts = [f"about {NAMES[label]} and number {number}" for number, label in enumerate(labels)]
    (folder / "X.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    save_npz(folder / "Y.npz", csr_matrix(([1.0] * 90, (range(90), labels)), shape=(90, 5)))
    (folder / "labels.txt").write_text("".join(f"{name}\n" for name in NAMES), encoding="utf-8")
    write_vocabulary(folder / "v.ttl", NAMES)
    flags = ["-t", "X.txt", "-y", "Y.npz", "-m", "m", "--labels", "labels.txt", "--vocabulary", "v.ttl"]
    paths = {flag: str(folder / flag) for flag in flags[1::2]}
    run_linear([paths.get(flag, flag) for flag in flags] + ["--language", "en", "--label-names", "true"])
    return folder / "m"


def test_the_model_keeps_it_whatever_happens_to_labels(model, tmp_path):
    found = load(model)
    assert found.hierarchy == HIERARCHY
    found.without_labels(["tea"]).save(tmp_path / "fewer")
    assert load(tmp_path / "fewer").hierarchy == HIERARCHY
    add_labels(model, ["milk"], tmp_path / "more")
    more = load(tmp_path / "more")
    assert more.hierarchy is not None
    assert more.hierarchy.broader_matrix(more.names).shape == (6, 7)


def test_damage_is_found(model, tmp_path):
    load(model).save(tmp_path / "m")
    file = tmp_path / "m" / "hierarchy" / "broader.tsv"
    file.write_bytes(file.read_bytes().replace(b"dogs", b"cogs"))
    with pytest.raises(InputError, match=r"broader\.tsv"):
        _ = load(tmp_path / "m").hierarchy


def test_near_misses_on_a_table_and_in_its_report(model, tmp_path, capsys):
    # What the texts are about is predicted; what the table says is true, near, a sibling, or neither.
    rows = [("cats", "cats"), ("cats", "animals"), ("coffee", "tea"), ("coffee", "unknown label")]
    table = tmp_path / "t.csv"
    table.write_text(
        "text,label\n" + "".join(f"about {text} and number {at},{label}\n" for at, (text, label) in enumerate(rows)),
        "utf-8",
    )
    flags = ["-m", str(model), "--text-column", "text", "--label-column", "label", "-k", "1", "--rows", "all"]
    run_evaluate([str(table), *flags, "--json", "--report", str(tmp_path / "report")])
    system = json.loads(capsys.readouterr().out)["systems"][0]
    assert [system[name] for name in ("P@1", "P-near@1", "P-sibling@1")] == [0.25, 0.5, 0.75]
    run_evaluate([str(table), *flags])
    assert "P-sibling@1" in capsys.readouterr().out
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "P-near@k" in page
    report = json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    assert report["evaluation"]["systems"][0]["P-near@1"] == 0.5


def test_a_vocabulary_may_be_given_for_predictions_in_files(model, tmp_path, capsys):
    data = model.parent
    names = [f"http://v/{number}" for number in range(5)]
    (tmp_path / "uris.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    predicted = csr_matrix(([1.0] * 90, (range(90), [(2, 2, 1, 4, 0)[number % 5] for number in range(90)])), (90, 5))
    save_npz(tmp_path / "P.npz", predicted)  # near; sibling; sibling; sibling; wrong
    files = ["-y", str(data / "Y.npz"), "-p", str(tmp_path / "P.npz"), "-k", "1,", "--json"]
    given = ["--labels", str(tmp_path / "uris.txt"), "--vocabulary", str(data / "v.ttl"), "--language", "en"]
    run_evaluate([*files, *given])
    system = json.loads(capsys.readouterr().out)["systems"][0]
    assert [system[name] for name in ("P@1", "P-near@1", "P-sibling@1")] == [0, 0.2, 0.8]
    for wrong, message in (
        (given[:4], "only --vocabulary"),
        ([*given[:2], *given[4:]], "only --language"),
        (given[2:], "labels without names"),
        ([*given[:3], str(data / "X.txt"), *given[4:]], "format of the vocabulary is unknown"),
        (["--labels", str(data / "X.txt"), *given[2:]], "label names"),
    ):
        refused(message, run_evaluate, [*files, *wrong])
    (tmp_path / "flat.ttl").write_text(PREFIX + '<http://v/1> skos:prefLabel "cats"@en .', encoding="utf-8")
    refused("has no broader terms", run_evaluate, [*files, *given[:3], str(tmp_path / "flat.ttl"), *given[4:]])


def test_a_model_with_an_encoder_keeps_it(encoder_corpus, tmp_path):
    names = (encoder_corpus / "labels.txt").read_text(encoding="utf-8").splitlines()
    write_vocabulary(tmp_path / "v.ttl", names)
    flags = ["--labels", encoder_corpus / "labels.txt", "--vocabulary", tmp_path / "v.ttl", "--language", "en"]
    run_train(encoder_corpus, tmp_path / "m", "--no-fine-tune", "--label-names", "false", *flags)
    hierarchy = load(tmp_path / "m").hierarchy
    assert hierarchy is not None
    assert hierarchy.broader == {
        names[1]: (names[0],), names[2]: (names[0],), names[3]: (DRINKS,), names[4]: (DRINKS,)
    }  # fmt: skip
