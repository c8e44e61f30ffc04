"""Variables of a SavedModel that are written one at a time, so that only one level of a model is in memory."""

import shutil
from pathlib import Path

import numpy as np
import tensorflow as tf

# Private, but the only variable without memory; tests/serving/test_export.py checks that the saved variables have the
# values, and tests/serving/test_memory.py that they are never all in memory.
from tensorflow.python.ops.resource_variable_ops import UninitializedVariable

from xmc_tf.collective.saved_model import write_fingerprint

BLOCK_BYTES = 64 << 20


class StreamedVariables:
    """Arrays that are written to a folder in blocks. In the graph, a variable without memory stands for each array."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder  # on the same disk as the SavedModel
        self.variables: dict[str, tf.Variable] = {}
        self.bytes = 0

    def add(self, name: str, array: np.ndarray) -> tf.Variable:
        """Write an array under a unique name; return its variable, which cannot be read in this process."""
        key = f"streamed/{name}/.ATTRIBUTES/VARIABLE_VALUE"
        rows = max(1, BLOCK_BYTES // max(array[:1].nbytes, 1))
        for low in range(0, max(len(array), 1), rows):
            block = array[low : low + rows]
            # The position of the block in the whole, in TensorFlow's format for partitioned variables.
            rest = "".join(":-" for _ in array.shape[1:])
            where = f"{' '.join(map(str, array.shape))} {low},{len(block)}{rest}" if len(block) < len(array) else ""
            prefix = str(self._folder / f"{name}-{low:015d}")
            with tf.device("/cpu:0"):
                try:
                    tf.raw_ops.SaveV2(
                        prefix=prefix, tensor_names=[key], shape_and_slices=[where], tensors=[tf.constant(block)]
                    )
                except tf.errors.OpError as error:  # such as a full disk
                    raise OSError(f"{prefix}: {error.message}") from error
        self.bytes += array.nbytes
        variable = UninitializedVariable(shape=array.shape, dtype=array.dtype, trainable=False, name=name)
        self.variables[name] = variable
        return variable

    def merge_into(self, saved_model: Path) -> None:
        """Merge all arrays and the checkpoint that was saved with the graph into one checkpoint."""
        variables = saved_model / "variables"
        for file in list(variables.glob("variables.*")):
            # A merge ends by deleting the indices that it has read; they must differ from the one that it writes.
            file.rename(self._folder / file.name)
        prefixes = sorted(str(index.with_suffix("")) for index in self._folder.glob("*.index"))
        try:
            tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=prefixes, destination_prefix=str(variables / "variables"), delete_old_dirs=False
            )
        except tf.errors.OpError as error:
            raise OSError(f"{variables}: {error.message}") from error
        shutil.rmtree(self._folder)
        write_fingerprint(saved_model)  # of the merged checkpoint
