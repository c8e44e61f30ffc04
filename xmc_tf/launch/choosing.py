"""The choice of the hosts and of the program by the options and the environment."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.launch.gpus import Gpu, least_busy
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

_RANKS_PER_CORE, _LEAST_LIMIT = 4, 64  # more ranks would wait for each other, or exhaust the memory
_OUTPUTS = ("-m", "--model-folder", "-o", "--output-folder", "--save-pred-path", "--result-folder")


def choose_hosts(args: argparse.Namespace, environment: Mapping[str, str], gpus: Sequence[Gpu]) -> Hosts:
    """Return the hosts of the run; in the environment, schedulers name the hosts of a job."""
    if args.hosts is not None:
        hosts = read_json_hosts(args.hosts)
    elif args.hostfile is not None:
        hosts = read_hostfile(args.hostfile)
    elif args.host_list is not None:
        hosts = parse_flag(args.host_list)
    elif (found := hosts_of_scheduler(environment)) is not None:
        hosts = found
    else:
        return Hosts([Host(THIS_HOST, _slots_here(args, gpus))], "this host")
    if args.hosts is not None and gpus and not any(is_here(host.name) for host in hosts):
        # parallel-BERT: a file that leaves out this host means all of its GPUs.
        hosts = Hosts([Host(THIS_HOST, len(gpus)), *hosts], hosts.source)
    if args.np is not None and args.np > hosts.size:
        raise InputError(
            "--np",
            expected=f"at most the {hosts.size} slots of {hosts.source}",
            received=str(args.np),
            fix="lower --np, or list more slots",
        )
    hosts = hosts.limited(min(args.np or hosts.size, args.max_np or hosts.size))
    if args.min_np is not None and args.min_np > hosts.size:
        raise InputError(
            "--min-np", expected=f"at most the {hosts.size} ranks of {hosts.source}", received=str(args.min_np)
        )
    return hosts


def choose_gpus(hosts: Hosts, gpus: Sequence[Gpu]) -> dict[str, list[str]]:
    """Return the least busy GPUs of this host for its ranks; none on CPUs."""
    return {host.name: least_busy(list(gpus), host.slots) for host in hosts if is_here(host.name) and gpus}


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
    if not Path(script[0]).is_file():
        hint = f"use -m {script[0]} for a module" if not script[0].endswith(".py") else "check the name"
        raise InputError(f"no such script: {script[0]}", fix=hint)
    return [sys.executable, *script]


def inputs_of(program: Sequence[str]) -> list[str]:
    """Return the files and folders among the arguments of a program, which all hosts need."""
    outputs = {program[at + 1] for at, word in enumerate(program[3:-1], 3) if word in _OUTPUTS}
    words = [word for word in program[1:] if word not in outputs and not word.startswith("-")]
    return [word for word in dict.fromkeys(words) if word not in (".", "..", "/") and Path(word).exists()]


def shared_folder_of(args: argparse.Namespace, program: Sequence[str]) -> str:
    """Return the folder that all hosts must share: that of the model or of the results."""
    if args.shared_folder is not None:
        if not Path(args.shared_folder).is_dir():
            raise InputError(
                f"--shared-folder: {args.shared_folder} is not a folder", fix="create it, or name another one"
            )
        return str(Path(args.shared_folder).resolve())
    for at, word in enumerate(program[3:-1], 3):
        if word in _OUTPUTS:
            folder = Path(program[at + 1]).resolve().parent
            while not folder.is_dir():
                folder = folder.parent
            return str(folder)
    return os.getcwd()


def _slots_here(args: argparse.Namespace, gpus: Sequence[Gpu]) -> int:
    if args.np is None and not gpus:
        raise InputError(
            "--np is missing",
            expected="the number of ranks, because this host has no visible GPU",
            fix="for example --np 2",
        )
    slots = int(args.np or len(gpus))
    most = max(_LEAST_LIMIT, _RANKS_PER_CORE * (os.cpu_count() or 1))
    if slots > most:
        raise InputError(
            "--np is out of range",
            expected=f"at most {most:,} ranks on a machine of {os.cpu_count()} cores",
            received=f"{slots:,}",
            fix="start fewer ranks; each rank uses several threads (--threads)",
        )
    return min(slots, args.max_np or slots)
