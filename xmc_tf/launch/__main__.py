"""``python -m xmc_tf.launch``: run a program on several ranks, on this machine or on several hosts."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.process import cli
from xmc_tf.launch import by_hand
from xmc_tf.launch.choosing import choose_gpus, choose_hosts, choose_program, inputs_of, shared_folder_of
from xmc_tf.launch.command import check_installed, default_controller
from xmc_tf.launch.hosts.gpus import Gpu, visible_gpus
from xmc_tf.launch.hosts.hosts import Hosts
from xmc_tf.launch.job import Checks, Job
from xmc_tf.launch.options import check_numbers, is_by_hand, parser
from xmc_tf.launch.output import Output
from xmc_tf.launch.plan import LaunchPlan
from xmc_tf.launch.remote.shells import Shell, Ssh
from xmc_tf.launch.running import Run
from xmc_tf.ranks.choosing import how_started


def main(argv: Sequence[str] | None = None) -> None:
    """Start the ranks, wait for them, and exit with the status of the rank that failed first."""
    args = parser().parse_args(argv)
    program = choose_program(args)
    check_numbers(args)
    _refuse_ranks()
    args.controller = args.controller or default_controller()
    gpus = visible_gpus(os.environ)
    by_hand_wanted = is_by_hand(args)
    if by_hand_wanted:
        by_hand.check_options(args)
        here = by_hand.slots_here(args, gpus)
        if args.dry_run:
            print(f"{by_hand.describe(args, here)}\nprogram: {shlex.join(program)}")
            return
    hosts = None if by_hand_wanted else choose_hosts(args, os.environ, gpus)
    if hosts is not None and args.dry_run:
        print(_plan(args, program, hosts, gpus).describe())
        return
    check_installed(args.controller)
    output = Output(Path(args.log_dir) if args.log_dir else None, args.quiet)

    def run(hosts: Hosts, shell: Shell) -> int:
        return _run(args, _plan(args, program, hosts, gpus), shell, output)

    try:
        if hosts is not None:
            status = run(hosts, Ssh(args.timeout))
        else:
            status = (
                by_hand.run_node(args, here, output) if args.node_rank else by_hand.run_master(args, here, output, run)
            )
    finally:
        output.close()
    if status:
        sys.exit(status)


def _plan(args: argparse.Namespace, program: Sequence[str], hosts: Hosts, gpus: Sequence[Gpu]) -> LaunchPlan:
    agent = [*(["--threads", str(args.threads)] if args.threads else []), *(["--no-pin"] if args.no_pin else [])]
    chosen = choose_gpus(hosts, gpus)
    return LaunchPlan(
        hosts, args.controller, program, args.timeout, gpus=chosen, agent=agent, stall_timeout_s=args.stall_timeout
    )


def _run(args: argparse.Namespace, plan: LaunchPlan, shell: Shell, output: Output) -> int:
    """Run the plan and return its exit status."""
    if plan.hosts.only_here and not args.check_only:
        return Run(plan, output, shell, verbose=args.verbose).run().status
    checks = Checks(inputs_of(plan.program), shared_folder_of(args, plan.program), strict=not args.skip_checks)
    job = Job(plan, shell, output, checks, min_np=args.min_np, verbose=args.verbose)
    return job.check_only() if args.check_only else job.run()


def _refuse_ranks() -> None:
    kind, reason = how_started({name: value for name, value in os.environ.items() if name != "XMC_TF_COMMUNICATOR"})
    if kind != "solo":
        raise InputError(
            f"the launcher was started as one of several ranks ({reason})",
            fix="start it once, or run the program itself under horovodrun or mpiexec",
        )


if __name__ == "__main__":
    cli.run(main)
