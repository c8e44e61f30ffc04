import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.process import cli
from xmc_tf.common.process.terminal import allow_control_characters
from xmc_tf.launch import manual_nodes
from xmc_tf.launch.engines import check_installed, default_controller
from xmc_tf.launch.gpus import least_busy, visible_gpus
from xmc_tf.launch.hosts import THIS_HOST, Host, Hosts, is_here
from xmc_tf.launch.nodes import Nodes
from xmc_tf.launch.options import (
    check_numbers,
    choose_hosts,
    choose_program,
    inputs_of,
    parser,
    refuse_from_here,
    shared_folder_of,
)
from xmc_tf.launch.plan import LaunchPlan, count, lost_after
from xmc_tf.launch.running import Checks, Job, Output
from xmc_tf.ranks.channels import address_towards
from xmc_tf.ranks.choosing import how_started


def main(argv: Sequence[str] | None = None) -> None:
    """Start the ranks, wait for them, and exit with the status of the rank that failed first."""
    args = parser().parse_args(argv)
    allow_control_characters()  # of the ranks' output
    program = choose_program(args)
    check_numbers(args)
    kind, reason = how_started({name: value for name, value in os.environ.items() if name != "XMC_TF_COMMUNICATOR"})
    if kind != "solo":
        raise InputError(
            f"the launcher was started as one of several ranks ({reason})",
            fix="start it once, or run the program itself under horovodrun or mpiexec",
        )
    args.controller = args.controller or default_controller()
    gpus = visible_gpus(os.environ)

    def plan(hosts: Hosts) -> LaunchPlan:
        used = {host.name: least_busy(gpus, host.slots) for host in hosts if is_here(host.name) and gpus}
        return LaunchPlan(
            hosts, args.controller, program, args.timeout, gpus=used, threads=args.threads, pin=not args.no_pin,
            stall_timeout_s=args.stall_timeout,
        )  # fmt: skip

    by_hand = args.nodes is not None or args.node_rank is not None
    if by_hand:
        manual_nodes.check_options(args)
        slots = manual_nodes.slots_here(args, gpus)
        hosts = Hosts([Host(THIS_HOST, slots), Host("the other nodes", 1)])  # until they have connected
    else:
        hosts = choose_hosts(args, os.environ, gpus)
        slots = hosts.size
        refuse_from_here(args, checked=args.check_only or not hosts.only_here)
    if args.dry_run:
        about = manual_nodes.describe(args, plan(hosts)) if by_hand else plan(hosts).describe()
        print(f"{about}\n{_describe_run(args, program, hosts)}")
        return
    check_installed(args.controller)
    with contextlib.closing(Output(Path(args.log_dir) if args.log_dir else None, args.quiet)) as output:
        status = manual_nodes.run_node(args, slots, output) if args.node_rank else 1
        if not args.node_rank:
            nodes = manual_nodes.listen(args, output) if by_hand else _nodes_of(args, hosts)
            try:
                planned = plan(nodes.wait(slots, args.nodes) if by_hand else hosts)
                job = Job(planned, nodes, output, _checks(args, program, planned.hosts), min_np=args.min_np)
                status = job.check_only() if args.check_only else job.run()
            finally:
                nodes.close(status)
    if status:
        sys.exit(status)


def _nodes_of(args: argparse.Namespace, hosts: Hosts) -> Nodes:
    address = address_towards(host.name for host in hosts if not is_here(host.name))
    return Nodes(address, args.timeout, 0.0 if hosts.only_here else lost_after(args.timeout))


def _checks(args: argparse.Namespace, program: Sequence[str], hosts: Hosts) -> Checks | None:
    """Return the checks to make before the run: None if all ranks are on this host, except with --check-only."""
    if hosts.only_here and not args.check_only:
        return None
    return Checks(inputs_of(program), shared_folder_of(args, program), strict=not args.skip_checks)


def _describe_run(args: argparse.Namespace, program: Sequence[str], hosts: Hosts) -> str:
    """Return a description of the checks, restarts and output of a run, for ``--dry-run``."""
    lines = [checks.describe()] if (checks := _checks(args, program, hosts)) else []
    if args.check_only:
        return "\n".join([*lines, "starts:  nothing (--check-only)"])
    if args.min_np is not None:
        lines.append(f"restart: on at least {count(args.min_np, 'rank')}, if hosts are lost")
    lines.append(f"prints:  the ranks' lines{'' if args.quiet else ', progress'}")
    return "\n".join([*lines, *([f"writes:  {args.log_dir}"] if args.log_dir else [])])


if __name__ == "__main__":
    cli.run(main)
