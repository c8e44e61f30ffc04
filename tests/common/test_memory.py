"""Test that freed memory is released to the system."""

import subprocess
import sys

_SCRIPT = """
import numpy as np
from xmc_tf.common.memory import release_freed_memory

def own_mb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("RssAnon:"))

# Blocks too small to be mapped separately; the last one keeps the heap from shrinking by itself.
pieces = [np.ones(10_000) for _ in range(1_000)]
last = pieces.pop()
del pieces
before = own_mb()
release_freed_memory()
print(before - own_mb())
"""


def test_freed_memory_is_released():
    said = subprocess.run([sys.executable, "-c", _SCRIPT], check=True, capture_output=True, text=True).stdout
    assert float(said) > 50
