"""The output of the encoder's frozen layers, computed once into the work folder for all later passes."""

import hashlib
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.progress import Progress
from xmc_tf.pipeline.row_blocks import RowBlocks
from xmc_tf.pipeline.stages import Record, Stages
from xmc_tf.pipeline.waiting import on_first_rank
from xmc_tf.store.arrays import read_npy
from xmc_tf.store.checksums import check_file, record_files

if TYPE_CHECKING:
    from xmc_tf.data import TokenStore
    from xmc_tf.encoder import Encoder

BLOCK = 256  # windows
_FILE = "states.npy"
_LOG = logging.getLogger(__name__)


def with_frozen_layers(encoder: "Encoder", store: "TokenStore", stages: Stages, name: str) -> "TokenStore":
    """Return the documents with the output of the encoder's frozen layers in place of token ids.

    The stage ``name`` computes it, in the encoder's precision. All ranks must call this function. Where the disk is too
    small, or if no layer is frozen, the documents are returned unchanged.
    """
    from xmc_tf.encoder import frozen_states
    from xmc_tf.encoder.precision import DTYPES

    if encoder.frozen_layers is None:
        return store
    computed = np.dtype(DTYPES[encoder.precision].as_numpy_dtype)
    stored = np.dtype(np.uint16) if encoder.precision == "bf16" else computed  # .npy files have no bfloat16
    tokens = int(store.lengths.sum(dtype=np.int64))
    width = encoder.config.width
    if not on_first_rank(stages.communicator, lambda: _fits(stages, name, tokens * width * stored.itemsize)):
        return store

    def make(folder: Path) -> Record:
        path, windows = folder / _FILE, np.minimum(np.arange(-(-len(store) // BLOCK) + 1) * BLOCK, len(store))
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(store.lengths, dtype=np.int64)])
        blocks = RowBlocks(path, starts[windows], width, np.diff(windows), stored, unit="windows")

        def states(some: np.ndarray, progress: Progress) -> np.ndarray:
            # Batches do not cross blocks, so that a resumed run computes the same numbers.
            low, high = windows[some[0]], windows[some[0] + 1]
            rows = frozen_states(encoder, store, np.arange(low, high), progress)
            if encoder.precision == "fp16" and not np.isfinite(rows).all():
                raise InputError(
                    "--train-layers: the output of the frozen layers exceeds the range of fp16",
                    expected="numbers below 65,504", received="infinite ones",
                    fix="use --mixed-precision bf16 or off, or --train-layers all",
                )  # fmt: skip
            return rows.view(stored)

        blocks.fill(states, stages.communicator)
        record = on_first_rank(stages.communicator, lambda: record_files(folder)[_FILE])
        return {**record, "summary": f"{tokens:,} tokens × {width}, {_megabytes(record['bytes'])}"}

    inputs = {"weights": _digest(encoder), "tokens": store.fingerprint, "precision": encoder.precision}
    stage = stages.run(name, make, inputs=inputs, by_all=True)
    path = stage.folder / _FILE
    fix = f"delete {stage.folder}, and run the command again"
    on_first_rank(stages.communicator, lambda: check_file(path, stage.record, fix, all_bytes=stage.kept))
    return store.with_states(read_npy(path, name="output of frozen layers").view(computed))


def _fits(stages: Stages, name: str, size: int) -> bool:
    """Return whether a file of this size takes at most half of the disk's free space, and log what is done."""
    held = [one.stat().st_blocks * 512 for part in (name, f"{name}.part") for one in (stages.folder / part).glob(_FILE)]
    free = shutil.disk_usage(stages.folder).free
    if sum(held) < size:
        place = f"{_megabytes(size)} in {stages.folder}"
        if (free + sum(held)) / 2 < size:
            _LOG.warning(
                "the frozen layers are computed again in each pass: their output takes %s, more than half of %s that "
                "are free",
                place, _megabytes(free),
            )  # fmt: skip
            return False
        _LOG.info("the output of the frozen layers is computed once: it takes %s", place)
    return True


def _digest(encoder: "Encoder") -> str:
    """Return a hash of all that determines the output of the frozen layers."""
    total = hashlib.blake2b(f"{encoder.config.digest} {encoder.frozen_layers}".encode(), digest_size=16)
    for name, variable in encoder.weights.items():
        if encoder.is_frozen(name):
            total.update(variable.numpy().data)
    return total.hexdigest()


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
