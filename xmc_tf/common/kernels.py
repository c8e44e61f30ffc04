"""Arrays as compiled kernels take them."""

from typing import Any

import numpy as np


class _Alias:
    """Offers an array's memory as writable; keeps the array alive as long as its views."""

    def __init__(self, array: np.ndarray) -> None:
        interface: dict[str, Any] = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.array, self.__array_interface__ = array, interface


def kernel_view(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Return the same array, contiguous and of that type, for a kernel that only reads it.

    Numba compiles one version of a kernel for arrays that may be written and another for those that may not, such as
    memory-mapped ones. Here the second passes for the first: nothing is copied unless the type asks for it, and the
    kernel is compiled once. (Mapping the files copy-on-write would do too, but Linux refuses such maps beyond the
    machine's memory.)

    Args:
        array: what the kernel reads.
        dtype: what it is compiled for.
    """
    array = np.require(array, dtype=dtype, requirements=["C", "A"])
    return array if array.flags.writeable else np.asarray(_Alias(array))
