import argparse
import faulthandler
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from xmc_tf.check import exchanges, places
from xmc_tf.check.links import Link, measure_links, slow_links
from xmc_tf.check.links import as_table as as_matrix
from xmc_tf.check.model_check import check_model
from xmc_tf.common.errors import InputError
from xmc_tf.common.process import cli
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.stalls.watch import StallWatch

# The default of --timeout. A slow network, or ranks that share busy cores, still exchange this much.
_TIMEOUT_S, _LEAST_MB_PER_S = 60.0, 4.0
_DESCRIPTION = """Check that all ranks can reach each other, or verify the files of a model.

Run it before a long training, with the same launcher and hosts. It lists all ranks (host,
process, cores, versions), runs broadcast, all-reduce and all-to-all, compares their results with known
values, and measures their time.

On several hosts, it also measures the bandwidth between every two of them, and names slow links.

After --timeout seconds without progress, it names each rank that hangs or has ended, and what that rank is doing. If
a rank does not even start, each rank that waits for it reports this after that time. The exit status is 1 for such
a rank, for a wrong result, and for a folder that is not shared.

With --model it verifies every byte of a model or an export instead, without ranks. The exit status is 0 if
all files are intact, 1 if a file is damaged or missing, and 2 if the folder is not a model."""

_EXAMPLES = """examples:
  python -m xmc_tf.launch --np 2 -m xmc_tf.check
  horovodrun -np 4 -H localhost:4 python -m xmc_tf.check --shared-workdir
  mpiexec -n 4 python -m xmc_tf.check --timeout 20 --shared-workdir /data/run
  mpiexec -n 4 python -m xmc_tf.check --megabytes 2200
  python -m xmc_tf.check --model model
"""
_MOST_MB, _MOST_S = 1_000_000, 1_000_000


def parser() -> argparse.ArgumentParser:
    parser = cli.make_parser("xmc_tf.check", _DESCRIPTION, epilog=_EXAMPLES)
    add = parser.add_argument
    add("--model", metavar="DIR", help="verify only the files of this model, PECOS model or export")
    limit = "maximum seconds of one step (default: 60, plus 1 for each 4 MB of --megabytes)"
    add("--timeout", type=float, metavar="S", help=limit)
    shared = "also check that all ranks can read and write this folder (without DIR: the current one)"
    add("--shared-workdir", nargs="?", const=".", metavar="DIR", help=shared)
    size = "size of the large messages; 2200 is more than 2 GiB, and takes up to 10 GB of memory per rank"
    add("--megabytes", type=float, default=16.0, metavar="MB", help=size)
    library = "communication library; auto: the one that xmc_tf uses with this launcher"
    add("--communicator", choices=["auto", "horovod", "mpi"], default="auto", help=library)
    add("--json", action="store_true", help="print the results as one JSON object")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Check the ranks and print the results on rank 0, or verify a model."""
    args = parser().parse_args(argv)
    if args.model is not None:
        unused = ("timeout", "shared_workdir", "megabytes", "communicator")
        args.refuse(*unused, where="with --model: no ranks are checked")
        found = check_model(args.model)
        print(json.dumps(found.to_json()) if args.json else found.to_text())
        if not found.intact:
            sys.exit(1)
        return
    if args.timeout is None:
        args.timeout = _TIMEOUT_S + args.megabytes / _LEAST_MB_PER_S
    for flag, value, most in (("--megabytes", args.megabytes, _MOST_MB), ("--timeout", args.timeout, _MOST_S)):
        if not 0 < value <= most:
            raise InputError(f"{flag} is out of range", expected=f"above 0, at most {most:,}", received=f"{value:g}")
    if args.communicator != "auto":
        os.environ["XMC_TF_COMMUNICATOR"] = args.communicator
    # This rank ends, with a traceback, if the others do not start in time. A thread of Python could not do this: MPI's
    # start blocks all of them.
    faulthandler.dump_traceback_later(args.timeout, exit=True, file=2)
    world = choose_communicator()
    world.barrier()
    faulthandler.cancel_dump_traceback_later()
    if world.size > 1:
        StallWatch(world, args.timeout, setting="--timeout").start()
    if _check(world, args):
        sys.exit(1)


def _check(world: Communicator, args: argparse.Namespace) -> list[str]:
    """Run all checks, and return the problems. All ranks return the same ones."""
    found = world.allgather(places.place_of_rank(world))
    _show(world, args, f"{world.size} rank{'s' if world.size > 1 else ''}: {world}\n{places.as_table(found)}")
    several = len({place.host for place in found}) > 1
    timings = [exchanges.measure(world, name, round(args.megabytes * 1e6)) for name in exchanges.COLLECTIVES]
    _show(world, args, "\n" + exchanges.as_table(timings))
    links: list[Link] = []
    if several:
        links = measure_links(world, round(args.megabytes * 1e6))
        _show(world, args, f"\n{as_matrix(links)}")
    problems = [f"{one.name}: wrong result on rank {_names(one.wrong_ranks)}" for one in timings if not one.right]
    shared = None
    if args.shared_workdir:
        folder = Path(args.shared_workdir).absolute()
        without = places.ranks_without(world, folder)
        shared = not without
        if without:
            hosts = sorted({found[rank].host for rank in without})
            problems.append(f"{folder} is not shared: rank {_names(without)} ({', '.join(hosts)}) cannot access it")
        else:
            _show(world, args, f"\nall ranks see and can write {folder}")
    world.barrier()
    warnings = places.warnings(found)
    warnings += [f"slow link: {link}; check the cable, the interface and other traffic" for link in slow_links(links)]
    for line in [f"warning: {text}" for text in warnings] + [f"failed: {text}" for text in problems]:
        if world.rank == 0 and not args.json:
            print(line, file=sys.stderr)
    if world.rank == 0 and args.json:
        report = {
            "communicator": str(world),
            "ranks": [asdict(place) for place in found],
            "collectives": [asdict(timing) for timing in timings],
            "links": [asdict(link) for link in links],
            "shared_workdir": shared,
            "warnings": warnings,
            "problems": problems,
        }
        print(json.dumps(report))
    elif world.rank == 0 and not problems:
        print("\nall checks passed")
    return problems


def _show(world: Communicator, args: argparse.Namespace, text: str) -> None:
    if world.rank == 0 and not args.json:
        print(text, flush=True)


def _names(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))


if __name__ == "__main__":
    cli.run(main)
