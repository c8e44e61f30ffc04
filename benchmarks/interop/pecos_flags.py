"""Check with PECOS's own parsers that the flags in the tests are PECOS's.

    python -m benchmarks.interop.pecos_flags --peer PYTHON

PYTHON runs a venv that has libpecos. Prints one line per command and one JSON line; exit status 1 where a list differs.
"""

import argparse
import json
import subprocess
import sys

from tests.params.pecos_flags import PECOS_FLAGS

# deepspeed and mpi4py are not needed to ask for flags, and are seldom installed.
PROGRAM = """
import argparse, importlib, json, sys
from unittest.mock import MagicMock
import pecos.xmc.xtransformer.train
for name in ("mpi4py", "mpi4py.MPI", "deepspeed", "deepspeed.launcher", "deepspeed.launcher.runner"):
    sys.modules.setdefault(name, MagicMock())
found = {}
for name in json.loads(sys.argv[1]):
    module_name, _, verb = name.partition(" ")
    module = importlib.import_module(module_name)
    parser = getattr(module, "parse_arguments", None) or module.get_parser
    parser = parser()
    if hasattr(module, "add_dist_arguments"):
        parser = module.add_dist_arguments(parser)
    if verb:
        (commands,) = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        parser = commands.choices[verb]
    found[name] = [flag for a in parser._actions for flag in a.option_strings if flag not in ("-h", "--help")]
print(json.dumps(found))
"""


def main() -> None:
    """Ask PECOS for its flags and compare them with the list of the tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="the Python of a venv that has libpecos")
    peer = parser.parse_args().peer
    command = [peer, "-c", PROGRAM, json.dumps(list(PECOS_FLAGS))]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, cwd="/").stdout
    theirs = json.loads(output.splitlines()[-1])
    differing = 0
    for module, flags in PECOS_FLAGS.items():
        missing, unknown = sorted(set(theirs[module]) - set(flags)), sorted(set(flags) - set(theirs[module]))
        differing += bool(missing or unknown)
        said = f"not in our list: {missing}; not PECOS's: {unknown}" if missing or unknown else "the same"
        print(f"{module:45} {len(flags):3} flags  {said}")
    print(json.dumps({"interop": "pecos_flags", "commands": len(PECOS_FLAGS), "differing": differing}))
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
