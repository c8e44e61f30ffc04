"""The launcher's options, and the hosts and program that they select."""

import argparse
import logging
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.numbers import positive
from xmc_tf.common.process import cli
from xmc_tf.launch.gpus import Gpu
from xmc_tf.launch.hosts import (
    THIS_HOST,
    Host,
    Hosts,
    hosts_of_scheduler,
    is_here,
    parse_flag,
    read_hostfile,
    read_json_hosts,
)

_LOG = logging.getLogger(__name__)
_RANKS_PER_CORE, _LEAST_LIMIT = 4, 64  # more ranks would wait for each other, or exhaust the memory
_OUTPUTS = ("-m", "--model-folder", "-o", "--output-folder", "--save-pred-path", "--result-folder")
DEFAULT_PORT = 29500
_LISTS = ("hosts", "hostfile", "host_list")
_DESCRIPTION = """Run a Python module, script or other program on several ranks, on this machine or on several hosts.

On one machine, one rank runs per visible GPU, or --np N ranks on CPUs. Name several hosts with --hosts, --hostfile
or -H; in jobs of Slurm and of Kubernetes' MPI operator, they are found automatically. They are reached over ssh.
Without ssh, start the same command on every node, with --nodes, --node-rank, --master-addr and --secret-file.

Before anything starts, all hosts are checked: versions, data, shared folder, disk, GPUs, ports (--check-only).

Each rank is pinned to its share of the cores and uses as many threads (OMP_NUM_THREADS, NUMBA_NUM_THREADS,
TF_NUM_INTRAOP_THREADS and TF_NUM_INTEROP_THREADS, unless you set them). Each line that a rank prints is
prefixed with its number; standard output and standard error stay separate.

If a rank fails, the other ranks are stopped on all hosts. The last lines of the rank that failed first are
printed again, and its exit status is returned (128 + n for signal n). Ctrl-C stops all ranks."""

_EXAMPLES = """examples:
  python -m xmc_tf.launch --np 2 -m xmc_tf.check
  python -m xmc_tf.launch --np 4 train.py --epochs 3
  python -m xmc_tf.launch --np 4 --controller mpi -m xmc_tf.linear.train -x X.npz -y Y.npz -m model
  python -m xmc_tf.launch --hosts hosts.json --check-only -m xmc_tf.train -t X.trn.txt -y Y.trn.npz -m /shared/model
  python -m xmc_tf.launch -H one:4,two:4 --min-np 4 -m xmc_tf.train -t X.trn.txt -y Y.trn.npz -m /shared/model
  python -m xmc_tf.launch --nodes 2 --node-rank 1 --master-addr one --secret-file secret -m xmc_tf.check
"""


def parser() -> cli.Parser:
    parser = cli.make_parser(
        "xmc_tf.launch",
        _DESCRIPTION,
        usage="%(prog)s [--np N | hosts] [options] (-m MODULE | SCRIPT) [argument ...]",
        epilog=_EXAMPLES,
        equivalents={
            "--here_gpus": "--np",
            "--other_gpus": "--hosts FILE or --nodes",
            "--no_python": "leave it out, any program is run",
        },
        allow_abbrev=False,
    )
    _add_hosts(parser)
    _add_nodes(parser)
    _add_run(parser)
    what = parser.add_argument_group("program; all arguments after it are passed to it")
    what.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="module to run, as with python -m"
    )
    what.add_argument(
        "script",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT",
        help="Python script or any other program to run; or -- and arguments of xmc_tf.train",
    )
    return parser


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("hosts; ssh from here must work without a password").add_argument
    add("--np", type=positive, metavar="N", help="number of ranks (default: one per GPU, or all slots of the hosts)")
    add("--hosts", metavar="FILE", help='JSON file of hosts and their numbers of GPUs or ranks: {"one": 4, "two": 2}')
    add("--hostfile", metavar="FILE", help='file with one host per line: "one slots=4" or "one:4"')
    add("-H", dest="host_list", metavar="HOSTS", help="hosts and numbers of ranks: one:4,two:2")
    add("--shared-folder", metavar="DIR", help="folder that all hosts share (default: the one that -m or -o is in)")
    add("--check-only", action="store_true", help="check the hosts, print the table, and start nothing")
    add("--skip-checks", action="store_true", help="start even if checks fail, unless a host is not reached")
    add("--min-np", type=positive, metavar="N", help="if hosts are lost, restart on at least this number of ranks")
    add("--max-np", type=positive, metavar="N", help="use at most this number of ranks")


def _add_nodes(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("several hosts without ssh: start the same command on every node").add_argument
    add("--nodes", type=positive, metavar="N", help="number of nodes")
    add("--node-rank", type=int, metavar="I", help="number of this node; 0 is the master (default)")
    add("--master-addr", metavar="HOST", help="name or address of node 0")
    add("--master-port", type=positive, default=DEFAULT_PORT, metavar="PORT", help="port of node 0")
    add("--secret-file", metavar="FILE", help="file with a secret, the same on all nodes")


def _add_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("run").add_argument
    add(
        "--controller",
        choices=["gloo", "mpi"],
        help="how ranks communicate: gloo uses Horovod; mpi uses mpiexec and mpi4py, which need no compiler (default: "
        "gloo, or mpi if mpi4py is installed and Horovod is not)",
    )
    add("--threads", type=positive, metavar="N", help="threads of each rank (default: one per core of the rank)")
    add("--no-pin", action="store_true", help="do not pin ranks to cores")
    limited = (
        "time limit (s) for the checks and the start of all ranks, which may take four times as long to connect; a "
    )
    limited += "lost host is noticed within a quarter of it"
    add("--timeout", "--start-timeout", type=positive, default=60, metavar="S", help=limited)
    add(
        "--stall-timeout",
        type=positive,
        metavar="S",
        help="abort after this many seconds without progress in a collective, and report where each rank is; for "
        "programs that use xmc_tf's strategy or communicator and, with --controller mpi, for all that use Horovod",
    )
    add("--log-dir", metavar="DIR", help="also write the lines of each rank to a file in this folder")
    add("--dry-run", action="store_true", help="print what would run where, and start nothing")
    add("-q", "--quiet", action="store_true", help="print only the ranks' lines, and errors")


def check_numbers(args: cli.GivenFlags) -> None:
    if args.master_port >= 1 << 16:
        raise InputError("invalid --master-port", expected="a number from 1 to 65,535", received=str(args.master_port))
    if args.min_np is not None and args.max_np is not None and args.min_np > args.max_np:
        raise InputError("--min-np is too large", expected=f"at most --max-np {args.max_np}", received=str(args.min_np))
    args.at_most_one(*_LISTS)
    if by_hand := args.flags("nodes", "node_rank", "master_addr"):
        args.refuse(
            *_LISTS, where=f"with {by_hand[0]}", fix=f"leave it out, or {' and '.join(by_hand)}",
            expected="hosts that this command reaches over ssh, or nodes on which you start it",
        )  # fmt: skip


def refuse_from_here(args: cli.GivenFlags, *, checked: bool) -> None:
    """Raise an error for options without effect if this command starts all nodes. ``checked``: it checks the hosts."""
    args.refuse("master_addr", "secret_file", "master_port", needs="--nodes")
    if not checked:
        args.refuse(
            "shared_folder", "skip_checks", "min_np", where="on this host alone, which is not checked",
            fix="name several hosts, or leave it out",
        )  # fmt: skip


def choose_hosts(args: argparse.Namespace, environment: Mapping[str, str], gpus: Sequence[Gpu]) -> Hosts:
    """Return the hosts of the run, from the options or from a scheduler's environment variables."""
    if args.hosts is not None:
        hosts = read_json_hosts(args.hosts)
    elif args.hostfile is not None:
        hosts = read_hostfile(args.hostfile)
    elif args.host_list is not None:
        hosts = parse_flag(args.host_list)
    elif (found := hosts_of_scheduler(environment)) is not None:
        hosts = found
    elif args.np is None and not gpus:
        expected = "the number of ranks, because this host has no visible GPU"
        raise InputError("--np is missing", expected=expected, fix="for example --np 2")
    else:
        slots, most = int(args.np or len(gpus)), max(_LEAST_LIMIT, _RANKS_PER_CORE * (os.cpu_count() or 1))
        if slots > most:
            expected = f"at most {most:,} ranks on a machine of {os.cpu_count()} cores"
            fix = "start fewer ranks; each rank uses several threads (--threads)"
            raise InputError("--np is out of range", expected=expected, received=f"{slots:,}", fix=fix)
        return Hosts([Host(THIS_HOST, min(slots, args.max_np or slots))], "this host")
    if args.hosts is not None and not any(is_here(host.name) for host in hosts):
        # As in parallel-BERT: if the file leaves out this host, all of its GPUs are used.
        if gpus:
            hosts = Hosts([Host(THIS_HOST, len(gpus)), *hosts], hosts.source)
        used = f"its {len(gpus)} visible GPUs take the first ranks" if gpus else "it has no visible GPU, so no ranks"
        level = logging.DEBUG if args.quiet else logging.INFO
        _LOG.log(level, "%s leaves this host out: %s (--hostfile uses only the hosts listed)", hosts.source, used)
    if args.np is not None and args.np > hosts.size:
        expected, fix = f"at most {hosts.size}, the slots of {hosts.source}", "lower --np, or list more slots"
        raise InputError("--np is out of range", expected=expected, received=str(args.np), fix=fix)
    hosts = hosts.limited(min(args.np or hosts.size, args.max_np or hosts.size))
    if args.min_np is not None and args.min_np > hosts.size:
        raise InputError(
            "--min-np is too large", expected=f"at most {hosts.size}, as in {hosts.source}", received=str(args.min_np)
        )
    return hosts


def choose_program(args: argparse.Namespace) -> list[str]:
    if args.module:
        return [sys.executable, "-m", *args.module]
    script, after_dashes = args.script, args.script[:1] == ["--"]
    if after_dashes:
        script = script[1:]
    if not script:
        raise InputError("nothing to run", expected="-m MODULE or SCRIPT after the options", fix="see --help")
    if after_dashes and script[0].startswith("-"):
        return [sys.executable, "-m", "xmc_tf.train", *script]
    is_python = script[0].endswith(".py")
    # Programs beside the interpreter are found as the ranks will find them.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    if not is_python and shutil.which(script[0], path=path):
        return script
    if not Path(script[0]).is_file():
        hint = "check the name" if is_python else f"use -m {script[0]} for a module"
        raise InputError(f"no such script or program: {script[0]}", fix=hint)
    return [sys.executable, *script]


def inputs_of(program: Sequence[str]) -> list[str]:
    """Return the program's arguments that are existing files or folders, which all hosts need."""
    outputs = {program[at + 1] for at in _flags_of_outputs(program)}
    words = [word for word in program[1:] if word not in outputs and not word.startswith("-")]
    return [word for word in dict.fromkeys(words) if word not in (".", "..", "/") and Path(word).exists()]


def shared_folder_of(args: argparse.Namespace, program: Sequence[str]) -> str:
    """Return the folder that all hosts must share: --shared-folder, else the output's parent, else the current one."""
    if args.shared_folder is not None:
        if not Path(args.shared_folder).is_dir():
            raise InputError(
                f"--shared-folder: {args.shared_folder} is not a folder", fix="create it, or name another one"
            )
        return str(Path(args.shared_folder).resolve())
    for at in _flags_of_outputs(program):
        folder = Path(program[at + 1]).resolve().parent
        while not folder.is_dir():
            folder = folder.parent
        return str(folder)
    return os.getcwd()


def _flags_of_outputs(program: Sequence[str]) -> list[int]:
    first = 3 if program[1:2] == ["-m"] else 1  # Python's own -m names a module
    return [at for at, word in enumerate(program[:-1]) if at >= first and word in _OUTPUTS]
