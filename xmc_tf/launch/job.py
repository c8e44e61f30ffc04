import dataclasses
import os
from collections.abc import Sequence
from typing import NamedTuple

from xmc_tf.launch.checks import HostChecks, check_hosts
from xmc_tf.launch.hosts import Hosts
from xmc_tf.launch.nodes import Nodes
from xmc_tf.launch.plan import LaunchPlan
from xmc_tf.launch.running import Outcome, Output, RunningPlan

_MOST_UNCHANGED = 3  # restarts on the same hosts, after a host was lost for a moment


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
