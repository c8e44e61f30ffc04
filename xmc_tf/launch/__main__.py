import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.process import cli
from xmc_tf.common.process.terminal import allow_control_characters
from xmc_tf.launch import manual_nodes
from xmc_tf.launch.engines import check_installed, default_controller
from xmc_tf.launch.gpus import Gpu, least_busy, visible_gpus
from xmc_tf.launch.hosts import THIS_HOST, Host, Hosts, is_here
from xmc_tf.launch.nodes import Nodes, address_towards
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

    user_starts_nodes = args.nodes is not None or args.node_rank is not None
    run = (_run_manual_nodes if user_starts_nodes else _run_from_here)(args, program, gpus, plan)
    if run is None:  # --dry-run
        return
    check_installed(args.controller)
    output = Output(Path(args.log_dir) if args.log_dir else None, args.quiet)
    try:
        status = run(output)
    finally:
        output.close()
    if status:
        sys.exit(status)


def _run_from_here(
    args: cli.GivenFlags, program: Sequence[str], gpus: Sequence[Gpu], plan: Callable[[Hosts], LaunchPlan]
) -> Callable[[Output], int] | None:
    """Return a function that starts the nodes and runs the program on them, or None after ``--dry-run``."""
    hosts = choose_hosts(args, os.environ, gpus)
    refuse_from_here(args, checked=args.check_only or not hosts.only_here)
    if args.dry_run:
        print(f"{plan(hosts).describe()}\n{_describe_run(args, program, hosts)}")
        return None

    def run(output: Output) -> int:
        address, lost_after_s = address_towards([host.name for host in hosts]), lost_after(args.timeout)
        nodes = Nodes(address, args.timeout, 0.0 if hosts.only_here else lost_after_s)
        return _run(args, nodes, lambda: plan(hosts), output)

    return run


def _run_manual_nodes(
    args: cli.GivenFlags, program: Sequence[str], gpus: Sequence[Gpu], plan: Callable[[Hosts], LaunchPlan]
) -> Callable[[Output], int] | None:
    """Return a function that runs the program on user-started nodes, or serves as a node; None after ``--dry-run``."""
    manual_nodes.check_options(args)
    here = manual_nodes.slots_here(args, gpus)
    if args.dry_run:
        hosts = Hosts([Host(THIS_HOST, here), Host("the other nodes", 1)])
        planned = plan(hosts)
        lines = [manual_nodes.describe(args, here), planned.describe_settings(), f"engine:  {planned.engine}"]
        print("\n".join([*lines, _describe_run(args, program, hosts)]))
        return None

    def run(output: Output) -> int:
        if args.node_rank:
            return manual_nodes.run_node(args, here, output)
        secret, address = manual_nodes.read_secret(args.secret_file), manual_nodes.master_address(args)
        nodes = Nodes(address, args.timeout, lost_after(args.timeout), secret=secret, port=args.master_port)
        output.note(f"node 0 waits for the other nodes at {address}:{args.master_port}")
        return _run(args, nodes, lambda: plan(nodes.wait(here, args.nodes)), output)

    return run


def _run(args: argparse.Namespace, nodes: Nodes, make_plan: Callable[[], LaunchPlan], output: Output) -> int:
    status = 1
    try:
        plan = make_plan()
        checks = _checks(args, plan.program, plan.hosts)
        job = Job(plan, nodes, output, checks, min_np=args.min_np)
        status = job.check_only() if args.check_only else job.run()
    finally:
        nodes.close(status)
    return status


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
