"""The output of frozen layers: written block by block, resumed, checked, and left out where the disk is too small."""

import logging
import shutil

import numpy as np
import pytest

import xmc_tf.encoder
from tests.collective.threads import on_ranks
from tests.encoder.tiny import VOCABULARY, tiny_encoder
from tests.pipeline.corpus import train_flags
from tests.refusals import refused
from xmc_tf import train
from xmc_tf.data import TokenStore
from xmc_tf.encoder import Encoder
from xmc_tf.matcher import fine_tune
from xmc_tf.pipeline import frozen_layers, steps
from xmc_tf.pipeline.frozen_layers import with_frozen_layers
from xmc_tf.pipeline.stages import Stages
from xmc_tf.ranks.solo import Solo


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return 40 documents of one or two windows of up to nine tokens, one of which is empty."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("store") / "tokens"
    with TokenStore.create(folder) as writer:
        windows = [rng.integers(10, VOCABULARY, length) for length in (0, *rng.integers(1, 10, 44))]
        writer.write(windows, np.array([2] * 5 + [1] * 35))
    return TokenStore.open(folder)


def frozen_encoder(seed=0):
    encoder = tiny_encoder("bert", pooling="mean", seed=seed)
    encoder.freeze("half")
    return encoder


encoder = pytest.fixture(scope="module")(lambda: frozen_encoder())


@pytest.fixture(scope="module", autouse=True)
def whole(tmp_path_factory, encoder, store):
    """Return the work folder of a run that nobody disturbed. Blocks are small in this module."""
    folder = tmp_path_factory.mktemp("whole") / "work"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frozen_layers, "BLOCK", 8)
        make(folder, encoder, store)
        yield folder


def make(folder, encoder, store, world=None):
    return with_frozen_layers(encoder, store, Stages(folder, world or Solo()), "frozen")


def content(folder):
    return (folder / "frozen" / "states.npy").read_bytes()


def damage(path, place):
    """Change one bit of a file."""
    changed = bytearray(path.read_bytes())
    changed[place] ^= 1
    path.write_bytes(changed)


def fails_once(patch, owner, name, after):
    """Have a function fail once, after some calls; return the list of its calls."""
    real, calls = getattr(owner, name), []

    def call(*given, **more):
        calls.append(name)
        if len(calls) == after + 1:
            raise OSError("interrupted")
        return real(*given, **more)

    patch.setattr(owner, name, call)
    return calls


@pytest.mark.parametrize(("precision", "name", "atol"), [("off", "float32", 1e-6), ("bf16", "bfloat16", 0.05)])
def test_the_store_gives_the_output_of_the_frozen_layers(tmp_path, whole, encoder, store, precision, name, atol):
    half = frozen_encoder()
    half.compute_in(precision)
    states, rows = make(tmp_path / "work", half, store), np.array([40, 3, 0, 7])
    ids, mask = store.padded(rows, pad_id=0)
    found, same = states.padded(rows, pad_id=0)
    np.testing.assert_array_equal(same, mask)
    assert found.dtype.name == name
    expected = encoder.frozen_states(ids, mask) * mask[:, :, None]
    np.testing.assert_allclose(found.astype(np.float32), expected, atol=atol)
    np.testing.assert_allclose(half.embed(found, mask), encoder.embed(ids, mask), atol=5 * atol)
    assert (len(content(tmp_path / "work")) < 0.6 * len(content(whole))) == (precision != "off")


def test_three_ranks_and_an_interrupted_run_write_the_same_bytes(tmp_path, whole, encoder, store, monkeypatch):
    on_ranks(3, lambda world: make(tmp_path / "three", encoder, store, world))
    assert content(tmp_path / "three") == content(whole)
    asked = fails_once(monkeypatch, encoder, "frozen_states", 3)
    with pytest.raises(OSError, match="interrupted"):
        make(tmp_path / "work", encoder, store)
    make(tmp_path / "work", encoder, store)
    assert len(asked) == 4 + 3  # the first three blocks are not computed again
    assert content(tmp_path / "work") == content(whole)


def test_a_damaged_file_is_named_and_one_of_other_weights_replaced(tmp_path, whole, encoder, store):
    work = shutil.copytree(whole, tmp_path / "work")
    path = work / "frozen" / "states.npy"
    damage(path, -1)
    refused(r"frozen/states\.npy is damaged(.|\n)*delete .*frozen, and run", make, work, encoder, store)
    shutil.rmtree(work / "frozen")  # as the error says
    make(work, encoder, store)
    assert content(work) == content(whole)
    other = frozen_encoder(seed=1)
    make(work, other, store)
    assert content(work) != content(whole)
    other.weights["layer.1.out.bias"].assign_add(np.ones(16, np.float32))  # not frozen
    before = path.stat().st_mtime_ns
    make(work, other, store)
    assert path.stat().st_mtime_ns == before


def test_the_size_is_said_and_a_disk_that_is_too_small(tmp_path, encoder, store, monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="xmc_tf")
    make(tmp_path / "roomy", encoder, store)
    assert f"is computed once: it takes 0 MB in {tmp_path / 'roomy'}" in caplog.text
    monkeypatch.setattr(frozen_layers.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 0))
    assert make(tmp_path / "small", encoder, store) is store
    assert "computed again in each pass: their output takes 0 MB" in caplog.text
    assert make(tmp_path / "roomy", encoder, store) is not store  # it is there


@pytest.mark.full
def test_a_training_interrupted_in_each_part_ends_with_the_same_bytes(corpus, tmp_path, monkeypatch):
    """It is interrupted while it writes the output of the frozen layers, and in each stage that reads it.

    The layer above them is trained by adapters, which are added to its four matrices.
    """
    validation = ["-tt", corpus / "X.tst.txt", "-yt", corpus / "Y.tst.npz", "-ns", "tfn+man"]

    def run(name):
        flags = *validation, "--train-layers", 1, "--lora-rank", 2, "--keep-work"
        train.main(train_flags(corpus, tmp_path / name, *flags))

    run("whole")
    for failing in (
        (xmc_tf.encoder, "frozen_states", 2),
        (fine_tune, "save_training", 3),
        (steps, "embed_documents", 0),
    ):
        fails_once(monkeypatch, *failing)
        with pytest.raises((SystemExit, OSError)):
            run("broken")
    run("broken")
    names = ["frozen-layers/states.npy", "frozen-layers-validation/states.npy", "embeddings/E.npy"]
    for path in (*(f"{{}}.work/{name}" for name in names), "{}/encoder/model.safetensors"):
        broken, whole = (tmp_path / path.format(name) for name in ("broken", "whole"))
        assert broken.read_bytes() == whole.read_bytes(), path
    before, after = (Encoder.load(folder).weights for folder in (corpus / "encoder", tmp_path / "broken" / "encoder"))
    assert before.keys() == after.keys()
    ranks = {name: np.linalg.matrix_rank(np.atleast_2d(after[name] - one), 1e-5) for name, one in before.items()}
    matrices = {"layer.0.qkv.kernel", "layer.0.out.kernel", "layer.0.inner.kernel", "layer.0.outer.kernel"}
    assert {name: rank for name, rank in ranks.items() if rank} == dict.fromkeys(matrices, 2)
