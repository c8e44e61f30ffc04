"""``python -m xmc_tf.launch``: run a program on several ranks of this machine."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import whole
from xmc_tf.common.process import cli, signals
from xmc_tf.launch.command import THIS_HOST, Host, check_installed, ranks_command
from xmc_tf.launch.watch import Watch, show_line
from xmc_tf.ranks.choosing import how_started
from xmc_tf.ranks.stalls.settings import VARIABLE as STALL_TIMEOUT

_RANKS_PER_CORE, _LEAST_LIMIT = 4, 64  # more ranks would wait for each other, or exhaust the memory
_DESCRIPTION = """Run a Python module or script on N ranks of this machine, with horovodrun.

Each rank is pinned to its share of the cores and uses as many threads (OMP_NUM_THREADS, NUMBA_NUM_THREADS,
TF_NUM_INTRAOP_THREADS and TF_NUM_INTEROP_THREADS, unless you set them). Each line that a rank prints is
prefixed with its number; standard output and standard error stay separate.

If a rank fails, the other ranks are stopped. The last lines of the rank that failed first are printed
again, and its exit status is returned (128 + n for signal n). Ctrl-C stops all ranks."""

_EXAMPLES = """examples:
  python -m xmc_tf.launch --np 2 -m xmc_tf.check
  python -m xmc_tf.launch --np 4 train.py --epochs 3
  python -m xmc_tf.launch --np 4 --controller mpi -m xmc_tf.linear.train -x X.npz -y Y.npz -m model
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = cli.make_parser(
        "xmc_tf.launch",
        _DESCRIPTION,
        usage="%(prog)s --np N [options] (-m MODULE | SCRIPT) [argument ...]",
        epilog=_EXAMPLES,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--np", type=whole, required=True, metavar="N", help="number of ranks")
    add(
        "--controller",
        choices=["gloo", "mpi"],
        default="gloo",
        help="how ranks coordinate; with mpi, programs that use mpi4py work too, also without TensorFlow",
    )
    add("--threads", type=whole, metavar="N", help="number of threads of each rank (default: one per core of the rank)")
    add("--no-pin", action="store_true", help="do not pin ranks to cores")
    add(
        "--stall-timeout",
        type=whole,
        metavar="S",
        help="abort after this many seconds without progress in one collective, and report where each rank is; for "
        "programs that use xmc_tf's strategy or communicator, and with --controller mpi all that use Horovod",
    )
    add("--start-timeout", type=whole, default=60, metavar="S", help="maximum seconds until all ranks have started")
    add("-v", "--verbose", action="store_true", help="also print the placement of the ranks and the horovodrun command")
    what = parser.add_argument_group("program; all arguments after it are passed to it")
    what.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="module to run, as with python -m"
    )
    what.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT", help="script to run")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Start the ranks, wait for them, and exit with the status of the rank that failed first."""
    args = parser().parse_args(argv)
    program = _program(args.module, args.script)
    for option in ("np", "threads", "start_timeout", "stall_timeout"):
        value = getattr(args, option)
        if value is not None and value < 1:
            name = f"--{option.replace('_', '-')}"
            raise InputError(name, expected="a number of at least 1", received=str(value))
    most = max(_LEAST_LIMIT, _RANKS_PER_CORE * (os.cpu_count() or 1))
    if args.np > most:
        raise InputError(
            "--np is out of range",
            expected=f"at most {most:,} ranks on a machine of {os.cpu_count()} cores",
            received=f"{args.np:,}",
            fix="start fewer ranks; each rank uses several threads (--threads)",
        )
    kind, reason = how_started({name: value for name, value in os.environ.items() if name != "XMC_TF_COMMUNICATOR"})
    if kind != "solo":
        raise InputError(
            f"the launcher was started as one of several ranks ({reason})",
            fix="start it once, or run the program itself under horovodrun or mpiexec",
        )
    check_installed(args.controller)
    agent = [*(["--threads", str(args.threads)] if args.threads else []), *(["--no-pin"] if args.no_pin else [])]
    hosts = [Host(THIS_HOST, args.np)]
    command = ranks_command(hosts, args.controller, program, start_timeout=args.start_timeout, agent=agent)
    if args.verbose:
        print(" ".join(command), file=sys.stderr)
    watch = Watch(args.np, "127.0.0.1", show_line)
    try:
        code = _run(watch, command, _environment(watch, args.stall_timeout), args.start_timeout)
    finally:
        watch.close()
    if args.verbose:
        for state in sorted(watch.ranks.values(), key=lambda state: state.rank):
            where = f"rank {state.rank}: pid {state.pid} on {state.host}, cores {state.cores}"
            print(f"{where}, exit status {state.exit_code}", file=sys.stderr)
    if code:
        sys.exit(code)


def _program(module: list[str] | None, script: list[str]) -> list[str]:
    """Return the command that each rank runs."""
    if module:
        return [sys.executable, "-m", *module]
    script = script[1:] if script[:1] == ["--"] else script
    if not script:
        raise InputError("nothing to run", expected="-m MODULE or SCRIPT after the options", fix="see --help")
    if not Path(script[0]).is_file():
        hint = f"use -m {script[0]} for a module" if not script[0].endswith(".py") else "check the name"
        raise InputError(f"no such script: {script[0]}", fix=hint)
    return [sys.executable, *script]


def _environment(watch: Watch, stall_timeout: int | None) -> dict[str, str]:
    # The mpirun that Horovod needs is installed beside the interpreter.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    stall = {}
    if stall_timeout:
        # Horovod's own stall check, which only works over MPI, serves programs that do not use ours.
        later = str(stall_timeout + 10)
        stall = {
            STALL_TIMEOUT: str(stall_timeout),
            "HOROVOD_STALL_CHECK_TIME_SECONDS": later,
            "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": later,
        }
    return {**os.environ, **stall, **watch.environment, "PATH": path}


def _run(watch: Watch, command: list[str], environment: dict[str, str], start_timeout: int) -> int:
    """Run the command to its end, report a failure, and return the exit status."""
    launcher = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C reaches only this process, which stops the ranks
    )
    try:
        watch.follow(launcher, start_timeout)
    except signals.Interrupted as interrupt:
        signals.allow_slow_end()  # so that the ranks have some seconds to end
        watch.stop()
        watch.follow(launcher, start_timeout)
        print(f"\n{signals.describe(interrupt.number)}; all ranks have ended", file=sys.stderr)
        return 128 + interrupt.number
    failure, missing = watch.first_failure(), watch.missing()
    if failure is not None:
        print(f"\nfailed: {failure.describe(siblings=watch.size > 1)}", file=sys.stderr)
        return failure.exit_code
    if missing or launcher.returncode:
        _explain(watch, missing, launcher.returncode, start_timeout)
        return 1
    return 0


def _explain(watch: Watch, missing: list[int], status: int, start_timeout: int) -> None:
    """Report a failure for which no rank has reported an error."""
    if missing:
        names = ", ".join(map(str, missing))
        print(f"\nfailed: no connection from rank {names} within {start_timeout} s", file=sys.stderr)
    else:
        print(f"\nfailed: horovodrun ended with status {status}", file=sys.stderr)
    for line in watch.launcher_tail:
        print(f"    {line}", file=sys.stderr)


if __name__ == "__main__":
    cli.run(main)
