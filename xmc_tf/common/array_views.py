from typing import Any

import numpy as np


class _Alias:
    """A writable view of an array's memory that keeps the array alive."""

    def __init__(self, array: np.ndarray) -> None:
        interface: dict[str, Any] = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.array, self.__array_interface__ = array, interface


def kernel_view(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Return a contiguous view (or copy) of this type, marked writable: read-only arrays cause another compilation."""
    flags = array.flags
    if array.dtype != dtype or not (flags.c_contiguous and flags.aligned):
        array = np.require(array, dtype=dtype, requirements=["C", "A"])
        flags = array.flags
    return array if flags.writeable else np.asarray(_Alias(array))
