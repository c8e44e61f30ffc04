"""An exported model, as a server has it: ``served_side.py JSON``; asked for times and for the memory it takes."""

import ctypes
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import in_turns  # beside this file: nothing of our packages is in this process
import numpy as np
from c_session import CSession


def resident():
    """Return bytes of this process that are in memory and no copy of a file, which TensorFlow's own code is.

    What was freed and the allocator keeps for what comes next does not count.
    """
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Anonymous:"))


def main():
    given = json.loads(sys.argv[1])
    in_turns.stay_on_one_core()
    texts = in_turns.texts_of(given["texts"])
    config = bytes.fromhex(given["config"])
    found = {}

    def load(folder, inputs, outputs, asked):
        before = resident()
        session = CSession(folder, inputs, outputs, config)
        found["call"] = lambda part: session.run(np.array(part, object))
        for text in texts[:asked]:
            found["call"]([text])
        return resident() - before

    def handle(do, **arguments):
        if do == "load":
            return load(**arguments)
        return in_turns.times(found["call"], texts, **arguments)

    in_turns.answer(handle)


if __name__ == "__main__":
    main()
