import ctypes
import resource

# A function of glibc; other C libraries release freed memory themselves, or have no such function.
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)


def release_freed_memory() -> None:
    """Return memory that the C library has freed but kept to the system. Call this before writing large files."""
    if _TRIM is not None:
        _TRIM(0)


def peak_memory() -> str:
    """Return a text with the peak memory of this process."""
    return f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB"
