"""Tests that features and trees made over ranks have the bytes of a single process."""

import pytest

from tests.distributed.launch import horovodrun, mpiexec, python
from tests.features.texts import random_corpus
from tests.files import contents
from tests.linear.cases import label_matrix, sparse_rows
from xmc_tf.data import save_matrix

pytestmark = pytest.mark.distributed
PROGRAM = "texts_and_trees.py"
DOCUMENTS, LABELS = 160, 24


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Write texts, labels and features."""
    folder = tmp_path_factory.mktemp("corpus")
    texts = list(random_corpus(DOCUMENTS, seed=4, length=6))
    (folder / "X.trn.txt").write_text("".join(f"{text}\n" for text in texts))
    names = [" ".join(text.split()[:2]) or "none" for text in texts[:LABELS]]
    (folder / "labels.txt").write_text("".join(f"{name} {number}\n" for number, name in enumerate(names)))
    save_matrix(folder / "Y.trn.npz", label_matrix(DOCUMENTS, LABELS))
    save_matrix(folder / "X.trn.npz", sparse_rows(DOCUMENTS))
    return folder


def flags(corpus, out):
    out.mkdir()
    return [str(path) for path in (corpus / "X.trn.txt", corpus / "Y.trn.npz", out)]


@pytest.fixture(scope="module")
def one_process(corpus, tmp_path_factory):
    """Return all files that a single process writes."""
    out = tmp_path_factory.mktemp("one") / "out"
    run = python(PROGRAM, *flags(corpus, out), timeout=300)  # may compile kernels
    found = contents(out)
    wanted = {"model/features/vocabulary.txt", "model/ranker/ranker/0.model/W.npz", "model/fusion/fusion.json"}
    wanted |= {"model/label_names/names.npz", "model/ensemble/1/ranker/ranker/0.model/W.npz"}
    wanted |= {f"{name}/tree/C0.npz" for name in ("both", "own")} | {"wide/C0.npz"}
    assert wanted <= set(found)
    assert run.ranks[0].result["pieces"] == 0  # in memory
    return found


@pytest.mark.parametrize(("engine", "world"), [("mpiexec", 2), pytest.param("gloo", 3, marks=pytest.mark.full)])
def test_the_bytes_of_one_process_and_work_for_every_rank(engine, world, corpus, one_process, tmp_path):
    options = {"world": world, "timeout": 300}
    command = [PROGRAM, *flags(corpus, tmp_path / "out")]
    run = mpiexec(*command, **options) if engine == "mpiexec" else horovodrun(*command, engine=engine, **options)
    assert contents(tmp_path / "out") == one_process
    for rank in run.ranks:
        assert rank.result["pieces"] >= 2  # 160 texts in pieces of at most 20
        assert rank.result["splits"] >= 4  # 0 if another rank built the trees
