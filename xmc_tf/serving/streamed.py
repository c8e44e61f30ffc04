"""Variables of a SavedModel that are written while they are made, so that only one level of a model is in memory.

The graph is traced with stand-ins, variables that have a shape but no memory. Their values go into the checkpoint on
their own, in blocks, and a merge of the indices makes one checkpoint of all.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

# Private, but the only variable that can be made without its memory; tests/serving/test_export.py shows that what is
# saved has the values, and tests/serving/test_memory.py that they were never all in memory.
from tensorflow.python.ops.resource_variable_ops import UninitializedVariable
from tensorflow.python.saved_model.fingerprinting_utils import write_fingerprint

BLOCK_BYTES = 64 << 20


class StreamedVariables:
    """Writes arrays to a folder of their own and gives a variable for each.

    Example:
        >>> store = StreamedVariables(part / "blocks")
        >>> weights = store.add("level_0_bias", array)   # a stand-in; the array may be let go of
        >>> module.streamed = store.variables
        >>> tf.saved_model.save(module, str(part), signatures=signatures)
        >>> store.merge_into(part)

    Args:
        folder: where blocks lie until they are merged; on the same disk as the SavedModel.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self.variables: dict[str, tf.Variable] = {}
        self.bytes = 0

    def add(self, name: str, array: np.ndarray) -> tf.Variable:
        """Write an array.

        Args:
            name: letters, digits and underscores; each once.
            array: of a type that TensorFlow has.

        Returns:
            A variable of its shape and type, for graphs to be traced with; it cannot be run in this process.
        """
        key = f"streamed/{name}/.ATTRIBUTES/VARIABLE_VALUE"
        rows = max(1, BLOCK_BYTES // max(array[:1].nbytes, 1))
        for low in range(0, max(len(array), 1), rows):
            block = array[low : low + rows]
            # Which part of which whole, in the form that TensorFlow reads partitioned variables by.
            rest = "".join(":-" for _ in array.shape[1:])
            where = f"{' '.join(map(str, array.shape))} {low},{len(block)}{rest}" if len(block) < len(array) else ""
            self._write(f"{name}-{low:015d}", key, where, block)
        self.bytes += array.nbytes
        variable = UninitializedVariable(shape=array.shape, dtype=array.dtype, trainable=False, name=name)
        self.variables[name] = variable
        return variable

    def add_all(self, prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, tf.Variable]:
        """Write several; gives the variables by the arrays' names."""
        return {name: self.add(f"{prefix}_{name}", array) for name, array in arrays.items()}

    def merge_into(self, saved_model: Path) -> None:
        """Make one checkpoint of what was saved with the graph and of all arrays."""
        variables = saved_model / "variables"
        for file in list(variables.glob("variables.*")):
            # A merge ends by deleting the indices it has read, which must not be the one it has written.
            file.rename(self._folder / file.name)
        prefixes = sorted(str(index.with_suffix("")) for index in self._folder.glob("*.index"))
        try:
            tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=prefixes, destination_prefix=str(variables / "variables"), delete_old_dirs=False
            )
        except tf.errors.OpError as error:
            raise OSError(f"{variables}: {error.message}") from error
        shutil.rmtree(self._folder)
        write_fingerprint(str(saved_model))  # of what is there now

    def _write(self, name: str, key: str, where: str, block: Any) -> None:
        with tf.device("/cpu:0"):
            try:
                tf.raw_ops.SaveV2(
                    prefix=str(self._folder / name), tensor_names=[key], shape_and_slices=[where],
                    tensors=[tf.constant(block)],
                )  # fmt: skip
            except tf.errors.OpError as error:  # a full disk, for one
                raise OSError(f"{self._folder / name}: {error.message}") from error
