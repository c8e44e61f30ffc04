"""One side of ``runtimes``: a model in one runtime, in this process.

    runtime_side.py answer MODEL RUNTIME TEXTS           the first answer
    runtime_side.py encoder MODEL RUNTIME DOCUMENTS LENGTH CORES    seconds of a batch of the encoder

Prints one line of JSON.
"""

import json
import os
import sys
import time

_BATCHES, _SECONDS = 60, 12.0


def first_answer(model, runtime, texts):
    """Answer one text, then fifty more; return the memory."""
    from xmc_tf.models.loading import load

    loaded = load(model, runtime=runtime)
    with open(texts, encoding="utf-8") as file:
        lines = [next(file).strip() for _ in range(51)]
    loaded.best(lines[:1], threads=1)
    print("answered", flush=True)
    milliseconds = []
    for line in lines[1:]:
        began = time.perf_counter()
        loaded.best([line], threads=1)
        milliseconds.append(1000 * (time.perf_counter() - began))
    return {
        "memory_mb": memory(), "ms": milliseconds,
        "tensorflow": "tensorflow" in sys.modules,
    }  # fmt: skip


def memory():
    """Return the peak memory in MiB; a record of the system's resources would begin with that of the parent process."""
    with open("/proc/self/status", encoding="ascii") as status:
        return int(status.read().partition("VmHWM:")[2].split()[0]) / 1024


def encoder_batches(model, runtime, documents, length, cores):
    """Return the milliseconds of batches of documents of one length, on some cores: by the clock, and of processors."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    import numpy as np

    from xmc_tf.models.loading import load

    encoder = load(model, runtime=runtime).encoder
    ids = np.random.default_rng(0).integers(1000, 20000, (documents, length)).astype(np.int32)
    mask = np.ones_like(ids)
    for _ in range(3):
        encoder.embed(ids, mask)
    milliseconds, processor, start = [], [], time.perf_counter()
    while len(milliseconds) < _BATCHES and (len(milliseconds) < 5 or time.perf_counter() - start < _SECONDS):
        began, used = time.perf_counter(), time.process_time()
        encoder.embed(ids, mask)
        milliseconds.append(1000 * (time.perf_counter() - began))
        processor.append(1000 * (time.process_time() - used))
    return {"ms": milliseconds, "processor_ms": processor}


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "answer":
        print(json.dumps(first_answer(*arguments)))
    else:
        print(json.dumps(encoder_batches(*arguments[:2], *map(int, arguments[2:]))))
