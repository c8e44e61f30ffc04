import ctypes
import resource
import sys

# A function of glibc; other C libraries release freed memory themselves, or have no such function.
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)


def release_freed_memory() -> None:
    """Make the C library return freed memory to the operating system; call this before writing large files."""
    if _TRIM is not None:
        _TRIM(0)


def peak_memory() -> str:
    """Return this process's peak memory as text, such as "peak memory 812 MB"."""
    kilobyte = 1024 if sys.platform == "darwin" else 1  # macOS counts bytes
    return f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / kilobyte / 1024:,.0f} MB"
