"""Memory that a process holds and no longer needs."""

import ctypes

# Of glibc; other C libraries give back what is freed, or have no such call.
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)


def give_back_freed() -> None:
    """Hand freed memory to the system, where the C library keeps it for later.

    Worth its milliseconds between a step that has worked in memory and one that writes files: their pages need room.
    """
    if _TRIM is not None:
        _TRIM(0)
