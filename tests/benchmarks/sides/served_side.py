"""An exported model, as a server has it: ``served_side.py JSON``; asked for times and for the memory it takes."""

import ctypes
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import in_turns  # beside this file: nothing of our packages is in this process
import numpy as np
from c_session import CSession


def resident():
    """Bytes of this process that are in memory, without what was freed and the allocator keeps for what comes next."""
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
