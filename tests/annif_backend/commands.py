"""Runs in Annif's environment: each line of the input is a command of Annif, which a fork of this process becomes.

The start of the interpreter and Annif's imports, which the forks share, take most of the time of a command.
"""

import json
import os
import signal
import sys

import annif.cli

import xmc_tf.annif
import xmc_tf.models.xr_linear  # noqa: F401  most commands need it


def become(arguments, files):
    """Run a command with files as its input, output and errors; return its exit status."""
    signal.alarm(300)
    for descriptor, file in enumerate(files):
        os.dup2(os.open(file, os.O_RDWR), descriptor)
    sys.stdin, sys.argv = os.fdopen(0), ["annif", *arguments]
    try:
        annif.cli.cli()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:  # noqa: BLE001  as the interpreter does
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            os._exit(become(*json.loads(line)))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
