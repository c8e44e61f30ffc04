"""Run all functions ``check_*`` of ``tests/collective/world_*.py``."""

import importlib
import json
import sys
import time

from xmc_tf.ranks.choosing import choose_communicator


def main():
    world = choose_communicator()
    took = {}
    for module in sys.argv[1:]:
        checks = importlib.import_module(f"tests.collective.{module}")
        for name in sorted(vars(checks)):
            if name.startswith("check_"):
                started = time.monotonic()
                print(f"{module}.{name}", flush=True)
                getattr(checks, name)(world)
                world.barrier()
                took[name] = round(time.monotonic() - started, 2)
    print(json.dumps({"rank": world.rank, "size": world.size, "passed": took}), flush=True)


main()
