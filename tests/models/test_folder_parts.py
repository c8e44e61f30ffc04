"""The table of parts: all files that models write are in it, and nothing is staged twice."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import xmc_tf
from xmc_tf.common.errors import InputError
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import XRLinearParams
from xmc_tf.store import publishing
from xmc_tf.store.checksums import MODEL_HEADER
from xmc_tf.store.models import CHAIN, PARTS, RANKERS, TFIDF

TEXTS = [f"red apple {n % 7}" if n % 2 else f"blue sea wave {n % 5}" for n in range(60)]
LABELS = [["fruit", f"kind {n % 7}"] if n % 2 else ["water"] for n in range(60)]


def test_the_table_has_every_part_that_a_model_writes(tmp_path, monkeypatch):
    temporary, beside = [], publishing.temporary_folder_beside
    monkeypatch.setattr(
        publishing, "temporary_folder_beside", lambda folder: temporary.append(folder) or beside(folder)
    )
    model = XRLinear.train(TEXTS, LABELS, params=XRLinearParams(), keep_training_data=True)
    model.save(tmp_path / "model")
    place = tmp_path / "model"
    files = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}
    assert files == {MODEL_HEADER, *json.loads((place / MODEL_HEADER).read_text())["files"]}
    assert {name.partition("/")[0] for name in files} <= {part.name for part in PARTS}
    for part, kind in (("ranker", RANKERS), ("tree", CHAIN), ("features", TFIDF)):
        kind.check_place(place / part)
        assert all(kind.has_part(path.name) for path in (place / part).iterdir())
    assert temporary == [tmp_path / "model"], "a part was placed on its own"


def test_a_full_disk_is_reported_with_the_file_and_leaves_nothing(tmp_path):
    """Files have a limit of size in a process of its own, from none at all to nearly enough."""
    program = (
        "import resource, signal, sys\n"
        "from xmc_tf.models.xr_linear import XRLinear\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "model = XRLinear.train([f'red {n % 7}' for n in range(60)], [[str(n % 7)] for n in range(60)])\n"
        "for size in (0, 100, 700, 1500):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))\n"
        "    try:\n"
        "        model.save('model')\n"
        "    except OSError as error:\n"
        "        print(error.filename)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(xmc_tf.__file__).parents[1])}
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=200, env=environment
    )
    assert run.returncode == 0, run.stderr
    assert "Exception ignored" not in run.stderr
    named = run.stdout.splitlines()
    assert len(named) == 4
    assert all(name.startswith(str(tmp_path / "model")) for name in named), named
    assert list(tmp_path.iterdir()) == []


def test_damage_to_the_evidence_of_names_is_found(tmp_path):
    texts = ["soup with cooking herbs", "herbs for gardening", "bread", "cooking bread"]
    XRLinear.train(texts, [["cooking"], ["gardening"], ["cooking"], ["cooking"]], label_names=True).save(tmp_path / "m")
    for name in ("fusion/documents.npy", "fusion/fusion.json", "label_names/names.npz"):
        content = (tmp_path / "m" / name).read_bytes()
        for damaged in (b"", content[:-3] + bytes([content[-3] ^ 1]) + content[-2:], content[:-7]):
            (tmp_path / "m" / name).write_bytes(damaged)
            with pytest.raises(InputError, match=r"is damaged: its (size|content) has changed"):
                XRLinear.load(tmp_path / "m").best(["soup"])
        (tmp_path / "m" / name).write_bytes(content)
