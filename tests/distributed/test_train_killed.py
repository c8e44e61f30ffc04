"""Tests of trainings that are killed in each stage, at random times, and resumed by the same command.

A chain is one training, killed once in each of some stages: a run goes through the stage that the run before it was
killed in, and is killed in a later one. In the end there is the model of the training that nobody disturbed.

``XMC_TF_KILLS=5 pytest tests/distributed/test_train_killed.py`` runs five chains through all stages in which one rank
is killed and five in which all are, 120 kills; otherwise it is one chain through the stages that resume in different
ways, in which one or all are killed, as chance has it. Copies of what some kills leave behind resume on other numbers
of ranks. Other chains train only the upper layers: they are killed while the output of the frozen layers is written and
while it is read, and find it damaged, or computed with other weights.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from tests.distributed.launch import horovodrun, python, wait_for
from tests.pipeline.corpus import texts_and_labels, train_flags, write_corpus
from xmc_tf.data import TokenStore
from xmc_tf.encoder import Encoder
from xmc_tf.metrics import measure
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.pipeline.frozen_layers import with_frozen_layers
from xmc_tf.pipeline.stages import Stages
from xmc_tf.ranks.solo import Solo

pytestmark = [pytest.mark.distributed, pytest.mark.full]

STAGES = ["features", "encoder", "first-tree", "tokens", "level_1", "level_2", "heads", "embeddings", "tree", "rankers",
          "documents", "model", "removal"]  # fmt: skip
# Chains of each kind; the first is killed in the first fifth of each stage, and so on.
RUNS = int(os.environ.get("XMC_TF_KILLS", "0"))
# Resumed by a checkpoint, by sub-problems, and while the model is placed.
DIFFERENT = ["level_1", "rankers", "removal"]
# Of a training with frozen layers: their output is written in the first, and read in the others.
FROZEN = ["frozen-layers", "level_1", *(["level_2"] if RUNS else []), "embeddings"]
UPPER = ["--train-layers", "half", "--keep-work"]
STATES = "frozen-layers/states.npy"
CHAINS = [(whom, number) for whom in ("one", "all") for number in range(RUNS)] or [("any", 0)]
TAKEN_OVER = {"level_1": 3, "rankers": 1} | ({"level_2": 1, "embeddings": 3} if RUNS else {})
SEED = os.environ.get("XMC_TF_TEST_SEED", "0")
GLOBAL_BATCH = 24


@pytest.fixture(scope="module")
def folder():
    """Return a folder in memory, if there is room: the tests are about kills, not about power failures."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 1 << 28
    with tempfile.TemporaryDirectory(prefix="xmc-tf-killed-", dir=memory if roomy else None) as name:
        yield write_corpus(Path(name), documents=240, held_out=1000, confused=0.35)


@pytest.fixture(scope="module")
def warmly(fast_start):
    """Return the beginning of command lines that start fast: there are over 100 runs."""
    return fast_start(True)


def train(warmly, folder, model, plan=None, world=2, batch=None, flags=(), **options):
    """Run the training, which the plan may have wait in a stage."""
    told = {"times": str(folder / f"{model}.times"), **(plan or {})}
    more = [
        "-ns", "tfn+man", "--batch-size", batch or GLOBAL_BATCH // world, "--max-steps", 6, "--learning-rate", 0.003,
        "--probabilities", "false", *flags,
    ]  # fmt: skip
    flags = train_flags(folder, folder / model, *more)
    return horovodrun("killed_training.py", json.dumps(told), *flags, world=world, warm=warmly, timeout=300, **options)


@pytest.fixture(scope="module")
def uninterrupted(warmly, folder):
    """Return the model of the uninterrupted training."""
    train(warmly, folder, "uninterrupted")
    gone_through = [json.loads(line)[0] for line in (folder / "uninterrupted.times").read_text().splitlines()]
    assert gone_through == STAGES
    return XTransformer.load(folder / "uninterrupted")


def lasts(folder, stage, uninterrupted="uninterrupted"):
    """Return the seconds of a stage in the fastest run so far; the first one may have compiled kernels."""
    runs = sorted(folder.glob("*.times")) if "level" not in stage else [folder / f"{uninterrupted}.times"]
    lines = [json.loads(line) for run in runs for line in run.read_text().splitlines()]
    return min(took for name, took in lines if name == stage)


def precisions(model, folder):
    """Return P@1, 3 and 5 in percent on held-out documents, of the rankers and of the label head."""
    texts, Y = texts_and_labels(folder, "tst")
    found = []
    for method in ("concat-only", "transformer-only"):
        overall, *_ = measure(Y, model.predict(texts, ensemble_method=method), ks=[1, 3, 5])
        found += [100 * overall.at("P", k) for k in (1, 3, 5)]
    return found


def assert_same(model, other, folder):
    texts, _ = texts_and_labels(folder, "tst")
    for method in ("concat-only", "transformer-only"):
        ours, theirs = (one.predict(texts, ensemble_method=method) for one in (model, other))
        np.testing.assert_array_equal(ours.indptr, theirs.indptr)
        np.testing.assert_allclose(ours.data, theirs.data, atol=1e-4)
        assert abs(ours - theirs).max() < 1e-4  # the same labels


def killed(warmly, folder, model, stage, after, victims, *, made=False, flags=()):
    """Run a training that is killed in a stage, so many seconds after its beginning, and return its output."""
    mark, struck = (folder / f"{model}.{name}" for name in ("mark", "struck"))
    for file in (mark, struck):
        file.unlink(missing_ok=True)

    def strike(ranks):
        wait_for(mark.exists, 300, f"{stage} of {model}", often=0.001)
        time.sleep(after)
        # Rank 0 last, which keeps all ranks in the stage.
        for victim in sorted(victims, reverse=True):
            with contextlib.suppress(ProcessLookupError):  # its launcher was faster
                os.kill(int((ranks / f"{victim}.pid").read_text()), signal.SIGKILL)
        struck.touch()

    plan = {"stage": stage, "mark": str(mark), "struck": str(struck), "made": made}
    run = train(warmly, folder, model, plan, flags=flags, check=False, during=strike)
    print(f"{model}: {stage}, after {1000 * after:.0f} ms, ranks {victims}; over after {run.seconds:.1f} s")
    assert run.returncode not in (0, None), run.describe()
    # The model appears complete. While it is placed, the kill may come just after the rename.
    there = (folder / model).exists()
    assert there == (stage == "removal") or stage == "model"
    assert not there or XTransformer.load(folder / model)
    return run


def assert_resumed_on(world, warmly, folder, model, uninterrupted):
    """Resume a copy of a killed training of two ranks on another number, by its command, with its batch per rank."""
    copy = f"{model}-on-{world}"
    shutil.copytree(folder / f"{model}.work", folder / f"{copy}.work")
    run = train(warmly, folder, copy, world=world, batch=GLOBAL_BATCH // 2)
    assert "reused from an earlier run" in run.ranks[0].output
    found, expected = (precisions(one, folder) for one in (XTransformer.load(folder / copy), uninterrupted))
    print(f"{expected} uninterrupted, {found} on {world}")
    assert found[0] == pytest.approx(expected[0], abs=0.5)
    assert 50 < expected[0] < 95  # better than chance


@pytest.mark.parametrize(("whom", "number"), CHAINS)
def test_a_training_killed_in_each_stage_resumes(warmly, folder, uninterrupted, whom, number):
    chance, model = random.Random(f"{SEED} {whom} {number}"), f"{whom}-{number}"
    print(f"XMC_TF_TEST_SEED={SEED}")
    finished = []
    for stage in STAGES if RUNS else DIFFERENT:
        after = lasts(folder, stage) * (number + chance.random()) / max(RUNS, 1)
        one = whom == "one" or (whom == "any" and chance.random() < 0.5)
        # The other rank may have ended while rank 0 removes the work folder.
        victims = [0 if stage == "removal" else chance.randrange(2)] if one else [0, 1]
        # Late kills wait at the end of the stage if it is faster than in the first run.
        run = killed(warmly, folder, model, stage, after, victims, made=number == RUNS - 1)
        # All stages before the one in which the previous run was killed are kept, and logged as such.
        for before in finished:
            if before not in ("tokens", "level_1", "level_2", "heads"):
                assert f"{before}: reused from an earlier run" in run.ranks[0].output, run.describe()
        finished = STAGES[: STAGES.index(stage)]
        if number == 0 and stage in TAKEN_OVER:
            assert_resumed_on(TAKEN_OVER[stage], warmly, folder, model, uninterrupted)
    assert_same(XTransformer.load(folder / model), uninterrupted, folder)
    shutil.rmtree(folder / model)
    # Nothing incomplete is left; the next run takes over the lock of a killed one.
    assert not [path for path in folder.glob(f".{model}*") if path.suffix != ".lock"]


@pytest.fixture(scope="module")
def upper(warmly, folder):
    """Return what an uninterrupted training of the upper layers alone has written."""
    train(warmly, folder, "upper", flags=UPPER)
    return written(folder, "upper")


def written(folder, model):
    """Return the bytes of the output of the frozen layers, and of what was learned from it."""
    work, model = folder / f"{model}.work", folder / model
    paths = [work / STATES, work / "embeddings/E.npy", model / "encoder/model.safetensors", *model.rglob("*.npz")]
    return {path.name + path.parent.name: path.read_bytes() for path in paths}


def damage(path):
    """Change one bit in the middle of a file."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def compute_with_other_weights(work, encoder):
    """Replace the output of the frozen layers with that of an encoder with other word embeddings."""
    other = Encoder.load(encoder)
    other.weights["words"].assign(other.weights["words"] * 2)
    other.freeze("half")
    other.compute_in("bf16" if np.load(work / STATES, mmap_mode="r").dtype == np.uint16 else "off")
    with_frozen_layers(other, TokenStore.open(work / "tokens"), Stages(work, Solo()), "frozen-layers")


@pytest.mark.parametrize(("whom", "number"), CHAINS)
def test_a_training_killed_while_frozen_layers_are_written_or_read_resumes(warmly, folder, upper, whom, number):
    chance, model = random.Random(f"{SEED} frozen {whom} {number}"), f"upper-{whom}-{number}"
    print(f"XMC_TF_TEST_SEED={SEED}")
    work = folder / f"{model}.work"
    for stage in FROZEN:
        after = lasts(folder, stage, "upper") * (number + chance.random()) / max(RUNS, 1)
        one = whom == "one" or (whom == "any" and chance.random() < 0.5)
        killed(
            warmly, folder, model, stage, after, [chance.randrange(2)] if one else [0, 1], made=number == RUNS - 1,
            flags=UPPER,
        )  # fmt: skip
        if stage == "level_1":
            assert (work / STATES).read_bytes() == upper["states.npyfrozen-layers"]
            damage(work / STATES)
            run = train(warmly, folder, model, flags=UPPER, check=False)
            assert run.returncode not in (0, None), run.describe()
            assert f"{STATES} is damaged" in run.ranks[0].output, run.describe()
            assert f"delete {work / 'frozen-layers'}, and run" in run.ranks[0].output, run.describe()
            shutil.rmtree(work / "frozen-layers")  # as the error says
        elif stage == FROZEN[-1]:
            compute_with_other_weights(work, folder / "encoder")
            assert (work / STATES).read_bytes() != upper["states.npyfrozen-layers"]
    train(warmly, folder, model, flags=UPPER)
    assert written(folder, model) == upper
    for path in (work, folder / model):
        shutil.rmtree(path)


def test_a_full_disk_is_reported_and_finished_stages_are_kept(warmly, folder):
    """The disk is full in the first stage, then at a checkpoint, and then large enough."""
    flags = train_flags(folder, folder / "full", "-ns", "tfn+man", "--text-only")
    for limit in (16_000, 40_000):  # the encoder's weights; a checkpoint of its fine-tuning
        run = python("training_on_full_disk.py", str(limit), *flags, warm=warmly, timeout=300, check=False)
        said = run.ranks[0].output
        assert run.returncode == 1, run.describe()
        assert "Traceback" not in said
        assert "File too large" in said.splitlines()[-1]
        assert not (folder / "full").exists()
    run = python("module:xmc_tf.train", *flags, warm=warmly, timeout=300)
    assert "encoder: reused from an earlier run" in run.ranks[0].output
    assert XTransformer.load(folder / "full").nr_labels
