"""Runs on nodes that users start themselves, without ssh. Node 0 is the master and controls the others."""

import argparse
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.process import cli, signals
from xmc_tf.launch.gpus import Gpu
from xmc_tf.launch.hosts import MOST_SLOTS
from xmc_tf.launch.node import HostNode
from xmc_tf.launch.nodes import Nodes
from xmc_tf.launch.plan import LaunchPlan, count, lost_after
from xmc_tf.launch.running import Output
from xmc_tf.ranks.channels import ANYWHERE, Channel, StrangerError, address_towards, connect

_LEAST_SECRET = 16  # characters
_NEW_SECRET = "create it: (umask 077; head -c 32 /dev/urandom | base64 > secret), and copy it to all nodes"
_RETRY_S = 0.5


def check_options(args: cli.GivenFlags) -> None:
    number = args.node_rank or 0
    args.refuse("max_np", where="with nodes that you start", fix="start fewer ranks on each node (--np)")
    if args.nodes is None:
        raise InputError("--nodes is missing", expected="the number of nodes", fix="for example --nodes 2")
    if not 0 <= number < min(args.nodes, MOST_SLOTS):
        raise InputError("invalid --node-rank", expected=f"a number from 0 to {args.nodes - 1}", received=str(number))
    if number > 0 and args.master_addr is None:
        raise InputError("--master-addr is missing", expected="the name or address of node 0")
    if args.secret_file is None and not args.dry_run:
        expected = "a file with the same secret on all nodes, so that nobody else can start programs here"
        raise InputError("--secret-file is missing", expected=expected, fix=_NEW_SECRET)


def slots_here(args: argparse.Namespace, gpus: Sequence[Gpu]) -> int:
    slots = args.np or len(gpus)
    if not slots:
        raise InputError("--np is missing", expected="the number of ranks of this node, which has no visible GPU")
    return int(slots)


def describe(args: argparse.Namespace, plan: LaunchPlan) -> str:
    number, others = args.node_rank or 0, count(args.nodes - 1, "other node")
    lines = [f"node {number}: {count(plan.hosts.all[0].slots, 'rank')} on this host"]
    if number:
        lines.append(f"connects to node 0 at {args.master_addr}:{args.master_port}, which starts its ranks")
    else:
        lines.append(f"waits at {_own_address(args)}:{args.master_port} for {others}, at most {args.timeout} s")
    lines += [f"secret:  {args.secret_file or 'none yet (--secret-file)'}", plan.describe_settings()]
    return "\n".join([*lines, f"engine:  {plan.engine}"])


def listen(args: argparse.Namespace, output: Output) -> Nodes:
    """Wait on node 0 for the others."""
    secret, address = read_secret(args.secret_file), _own_address(args)
    nodes = Nodes(address, args.timeout, lost_after(args.timeout), secret=secret, port=args.master_port)
    output.note(f"node 0 waits for the other nodes at {address}:{args.master_port}")
    return nodes


def run_node(args: argparse.Namespace, here: int, output: Output) -> int:
    """Serve the master until the run ends, and return the exit status."""
    master = (args.master_addr, args.master_port)
    launcher = _connect(master, read_secret(args.secret_file), args.timeout)
    node = HostNode(launcher, args.node_rank, slots=here, lost_after_s=lost_after(args.timeout))
    output.note(f"node {args.node_rank} has connected to node 0 at {master[0]}:{master[1]}")
    try:
        status = node.serve()
    except signals.Interrupted as interrupted:
        signals.allow_slow_end()
        node.close()
        output.error(f"\n{signals.describe(interrupted.number)}; all ranks of this node have ended")
        return 128 + interrupted.number
    node.close()
    if status is None:
        output.error("failed: node 0 is lost; all ranks of this node have ended")
        return 1
    output.note(f"node {args.node_rank}: the run has ended with status {status}")
    return status


def read_secret(path: str) -> bytes:
    """Read the secret file, and return a hash of it with the length that the handshake needs."""
    file = Path(path)
    if not file.is_file():
        raise InputError(f"--secret-file: {path} is not a file", fix=_NEW_SECRET)
    if file.stat().st_mode & 0o077:
        raise InputError(f"--secret-file: other users can read {path}", fix=f"chmod 600 {path}")
    content = file.read_bytes().strip()
    if len(content) < _LEAST_SECRET:
        raise InputError(
            f"--secret-file: {path} is too short",
            expected=f"at least {_LEAST_SECRET} characters",
            received=f"{len(content)}",
            fix=_NEW_SECRET,
        )
    return hashlib.sha256(content).digest()


def _own_address(args: argparse.Namespace) -> str:
    return str(args.master_addr or address_towards([ANYWHERE]))


def _connect(master: tuple[str, int], secret: bytes, timeout_s: float) -> Channel:
    """Connect to the master. Retry until the timeout, because it may start later than this node."""
    end, problem = time.monotonic() + timeout_s, ""
    while time.monotonic() < end:
        try:
            return connect(master, secret, patience_s=min(5.0, timeout_s))
        except StrangerError as error:
            problem = f"--secret-file: {master[0]}:{master[1]} has another secret, or is not a master"
            raise InputError(problem, received=str(error), fix="copy the same file to all nodes") from None
        except OSError as error:
            problem = str(error)
        time.sleep(_RETRY_S)
    title = f"--master-addr: no connection to {master[0]}:{master[1]} within {timeout_s:g} s"
    raise InputError(title, received=problem, fix="start node 0, and check its name, its port and its firewall")
