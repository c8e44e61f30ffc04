"""One run of a plan: its output, the end of each rank, and the first failure."""

import contextlib
import dataclasses
import itertools
import os
import queue
import signal
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from xmc_tf.common.process import signals
from xmc_tf.launch.checks import HostChecks, check_hosts
from xmc_tf.launch.engines import Mpi, start_gloo
from xmc_tf.launch.hosts import Hosts
from xmc_tf.launch.node import DONE, END, JOB, LINE, STARTED, STOP
from xmc_tf.launch.nodes import NodeError, Nodes
from xmc_tf.launch.plan import LaunchPlan

# Not passed to other hosts: what describes this host or this login, and what launchers set.
_OWN_VARIABLES = (
    *("SSH_", "OMPI_", "PMIX_", "PRTE_", "XDG_", "BASH_FUNC_"),
    *("DISPLAY", "HOSTNAME", "OLDPWD", "_", "SHLVL", "TERM"),
)
_GRACE_S = 1.0  # time for other failures after the first one: one of them may be the cause
_PATIENCE_S = 10.0  # time for the nodes to end their processes
_POLL_S = 0.1
_NUMBERS = itertools.count()

# Separate limits, so that output does not push errors out.
OUTPUT_LINES, ERROR_LINES = 5, 20

# The failure of another rank never ends a process by one of these signals.
_NEVER_CONSEQUENCES = {signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
_MOST_UNCHANGED = 3  # restarts on the same hosts, after a host was lost for a moment


@dataclass
class RankState:
    rank: int
    host: str
    pid: int
    last_line_at: float  # times are those of time.monotonic
    output: deque[str] = field(default_factory=lambda: deque(maxlen=OUTPUT_LINES))
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=ERROR_LINES))
    status: int | None = None  # negative for a signal; None while it runs, or if its node was lost
    ended_at: float | None = None
    stopped: bool = False  # before it ended

    @property
    def failed(self) -> bool:
        """Whether the rank failed by itself, rather than because it was stopped."""
        return self.ended_at is not None and self.status != 0 and not self.stopped

    @property
    def exit_code(self) -> int:
        """The rank's exit status as a shell reports it, or 1 if the rank was lost."""
        if self.status is None:
            return 1
        return 128 - self.status if self.status < 0 else self.status

    def describe(self, siblings: bool = False) -> str:
        """Describe the rank's end and show its last lines. ``siblings`` adds that the other ranks were stopped."""
        who = f"rank {self.rank} (pid {self.pid} on {self.host})"
        if self.status is None:
            what = "was lost: its host is unreachable, or the node process there was killed"
        elif self.status < 0:
            number = signal.Signals(-self.status)
            what = f"was ended by signal {-self.status} ({number.name})"
            if number == signal.SIGKILL:
                what += "; if nobody killed it, its host was out of memory"
            elif number == signal.SIGALRM:
                what += ": it did not reach the other ranks within four times --timeout; if all of them have started, "
                what += "another program may have connected to its port"
        else:
            what = f"ended with exit status {self.status}"
        what += ". The others were stopped" if siblings else ""
        if not self.output and not self.errors:
            return f"{who} {what}. It had no output"
        lines = "\n".join(f"    {line}" for line in [*self.output, *self.errors])
        return f"{who} {what}. Its last lines:\n{lines}"


def first_failure(ranks: Iterable[RankState]) -> RankState | None:
    """Return the first rank killed by one of _NEVER_CONSEQUENCES, else the one with the earliest last line or loss."""

    def order(state: RankState) -> tuple[bool, float]:
        killed = state.status is not None and -state.status in _NEVER_CONSEQUENCES
        return not killed, state.ended_at or 0.0 if killed or state.status is None else state.last_line_at

    return min((state for state in ranks if state.failed), key=order, default=None)


class Output:
    """Prints the lines of the launcher and the ranks. With ``log_dir``, also appends each rank's lines to a file."""

    def __init__(self, log_dir: Path | None = None, quiet: bool = False) -> None:
        self._log_dir, self._quiet = log_dir, quiet
        self._files: dict[int, TextIO] = {}
        if log_dir is not None:
            log_dir.mkdir(parents=True, exist_ok=True)

    def show(self, rank: int, stream: str, text: str) -> None:
        """Print a rank's line to its original stream, prefixed with the rank, and write it to the rank's file."""
        print(f"[{rank}] {text}", file=sys.stdout if stream == "out" else sys.stderr, flush=True)
        if self._log_dir is not None:
            if rank not in self._files:
                self._files[rank] = (self._log_dir / f"rank.{rank}.log").open("a", encoding="utf-8")
            print(text, file=self._files[rank], flush=True)

    def note(self, text: str) -> None:
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)

    def error(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}


class Outcome(NamedTuple):
    """The result of a run: its exit status, whether a signal ended it, and whether a rank was lost or never started."""

    status: int
    interrupted: bool = False
    lost: bool = False


class RunningPlan:
    """One run of a plan: start the ranks, show their output, stop all if one fails, and report the failure."""

    def __init__(self, plan: LaunchPlan, nodes: Nodes, output: Output) -> None:
        self.plan, self._nodes, self._output = plan, nodes, output
        self.ranks: dict[int, RankState] = {}
        self._stopped_at: float | None = None
        self._mpi: Mpi | None = None
        self._number = next(_NUMBERS)

    def run(self) -> Outcome:
        plan, nodes = self.plan, self._nodes
        nodes.forget_events()
        variables = {**os.environ, **plan.environment()}
        exported = {name: value for name, value in variables.items() if not name.startswith(_OWN_VARIABLES)}
        job: dict[str, Any] = {"run": self._number, "program": list(plan.program), "environment": exported}
        job |= {"threads": plan.threads, "pin": plan.pin}
        try:
            for host in plan.hosts:
                nodes[host.name].send(JOB, gpus=list(plan.gpus.get(host.name, ())), **job)
            with contextlib.ExitStack() as at_end:
                if plan.controller == "mpi":
                    self._mpi = at_end.enter_context(contextlib.closing(Mpi(plan.hosts, nodes, variables)))
                else:
                    at_end.callback(start_gloo(plan.hosts, nodes))
                return self._outcome()
        except NodeError:  # a node has just been lost
            return Outcome(1, lost=True)

    def _outcome(self) -> Outcome:
        try:
            self._follow()
        except signals.Interrupted as interrupted:
            signals.allow_slow_end()  # so that the ranks have some seconds to end
            self._stop()
            self._follow()
            self._output.error(f"\n{signals.describe(interrupted.number)}; all ranks have ended")
            return Outcome(128 + interrupted.number, interrupted=True)
        missing = sorted(set(range(self.plan.hosts.size)) - set(self.ranks))
        if (failure := first_failure(self.ranks.values())) is not None:
            self._output.error(f"\nfailed: {failure.describe(siblings=self.plan.hosts.size > 1)}")
            return Outcome(failure.exit_code, lost=failure.status is None)
        if missing or self._mpiexec_status():
            self._explain(missing)
            return Outcome(1, lost=bool(missing))
        return Outcome(0)

    def _mpiexec_status(self) -> int | None:
        return None if self._mpi is None else self._mpi.status()

    def _follow(self) -> None:
        """Handle the messages of the nodes until all ranks have ended. Stop them if one fails or starts too late."""
        begun, gone_at = time.monotonic(), None
        while True:
            with contextlib.suppress(queue.Empty):
                name, message = self._nodes.events.get(timeout=_POLL_S)
                self._lose(name) if message is None else self._handle(message)
            now = time.monotonic()
            states = self.ranks.values()
            started = len(states) == self.plan.hosts.size
            running = not started or any(state.ended_at is None for state in states)
            gone_at = gone_at or (now if self._mpiexec_status() is not None else None)
            if not running and (gone_at is not None or self._mpi is None):
                return
            if gone_at is not None and now - gone_at > _GRACE_S and not any(s.ended_at is None for s in states):
                return  # mpiexec has ended without starting all ranks
            if self._stopped_at is not None and now - self._stopped_at > _PATIENCE_S:
                return
            failed = any(state.failed and now - (state.ended_at or 0) > _GRACE_S for state in states)
            late = not started and now - begun > self.plan.timeout_s
            if failed or late:
                self._stop()

    def _stop(self) -> None:
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
            self._nodes.send(STOP)

    def _handle(self, message: dict[str, Any]) -> None:
        kind, now = message["kind"], time.monotonic()
        if message["run"] != self._number:
            return  # late, of the run before
        if kind == DONE:
            if self._mpi is not None:
                self._mpi.finish(message["number"], message["status"], message["lines"])
            return
        rank = message["rank"]
        if kind == STARTED:
            self.ranks[rank] = RankState(rank, message["host"], message["pid"], last_line_at=now)
            if self._stopped_at is not None:
                self._nodes.send(STOP)
            return
        state = self.ranks[rank]
        if kind == LINE:
            (state.output if message["stream"] == "out" else state.errors).append(message["text"])
            state.last_line_at = now
            self._output.show(rank, message["stream"], message["text"])
        elif kind == END:
            state.status, state.stopped, state.ended_at = message["status"], message["stopped"], now

    def _lose(self, name: str) -> None:
        if self._mpi is not None:
            self._mpi.lose(name)
        for rank in range(self.plan.hosts.size):
            if self.plan.hosts.host_of(rank).name == name:
                state = self.ranks.setdefault(rank, RankState(rank, name, 0, last_line_at=time.monotonic()))
                state.ended_at = state.ended_at or time.monotonic()

    def _explain(self, missing: list[int]) -> None:
        """Report a failure that is not an error of a rank."""
        runner, status = {"gloo": "Horovod", "mpi": "mpiexec"}[self.plan.controller], self._mpiexec_status()
        if missing:
            names = ", ".join(map(str, missing))
            hosts = dict.fromkeys(self.plan.hosts.host_of(rank).name for rank in missing)
            where = "" if self.plan.hosts.only_here else f" on {', '.join(hosts)}"
            when = f"before {runner} ended with status {status}" if status else f"within {self.plan.timeout_s} s"
            self._output.error(f"\nfailed: no connection from rank {names}{where} {when}")
        else:
            self._output.error(f"\nfailed: {runner} ended with status {status}")
        for line in () if self._mpi is None else list(self._mpi.tail):
            self._output.error(f"    {line}")


class Checks(NamedTuple):
    paths: Sequence[str]  # files and folders of the program
    shared: str  # the folder that all hosts must share
    strict: bool  # any failed check keeps the job from starting; otherwise only unreachable hosts do

    def describe(self) -> str:
        failed = "stops the run" if self.strict else "is shown, and stops the run only if a host is not reached"
        return f"checks:  files {', '.join(self.paths) or '(none)'}; shared folder {self.shared}; a problem {failed}"


class Job:
    """A run with its checks. If hosts are lost and ``min_np`` is set, it restarts on the remaining hosts."""

    def __init__(
        self,
        plan: LaunchPlan,
        nodes: Nodes,
        output: Output,
        checks: Checks | None,  # None for a run on this host alone
        *,
        min_np: int | None,  # restart on at least this number of ranks; None: do not restart
    ) -> None:
        self._plan, self._nodes, self._output, self._checks, self._min_np = plan, nodes, output, checks, min_np

    def check_only(self) -> int:
        report = self._look()
        print(report.text())
        return 1 if report.problems else 0

    def run(self) -> int:
        before: Hosts | None = None
        outcome, unchanged = Outcome(1), 0
        while True:
            report = self._look()
            strict = self._checks is not None and self._checks.strict
            unusable = {host for host, column, _ in report.problems if strict or column == "reached"}
            lost = [host for host in report.rows if host.name in unusable]
            if report.rows and (before is None or report.problems):
                (self._output.error if report.problems else self._output.note)(f"{report.text()}{os.linesep}")
            left = self._plan.hosts.size - sum(host.slots for host in lost)
            if lost and (self._min_np is None or left < self._min_np):
                if self._min_np is not None:
                    self._output.error(f"failed: fewer ranks are left ({left}) than --min-np {self._min_np}")
                return outcome.status
            hosts = self._plan.hosts.without([host.name for host in lost])
            if before is not None:
                unchanged = unchanged + 1 if hosts == before else 0
                if unchanged and (not outcome.lost or unchanged > _MOST_UNCHANGED):
                    return outcome.status  # all hosts are there: the program itself has failed
                self._output.error(f"restarting on {hosts.size} ranks ({hosts.as_flag()})")
            plan = dataclasses.replace(self._plan, hosts=hosts, gpus={**self._plan.gpus, **report.gpus})
            outcome = RunningPlan(plan, self._nodes, self._output).run()
            before = hosts
            if outcome.status == 0 or outcome.interrupted or self._min_np is None:
                return outcome.status
            self._output.error("checking which hosts are left")

    def _look(self) -> HostChecks:
        if self._checks is None:
            self._nodes.start(self._plan.hosts, self._plan.timeout_s)
            return HostChecks()
        return check_hosts(self._nodes, self._plan.hosts, paths=self._checks.paths, shared=self._checks.shared)
