import numpy as np

_ALIGNMENT = 64  # of TensorFlow's own tensors


def aligned_array(shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
    """Return an uninitialized array that TensorFlow can use without copying it."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)
