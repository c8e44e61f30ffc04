"""The public names: which there are, that they load on first use, and what a type checker sees of them."""

import ast
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import xmc_tf
from tests.api import user_script
from tests.refusals import refused
from tests.serving.cases import NAMES, documents, text_model
from xmc_tf.common.errors import InputError
from xmc_tf.demo.encoder import make_tiny
from xmc_tf.metrics import inverse_propensity, measure
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.serving.local import LocalModel

ROOT = Path(__file__).resolve().parents[2]


def test_the_stub_is_what_is_read():
    """A line of another form would be a name for type checkers only."""
    stub = ast.parse(Path(xmc_tf.__file__).with_suffix(".pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    assert {alias.asname: node.module for node in imports for alias in node.names} == xmc_tf._modules()
    assert xmc_tf.__all__ == sorted(xmc_tf._modules())


@pytest.mark.parametrize("name", xmc_tf.__all__)
def test_every_name_loads_and_is_documented(name):
    found = getattr(xmc_tf, name)
    assert found.__doc__
    assert found.__module__.startswith("xmc_tf.")
    assert name in dir(xmc_tf)


def test_no_other_name_is_there():
    with pytest.raises(AttributeError, match="XTransformr"):
        _ = xmc_tf.XTransformr
    assert not {"os", "sys", "TYPE_CHECKING"} & set(dir(xmc_tf))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a linear model of texts, texts, and their labels."""
    folder = tmp_path_factory.mktemp("user")
    text_model().save(folder / "model")
    texts, Y = documents()
    (folder / "X.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    xmc_tf.XRLinear.load(folder / "model")
    import_module("xmc_tf.data").save_matrix(folder / "Y.npz", Y)
    return folder


def test_the_user_s_script_measures_a_model(trained, capsys):
    precision = user_script.main(str(trained / "model"), str(trained / "X.txt"), str(trained / "Y.npz"))
    assert 0.5 < precision <= 1
    assert capsys.readouterr().out.split()[:3] == ["@1", "@3", "@5"]


@pytest.mark.full
def test_the_user_s_script_trains_and_exports_both_models(tmp_path, capsys):
    texts, Y = documents(200)
    labels = [[NAMES[label] for label in row.indices] for row in Y]
    encoder = make_tiny(tmp_path / "encoder", texts, 32, hidden_size=16, intermediate_size=32)
    folders = user_script.train(texts, labels, str(encoder), tmp_path)
    for folder, seed in zip(folders, (0, 1), strict=True):
        model = xmc_tf.load(folder)
        assert model.names == sorted(NAMES)
        assert user_script.use(model, texts, labels, folder / "served") > 0.5
        out = capsys.readouterr().out
        assert f"60 labels in {model.tree.depth} levels, trained with seed {seed}" in out
        truth = csr_matrix(Y)[:, [NAMES.index(name) for name in model.names]]
        predicted = LocalModel(folder / "served" / "1").predict(texts)
        assert xmc_tf.evaluate(truth, predicted).at("P", 1) > 0.5


@pytest.mark.full
def test_type_checkers_see_the_types(tmp_path):
    """The user's script passes ``mypy --strict``; each line of the other one is an error for it."""
    wrong = tmp_path / "wrong.py"
    lines = [
        "from xmc_tf import XTransformr  # attr-defined",
        "from xmc_tf import TextFile, XRLinear, XTransformer, evaluate, load",
        "load(5)  # arg-type",
        "XRLinear.load('m').best(TextFile('X'), k='5')  # arg-type",
        "XTransformer.load('m').predict(['a'], top=5)  # call-arg",
        "precision: str = evaluate(None, None).at('P', 1)  # assignment",
        "name: int = load('m').best(['a'])[0][0][0]  # assignment",
    ]
    wrong.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "c")]
    done = subprocess.run(
        [*command, "tests/api/user_script.py", str(wrong)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    expected = [f"{wrong.name}:{at}: [{line.split('# ')[1]}]" for at, line in enumerate(lines, 1) if "# " in line]
    shown = [f"{Path(line.split(':')[0]).name}:{line.split(':')[1]}: {line[line.rindex('[') :]}" for line in found]
    assert sorted(set(shown)) == sorted(expected), done.stdout + done.stderr


def test_load_returns_the_class_of_the_model(trained, tmp_path):
    assert isinstance(xmc_tf.load(trained / "model"), XRLinear)
    assert isinstance(xmc_tf.load(trained / "model" / "ranker"), XRLinear)  # PECOS's format
    (tmp_path / "encoder").mkdir()
    about = {"format": "xmc_tf.model", "version": 1, "model": "XTransformer", "nr_labels": 3}
    (tmp_path / "params.json").write_text(json.dumps(about))
    assert isinstance(xmc_tf.load(str(tmp_path)), XTransformer)


def test_load_recognizes_a_folder_of_pecos(tmp_path):
    about = {"__meta__": {"class_fullname": "pecos.xmc.xtransformer.model###XTransformer"}}
    (tmp_path / "param.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match=r"config\.json is missing"):  # as XTransformer.load says
        xmc_tf.load(tmp_path)


@pytest.mark.parametrize(("content", "message"), [(None, "does not exist"), ("{", "params.json")])
def test_load_says_what_is_wrong_with_a_folder(content, message, tmp_path):
    folder = tmp_path / "model"
    if content is not None:
        folder.mkdir()
        (folder / "params.json").write_text(content)
    refused(message, xmc_tf.load, folder)


def test_evaluate_is_measure_over_all_labels():
    rng = np.random.default_rng(0)
    Y = csr_matrix((rng.random((30, 8)) < 0.3).astype(np.float32))
    P = csr_matrix(rng.random((30, 8), np.float32))
    gains = inverse_propensity(np.asarray(Y.sum(axis=0)).ravel(), 30)
    expected, *_ = measure(Y, P, [1, 3], gains=gains)
    found = xmc_tf.evaluate(Y, P, [1, 3], training_labels=Y)
    assert {name: values.tolist() for name, values in found.values.items()} == {
        name: values.tolist() for name, values in expected.values.items()
    }
    first = (np.asarray(Y.todense())[np.arange(30), P.toarray().argmax(axis=1)]).mean()
    assert found.at("P", 1) == pytest.approx(first)
    header, _, row, *_ = str(found).splitlines()
    assert header.split() == ["@1", "@3"]
    assert row.split() == ["P", f"{100 * first:.2f}", f"{100 * found.at('P', 3):.2f}"]
    assert "PSP" not in xmc_tf.evaluate(Y, P).values


def test_evaluate_refuses_training_labels_of_other_labels():
    Y = csr_matrix(np.eye(4, dtype=np.float32))
    error = refused("training labels", xmc_tf.evaluate, Y, Y, training_labels=csr_matrix((4, 5), dtype=np.float32))
    assert error.received == "5"
