"""Arrays in the form that compiled kernels expect."""

from typing import Any

import numpy as np


class _Alias:
    """A writable view of an array's memory, which keeps the array alive."""

    def __init__(self, array: np.ndarray) -> None:
        interface: dict[str, Any] = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.array, self.__array_interface__ = array, interface


def kernel_view(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Return the array, contiguous and of a type, for a kernel that only reads it.

    Numba compiles a kernel twice, for writable arrays and for read-only ones, such as memory-mapped files. This
    function presents read-only arrays as writable, so that the kernel is compiled once. Arrays are copied only to
    change their type. (Copy-on-write maps would work too, but Linux refuses them beyond the machine's memory.)

    Args:
        array: the array.
        dtype: the type that the kernel is compiled for.
    """
    flags = array.flags
    if array.dtype != dtype or not (flags.c_contiguous and flags.aligned):
        array = np.require(array, dtype=dtype, requirements=["C", "A"])
        flags = array.flags
    return array if flags.writeable else np.asarray(_Alias(array))
