"""Bad input ends a command line with exit code 2 and a message with a fix; each message is compared."""

import json
import shutil

import numpy as np
import pytest
import scipy.sparse as sp

from tests.files import contents
from tests.linear.command_data import run_predict, run_train
from xmc_tf.common.process import cli
from xmc_tf.linear import predict, train


def assert_refused(words, capsys, main, *flags):
    """Check that a command exits with 2 and a message that has the words, and prints nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        # What succeeds ends its process at once: here that would be pytest's.
        patch.setattr(cli, "_end_at_once", lambda: pytest.fail("the command succeeded"))
        with pytest.raises(SystemExit) as left:
            cli.run(main, [str(flag) for flag in flags])
    captured = capsys.readouterr()
    assert left.value.code == 2
    assert "Traceback" not in captured.err
    assert not [word for word in words if word not in captured.err], captured.err


def save(path, matrix, **options):
    sp.save_npz(path, sp.csr_matrix(matrix, dtype=np.float32), **options)
    return path


def with_entry(path, out, row, column, value):
    full = sp.load_npz(path).toarray()
    full[row, column] = value
    return save(out, full)


def text(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# Each: which flag gets which file, made from the corpus c in folder d, and words of the message.
TRAINING = {
    "rows of X and Y": ("-x", lambda c, d: save(d / "X.npz", np.ones((89, 30))), ["X.npz", "Y.npz", "90", "89"]),
    "NaN in X": (
        "-x",
        lambda c, d: with_entry(c / "X.npz", d / "X.npz", 7, 3, np.nan),
        ["X.npz: row 7, column 3 (counted from 0) is nan", "finite numbers"],
    ),
    "X is text": ("-x", lambda c, d: c / "X.txt", ["X.txt is not a matrix", "texts with -t"]),
    "X is missing": ("-x", lambda c, d: c / "X1.npz", ["X1.npz does not exist", "did you mean", "X.npz?"]),
    "Y is negative": (
        "-y",
        lambda c, d: with_entry(c / "Y.npz", d / "Y.npz", 5, 2, -1),
        ["Y.npz): row 5, column 2 (counted from 0) is -1", "above 0"],
    ),
    "Y is empty": ("-y", lambda c, d: save(d / "Y.npz", np.zeros((90, 12))), ["contain no label", "no entry"]),
    "no Y": ("-y", lambda c, d: "", ["lacks -y", "--help"]),
    "no X": ("-x", lambda c, d: None, ["one of -t (texts) and -x (features)"]),
    "model is not a model": (
        "-m",
        lambda c, d: text(d / "params.json", "{}").parent,
        ["holds files that are not part of a model", "params.json", "another folder with -m"],
    ),
    "names too few": ("--labels", lambda c, d: text(d / "n.txt", "a\nb\n"), ["n.txt", "12 labels", "2 names"]),
    "a name is empty": ("--labels", lambda c, d: text(d / "n.txt", "a\n\nb\n"), ["n.txt, line 2 is empty"]),
    "tree of other labels": (
        "-c",
        lambda c, d: save(d / "C.npz", np.eye(13, 4) + np.eye(13, 4, -4) + np.eye(13, 4, -8) + np.eye(13, 4, -12)),
        ["C.npz and the labels do not fit together", "12 labels", "13 labels"],
    ),
    "label features of others": (
        "-f",
        lambda c, d: save(d / "Z.npz", np.ones((11, 4))),
        ["Z.npz and the labels do not fit together", "12 labels", "11 labels"],
    ),
    "relevance of others": (
        ("--rel-mode", "induce", "-r"),
        lambda c, d: save(d / "R.npz", np.ones((90, 12))),
        ["R.npz: the relevance matrix does not match the labels"],
    ),
    "negatives of other clusters": (
        "-um",
        lambda c, d: save(d / "M.npz", np.ones((90, 7))),
        ["M.npz does not fit the leaf clusters of the tree", "7 columns", "--code-path"],
    ),
    "negatives of other labels": ("-uy", lambda c, d: save(d / "M.npz", np.ones((90, 7))), ["12 columns", "7 columns"]),
    "both texts and features": ("-t", lambda c, d: c / "X.txt", ["both -t and -x are given"]),
    "a solver that is none": ("-s", lambda c, d: "SVM", ["invalid choice: 'SVM'", "L2R_LR_DUAL"]),
    "an impossible Cp": ("--Cp", lambda c, d: "-1", ["--Cp is out of range", "above 0", "-1"]),
    "no such threads": ("-n", lambda c, d: "0", ["--threads", "at least 1 and at most 1024, or -1"]),
    "unknown parameter": (
        "--params-path",
        lambda c, d: text(d / "p.json", '{"train_params": {"hlm_args": {"model_chain": {"treshold": 1}}}}'),
        ["p.json: train_params.hlm_args.model_chain.treshold", "did you mean", "threshold"],
    ),
}


@pytest.mark.parametrize("case", list(TRAINING))
def test_training(case, corpus, tmp_path, capsys):
    flag, make, words = TRAINING[case]
    flags = {"-x": corpus / "X.npz", "-y": corpus / "Y.npz", "-m": tmp_path / "new" / "m"}
    more = [flag] if isinstance(flag, str) else list(flag)
    given = make(corpus, tmp_path)
    flags.pop(more[-1], None)
    arguments = [part for pair in flags.items() for part in pair]
    arguments += [] if given is None else [*more, given]
    assert_refused(words, capsys, train.main, *arguments)
    assert not (tmp_path / "new").exists()


TEXTS = {
    "texts and labels": (lambda c, d: text(d / "X.txt", "a b\n" * 89), ["X.txt", "Y.npz", "89", "90"]),
    "no words": (lambda c, d: text(d / "X.txt", "! ?\n" * 90), ["no words in 90 documents"]),
}


@pytest.mark.parametrize("case", list(TEXTS))
def test_texts_for_training(case, corpus, tmp_path, capsys):
    make, words = TEXTS[case]
    assert_refused(
        words, capsys, train.main, "-t", make(corpus, tmp_path), "-y", corpus / "Y.npz", "-m", tmp_path / "m"
    )
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["E.npy", "X.npz"], ["cannot be concatenated", "dense, sparse"]),
        (["X.npz", "X.npz"], ["sparse, sparse"]),
        (["X.npz", "E.npy", "E.npy"], ["cannot be concatenated"]),
        (["X.npz", "short.npy"], ["different numbers of documents", "90", "3"]),
    ],
)
def test_features_side_by_side(files, words, corpus, tmp_path, capsys):
    np.save(tmp_path / "short.npy", np.ones((3, 2), np.float32))
    paths = [tmp_path / name if name == "short.npy" else corpus / name for name in files]
    assert_refused(words, capsys, train.main, "-x", *paths, "-y", corpus / "Y.npz", "-m", tmp_path / "m")


def test_unusual_texts_are_accepted(corpus, tmp_path, capsys):
    """Empty lines, a line of a megabyte, broken UTF-8, documents without labels, and labels without documents."""
    lines = (corpus / "X.txt").read_bytes().splitlines()
    lines[:4] = [b"", b"long " * 200_000, b"broken \xff\xc3 library", b"   \t"]
    text(tmp_path / "X.txt", b"\n".join(lines))
    full = sp.load_npz(corpus / "Y.npz").toarray()
    full[10], full[:, 4] = 0, 0
    save(tmp_path / "Y.npz", full)
    run_train("-t", tmp_path / "X.txt", "-y", tmp_path / "Y.npz", "-m", tmp_path / "m")
    run_predict("-m", tmp_path / "m", "-t", tmp_path / "X.txt", "-o", tmp_path / "p.npz")
    predicted = sp.load_npz(tmp_path / "p.npz")
    assert predicted.shape == (90, 12)
    assert np.isfinite(predicted.data).all()
    assert (np.diff(predicted.indptr) > 0).all()


PREDICTION = {
    "other features": ("-x", lambda c, d: save(d / "X.npz", np.ones((3, 31))), ["X.npz", "30 features", "31"]),
    "NaN": ("-x", lambda c, d: with_entry(c / "X.npz", d / "X.npz", 1, 2, np.nan), ["row 1, column 2", "is nan"]),
    "texts for a model of features": ("-t", lambda c, d: c / "X.txt", ["trained on features and cannot read text"]),
    "labels of other documents": ("-y", lambda c, d: save(d / "Y.npz", np.ones((4, 12))), ["Y.npz", "90", "4"]),
    "other labels": ("-y", lambda c, d: save(d / "Y.npz", np.ones((90, 13))), ["Y.npz", "12 labels", "13"]),
    "selected of other labels": ("-so", lambda c, d: save(d / "S.npz", np.ones((90, 9))), ["12 labels", "90 × 9"]),
    "post-processor": ("-pp", lambda c, d: "softmax", ["invalid choice: 'softmax'", "log-l4-hinge"]),
    "no chunk": ("-B", lambda c, d: "0", ["-B (--max-pred-chunk) is out of range"]),
    **{
        f"a form of output, {name}": ("-o", lambda c, d, name=name: d / name, [name, ".npz (a matrix) or in .jsonl"])
        for name in ("p.csv", "p.npy", "p.TXT")
    },
}


@pytest.mark.parametrize("case", list(PREDICTION))
def test_prediction(case, model, corpus, tmp_path, capsys):
    flag, make, words = PREDICTION[case]
    flags = {"-m": model, "-x": corpus / "X.npz", flag: make(corpus, tmp_path)}
    if flag == "-t":
        flags.pop("-x")
    assert_refused(words, capsys, predict.main, *(part for pair in flags.items() for part in pair))


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


LEVELS = "ranker/ranker"  # PECOS's folder has one of that name within


def without_records(m):
    """Remove the checksums, so that readers see the damage."""
    path = m / "params.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in facts.items() if k not in ("checksum", "files")}))


def other_ranker(m):
    shutil.rmtree(m / LEVELS / "1.model")
    shutil.copytree(m / LEVELS / "0.model", m / LEVELS / "1.model")


MODELS = {
    "nothing there": (lambda m: shutil.rmtree(m), ["does not exist", "that training wrote"]),
    "half copied": (lambda m: (m / "params.json").unlink(), ["params.json is missing", "folder is incomplete"]),
    "any folder": (
        lambda m: [shutil.rmtree(m), m.mkdir(), (m / "x").touch()],
        ["is not a model", "the folder that training wrote"],
    ),
    "odd JSON": (lambda m: (m / "params.json").write_text("[]"), ["params.json does not hold"]),
    "no rankers": (lambda m: shutil.rmtree(m / "ranker"), ["not a folder of rankers", "ranker/param.json is missing"]),
    "half a tree": (lambda m: (m / "tree" / "C1.npz").unlink(), ["C1.npz"]),
    "no features": (lambda m: shutil.rmtree(m / "features"), ["features/ is missing", "folder is incomplete"]),
    "names cut": (lambda m: (m / "labels.txt").write_text("a\nb\n"), ["labels.txt", "12 names", "received: 2"]),
    "ranker of another": (
        other_ranker,
        ["ranker/1.model", "the parents in C.npz do not match the nodes of the level above", "files of two models"],
    ),
    "another's parameters": (
        lambda m: edit(m / "params.json", nr_labels=99),
        ["does not belong to", "nr_labels 99", "12", "files of two models"],
    ),
}


@pytest.mark.parametrize("case", list(MODELS))
def test_damaged_models(case, corpus, tmp_path, capsys, request):
    text_model = request.getfixturevalue("two_level_text_model")
    harm, words = MODELS[case]
    shutil.copytree(text_model, tmp_path / "m")
    without_records(tmp_path / "m")
    harm(tmp_path / "m")
    assert_refused(words, capsys, predict.main, "-m", tmp_path / "m", "-q", "a forest")


@pytest.fixture(scope="module")
def two_level_text_model(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "two"
    flags = ["-t", corpus / "X.txt", "-y", corpus / "Y.npz", "-m", folder, "--labels", corpus / "labels.txt"]
    run_train(*flags, "-c", corpus / "C.npz")
    return folder


def test_a_full_disk_keeps_the_model_and_is_not_reported_as_bad_input(corpus, tmp_path, capsys, monkeypatch):
    flags = ["-x", corpus / "X.npz", "-y", corpus / "Y.npz", "-m", tmp_path / "m"]
    run_train(*flags, "--labels", corpus / "labels.txt")
    before = contents(tmp_path)

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("xmc_tf.rankers.disk.save_matrix", full_disk)
        with pytest.raises(SystemExit) as left:
            cli.run(train.main, list(map(str, flags)))
    assert left.value.code == 1
    assert "failed: [Errno 28] No space left on device" in capsys.readouterr().err
    assert contents(tmp_path) == before
    run_train(*flags)  # a complete training replaces it
    assert not (tmp_path / "m" / "labels.txt").exists()
