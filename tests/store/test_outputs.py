"""Which outputs are refused: inputs and parts of models, by whatever name they are given."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.data import load_matrix, save_matrix
from xmc_tf.store.outputs import (
    EMBEDDINGS,
    LABELS,
    MATRIX_OF_PREDICTIONS,
    PREDICTIONS,
    check_output_folder,
    check_output_path,
    refuse_model_folder,
    refuse_other_folder,
    refuse_same_outputs,
    refuse_work_folder,
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Inputs, a model of ours, of another version, of PECOS, an export, and folders that are none; works there."""
    monkeypatch.chdir(tmp_path)
    for name in ("X.npz", "Y.npz", "exp/params.json", "exp/X.npz", "exp/encoder/config.json"):
        write(name, "{}")
    write("m/params.json", json.dumps({"format": "xmc_tf.model", "version": 1}))
    write("old/params.json", json.dumps({"format": "xmc_tf.model", "version": 0}))
    for model in ("m", "old"):
        for name in ("labels.txt", "tree/config.json", "tree/C0.npz", "ranker/ranker/0.model/W.npz", "Pt.npz"):
            write(f"{model}/{name}", "{}")
    for name in ("param.json", "ranker/param.json", "ranker/0.model/W.npz", "ranker/0.model/C.npz"):
        write(f"pecos/{name}", "{}")
    write("pecos/ranker/0.model/param.json", "{}")
    for name in ("saved_model.pb", "variables/variables.index", "assets.extra/xmc_tf.json"):
        write(f"served/1/{name}", "{}")
    os.symlink("X.npz", "soft.npz")
    os.link("X.npz", "hard.npz")
    os.link("m/ranker/ranker/0.model/W.npz", "hard-part.npz")
    os.symlink("m", "model")
    os.symlink("m/ranker", "rankers")
    os.makedirs("sub")
    os.symlink(os.path.abspath("sub"), "exp/sub")
    shutil.copytree("m", "link")
    shutil.move("link/ranker", "blob")
    os.symlink(os.path.abspath("blob"), "link/ranker")
    return tmp_path


def write(name, content):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "w") as file:
        file.write(content)


INPUTS = {"-x": ["X.npz", "exp/X.npz"], "-y": "Y.npz", "-t": None, "-m": "m", "-c": "m/tree"}


@pytest.mark.parametrize(
    "path",
    ["pred.npz", "m/pred.npz", "m/Pt.npz", "old/Pt.npz", "pecos/Pt.npz", "exp/pred.npz", "exp/encoder/x.npz",
     "new/deep/pred.npz", "m/predictions/a.npz", "served/pred.npz", "served/1/notes.txt", "exp/params.json", None],
)  # fmt: skip
def test_other_files_are_accepted_beside_a_models_parts_too(place, path):
    check_output_path("-o", path, INPUTS, None)


PARTS = [
    "m/params.json", "m/labels.txt", "m/tree", "m/tree/C0.npz", "m/tree/new.npz", "m/ranker/ranker/0.model/W.npz",
    "m/head/new.npz", "m/./tree/../ranker/x.npz", "old/params.json", "old/ranker/x", "pecos/param.json",
    "pecos/ranker/0.model/W.npz", "pecos/ranker/x.npz", "served/1/saved_model.pb", "served/1/variables/x",
    "served/1/assets.extra/xmc_tf.json", "m/RANKER/x.npz", "m/Params.JSON",
]  # fmt: skip


@pytest.mark.parametrize("path", PARTS)
@pytest.mark.parametrize("absolute", [False, True])
def test_parts_of_a_model_are_refused_whether_they_exist_or_not(place, path, absolute):
    caught = refused("is part of the", check_output_path, "-o", place / path if absolute else path, {})
    assert str(caught).startswith("-o ")
    assert "give another name with -o" in caught.fix


# A path, what the command reads besides, and why the path is refused.
REFUSED = [
    ("X.npz", INPUTS, "-o X.npz is also the input -x X.npz"),
    ("exp/../X.npz", INPUTS, "-o exp/../X.npz is also the input -x X.npz"),
    ("exp/X.npz", INPUTS, "-o exp/X.npz is also the input -x exp/X.npz"),
    ("./Y.npz", INPUTS, "-o ./Y.npz is also the input -y Y.npz"),
    ("soft.npz", INPUTS, "is also the input -x"),
    ("hard.npz", INPUTS, "is also the input -x"),
    ("hard-part.npz", INPUTS, "is also the input -m m"),
    ("exp/sub/../X.npz", INPUTS, "is also the input -x"),  # ".." of the folder that the link leads to
    ("model/tree/new.npz", {}, "is part of the model in"),
    ("rankers/new.npz", {}, "is part of the model in"),
    ("rankers/../params.json", {}, "is part of the model in"),
    ("exp/encoder/config.json", {"-e": "exp/encoder"}, "is also the input -e exp/encoder"),
    ("link/ranker/new.npz", {}, "is part of the model in"),  # its rankers are a link to another disk
    ("blob/ranker/0.model/W.npz", {"-m": "link"}, "is also the input -m link"),
]


@pytest.mark.parametrize(("path", "inputs", "message"), REFUSED)
def test_inputs_and_parts_are_refused_by_whatever_way_they_are_named(place, path, inputs, message):
    refused(message, check_output_path, "-o", path, inputs)


def test_new_files_beside_what_is_read_are_accepted(place):
    check_output_path("-o", "exp/encoder/new.npz", {"-e": "exp/encoder"})
    check_output_path("-o", "blob/new.npz", {})
    check_output_path("-o", "a/b", {"-e": "bert-base-cased"})


def test_parts_reached_from_within_a_part(place, monkeypatch):
    monkeypatch.chdir("m/ranker/ranker")
    for path in ("x.npz", "0.model/W.npz", "../../params.json"):
        refused("is part of the model", check_output_path, "-o", path, {})


@pytest.mark.parametrize("content", ["", "[1]", "{", "[" * 100_000])
def test_a_damaged_header_is_still_a_models_where_its_parts_are(place, content):
    write("m/params.json", content)
    write("exp/params.json", content)
    check_output_path("-o", "exp/params.json", {}, None)
    refused("is part of the model", check_output_path, "-o", "m/tree/C0.npz", {})


def test_a_folder_for_a_model(place):
    for path in (".", "exp"):  # among other files
        refused(f"-m {path} holds files that are not part of a model", refuse_model_folder, "-m", path, {})
    os.makedirs("disk/lost+found")
    for name in ("disk/.keep", "disk/train.log"):
        open(name, "w").close()
    for path in ("new", "m", "old", "exp/model", "served/2", "disk"):
        refuse_model_folder("-m", path, {"-x": "X.npz", "-y": "exp/X.npz"})
    for path in ("m/sub", "old/a/b", "pecos/sub", "served/1/2", "m/tree"):
        refused("lies inside the", refuse_model_folder, "-m", path, {})
    refused(r"-m X\.npz is also the input -x X\.npz", refuse_model_folder, "-m", "X.npz", {"-x": "X.npz"})


@pytest.mark.parametrize(
    ("read", "folder", "export"),
    [("exp/params.json", "exp", False), ("exp/encoder", "exp", False), ("m/tree", "m", False),
     ("m/labels.txt", "./m", False), ("served/1/assets.extra/xmc_tf.json", "served/1", True)],
)  # fmt: skip
def test_a_model_does_not_replace_what_it_is_made_from(place, read, folder, export):
    with pytest.raises(InputError, match="would replace") as caught:
        refuse_model_folder("-m", folder, {"--input": read}, export=export)
    assert "which is the input --input" in str(caught.value)


def test_a_model_may_be_trained_again_on_its_own_tree(place):
    refuse_model_folder("-m", "m", {"-c": "m/tree"}, unchanged=("-c",))
    for folder, read in (("exp", "exp/tree"), ("m", "m/head")):
        os.makedirs(read)
        with pytest.raises(InputError, match="would replace"):
            refuse_model_folder("-m", folder, {"-c" if folder == "exp" else "-x": read}, unchanged=("-c",))


def test_a_model_is_not_exported_into_itself(place):
    refused("is also the input -m", refuse_model_folder, "-o", "m", {"-m": "m"}, export=True)
    refused("lies inside the model", refuse_model_folder, "-o", "m/1", {"-m": "m"}, export=True)


def test_a_work_folder_holds_no_input(place):
    refuse_work_folder("--work-dir", "work", INPUTS)
    with pytest.raises(InputError, match=r"exp, the work folder of --work-dir, holds exp/X\.npz.* the input -x"):
        refuse_work_folder("--work-dir", "exp", INPUTS)
    refused("is part of the model", refuse_work_folder, "--work-dir", "old/head", INPUTS)


_WRITER = """
import sys
from xmc_tf.store.files import atomic_file
with atomic_file(sys.argv[1]) as part:
    part.write_text("half")
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_run_left_of_an_output_is_removed_and_what_another_run_writes_stays(tmp_path, caplog):
    caplog.set_level("INFO")
    output = tmp_path / "pred.npz"
    (tmp_path / ".pred.new-backup1.npz").write_text("mine")
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, output], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        for writer in writers:
            assert writer.stdout.readline() == b"writing\n"
        writers[0].kill()
        writers[0].wait()
        check_output_path("-o", output, {})
        assert len(list(tmp_path.glob(".pred.xmc_tf-????????.npz"))) == 1
        assert caplog.text.count("left by an interrupted run") == 1
        writers[1].communicate(timeout=60)
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    assert output.read_text() == "half"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".pred.new-backup1.npz", "pred.npz"]


def test_only_files_of_the_command_are_replaced(place):
    write("mine.csv", "my own table\n")
    write("old.csv", "line,text\n1,a\n")
    write("empty.csv", "")
    for path in ("old.csv", "empty.csv", "new.csv"):
        check_output_path("-o", path, {}, ["line,text"])
    with pytest.raises(InputError, match=r"-o mine\.csv exists and was not written by this command"):
        check_output_path("-o", "mine.csv", {}, ["line,text"])
    check_output_path("-o", "mine.csv", {}, ["line,text"], force=True)


def test_matrices_are_replaced_by_the_command_that_wrote_them(place):
    Y = csr_matrix(np.eye(3, dtype=np.float32))
    for path, matrix, mark in (("P.npz", Y, MATRIX_OF_PREDICTIONS), ("X.npy", Y.toarray(), EMBEDDINGS)):
        save_matrix(path, matrix, mark=mark)
        np.testing.assert_array_equal(load_matrix(path) @ np.eye(3), np.eye(3))
        check_output_path("-o", path, {}, [mark])
        save_matrix(path, matrix)
        refused("was not written by this command", check_output_path, "-o", path, {}, [mark])
    np.save("zeros.npy", np.zeros((9, 300), np.uint8))
    save_matrix("Y.npz", Y, mark=LABELS)  # of preprocess run -y; typed for the output of a prediction
    for path in ("zeros.npy", "Y.npz"):
        refused("--force", check_output_path, "-o", path, {}, [*PREDICTIONS, EMBEDDINGS])


@pytest.mark.parametrize(
    ("path", "reason"),
    [("exp", "a folder"), ("Y.npz/x.csv", "Not a directory"), ("loop/x.csv", "Too many levels"), ("pipe", "a pipe"),
     ("x" * 300, "File name too long")],
)  # fmt: skip
def test_places_that_cannot_be_written(place, path, reason):
    os.symlink("loop", "loop")
    os.mkfifo("pipe")
    refused(f"cannot be written(.|\n)*received: .*{reason}", check_output_path, "-o", path, {})
    if path not in ("exp", "pipe"):
        refused(f"cannot be written(.|\n)*received: .*{reason}", refuse_model_folder, "-m", path, {})
    for folder in ("Y.npz", "Y.npz/report", "pipe"):
        refused("cannot be written", check_output_folder, "--report", folder, {})


def test_two_outputs_are_two_files(place):
    refuse_same_outputs({"-x": "a.npz", "-y": "b.npz", "-r": None})
    for other in ("a.npz", "./a.npz", "exp/../a.npz"):
        refused("-x and -y are the same file", refuse_same_outputs, {"-x": "a.npz", "-y": other})


@pytest.mark.parametrize("path", ["m", "m/data", "served/1", "old/deep/data"])
def test_folders_of_data_do_not_lie_in_models(place, path):
    refuse_other_folder("-o", "data")
    refuse_other_folder("-o", "exp")
    refused(r"is inside the (model|export)", refuse_other_folder, "-o", path)
