"""The output of frozen layers: written block by block, resumed, checked, and left out where the disk is too small."""

import logging
import shutil

import numpy as np
import pytest

import xmc_tf.encoder
from tests.collective.threads import on_ranks
from tests.encoder.tiny import VOCABULARY, tiny_encoder
from tests.pipeline.corpus import train_flags
from xmc_tf import train
from xmc_tf.common.errors import InputError
from xmc_tf.data import TokenStore
from xmc_tf.encoder import Encoder
from xmc_tf.matcher import fine_tune
from xmc_tf.pipeline import frozen_layers, steps
from xmc_tf.pipeline.frozen_layers import with_frozen_layers
from xmc_tf.pipeline.stages import Stages
from xmc_tf.ranks.solo import Solo

WINDOWS = 45


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Documents of one or two windows of up to nine tokens, one of which is empty."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("store") / "tokens"
    with TokenStore.create(folder) as writer:
        lengths = [0, *rng.integers(1, 10, WINDOWS - 1)]
        writer.write([rng.integers(10, VOCABULARY, length) for length in lengths], np.array([2] * 5 + [1] * 35))
    return TokenStore.open(folder)


@pytest.fixture(scope="module")
def encoder():
    encoder = tiny_encoder("bert", pooling="mean")
    encoder.freeze("half")
    return encoder


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(frozen_layers, "BLOCK", 8)


def make(folder, encoder, store, world=None):
    return with_frozen_layers(encoder, store, Stages(folder, world or Solo()), "frozen")


def content(folder):
    return (folder / "frozen" / "states.npy").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory, encoder, store):
    """Return the work folder of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "work"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frozen_layers, "BLOCK", 8)
        make(folder, encoder, store)
    return folder


def test_the_store_gives_the_output_of_the_frozen_layers(whole, encoder, store):
    states = make(whole, encoder, store)
    rows = np.array([40, 3, 0, 7])
    ids, mask = store.padded(rows, pad_id=0)
    found, same = states.padded(rows, pad_id=0)
    np.testing.assert_array_equal(same, mask)
    np.testing.assert_allclose(found, encoder.frozen_states(ids, mask) * mask[:, :, None], atol=1e-6)
    assert states.nr_documents == store.nr_documents == 40
    assert states.padded([], pad_id=0)[0].shape == (0, 0, encoder.dim)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_takes_half_the_bytes(tmp_path, whole, encoder, store, precision, monkeypatch):
    monkeypatch.setattr(encoder, "precision", precision)
    monkeypatch.setattr(encoder, "_graphs", {})
    found, mask = make(tmp_path / "work", encoder, store).padded(np.arange(WINDOWS), pad_id=0)
    single, _ = make(whole, tiny_copy(encoder), store).padded(np.arange(WINDOWS), pad_id=0)
    assert found.dtype.name == {"bf16": "bfloat16", "fp16": "float16"}[precision]
    np.testing.assert_allclose(found.astype(np.float32), single, atol=0.05)
    np.testing.assert_allclose(encoder.embed(found, mask), tiny_copy(encoder).embed(single, mask), atol=0.05)
    assert len(content(tmp_path / "work")) < 0.6 * len(content(whole))


def tiny_copy(encoder):
    copy = tiny_encoder("bert", pooling="mean")
    copy.freeze("half")
    return copy


def test_three_ranks_and_an_interrupted_run_write_the_same_bytes(tmp_path, whole, encoder, store, monkeypatch):
    on_ranks(3, lambda world: make(tmp_path / "three", encoder, store, world))
    assert content(tmp_path / "three") == content(whole)

    real, asked = encoder.frozen_states, []

    def failing(ids, mask):
        asked.append(len(ids))
        if len(asked) == 4:
            raise OSError("killed")
        return real(ids, mask)

    monkeypatch.setattr(encoder, "frozen_states", failing)
    with pytest.raises(OSError, match="killed"):
        make(tmp_path / "work", encoder, store)
    path = tmp_path / "work" / "frozen.part" / "states.npy"
    damaged = bytearray(path.read_bytes())
    damaged[200] ^= 1  # in the first block
    path.write_bytes(damaged)
    make(tmp_path / "work", encoder, store)
    assert len(asked) == 4 + 1 + 3  # blocks: of the first three, only the damaged one is computed again
    assert content(tmp_path / "work") == content(whole)


def test_a_damaged_file_is_named_and_one_of_other_weights_replaced(tmp_path, whole, encoder, store):
    work = tmp_path / "work"
    shutil.copytree(whole, work)
    path = work / "frozen" / "states.npy"
    damaged = bytearray(content(work))
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(InputError, match=r"frozen/states\.npy is damaged(.|\n)*delete .*frozen, and run") as error:
        make(work, encoder, store)
    shutil.rmtree(work / "frozen")  # as the error says
    make(work, encoder, store)
    assert content(work) == content(whole), error

    other = tiny_encoder("bert", pooling="mean", seed=1)
    other.freeze("half")
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
    assert not (tmp_path / "small" / "frozen").exists()
    assert make(tmp_path / "roomy", encoder, store) is not store  # it is there


@pytest.mark.full
def test_a_training_interrupted_in_each_part_ends_with_the_same_bytes(corpus, tmp_path, monkeypatch):
    """It is interrupted while it writes the output of the frozen layers, and in each stage that reads it."""
    validation = ["-tt", corpus / "X.tst.txt", "-yt", corpus / "Y.tst.npz", "-ns", "tfn+man"]

    def run(name):
        flags = train_flags(corpus, tmp_path / name, *validation, "--train-layers", 1, "--keep-work")
        train.main([*flags, "--labels", str(corpus / "labels.txt")])

    def interrupted(module, name, after):
        real, calls = getattr(module, name), []

        def call(*given, **more):
            calls.append(name)
            if len(calls) > after:
                raise OSError("interrupted")
            return real(*given, **more)

        with monkeypatch.context() as patch:
            patch.setattr(module, name, call)
            with pytest.raises((SystemExit, OSError)):
                run("broken")
        assert len(calls) > after

    run("whole")
    interrupted(xmc_tf.encoder, "frozen_states", 2)
    interrupted(fine_tune, "save_training", 3)
    interrupted(steps, "embed_documents", 0)
    run("broken")
    names = ["frozen-layers/states.npy", "frozen-layers-validation/states.npy", "embeddings/E.npy"]
    found = {one: [(tmp_path / f"{one}.work" / name).read_bytes() for name in names] for one in ("whole", "broken")}
    assert found["broken"] == found["whole"]
    weights = [(tmp_path / one / "encoder" / "model.safetensors").read_bytes() for one in found]
    assert weights[0] == weights[1]
    before, after = (Encoder.load(folder).weights for folder in (corpus / "encoder", tmp_path / "broken" / "encoder"))
    same = {name for name, one in before.items() if np.array_equal(one, after[name])}
    assert {"words", "positions"} <= same
    assert "layer.0.qkv.kernel" not in same
