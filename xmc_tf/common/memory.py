import ctypes
import resource

# A function of glibc; other C libraries release freed memory themselves, or have no such function.
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)


def release_freed_memory() -> None:
    """Return memory that the C library has freed but kept to the system; use it before writing large files."""
    if _TRIM is not None:
        _TRIM(0)


def peak_memory() -> str:
    """Return the largest memory that this process has had, in words."""
    return f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB"
