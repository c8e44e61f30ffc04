"""One run of a plan: start the ranks, follow them to their end, and report a failure."""

import os
import subprocess
import sys
import threading
from typing import NamedTuple

from xmc_tf.common.process import signals
from xmc_tf.launch.hosts.hosts import is_here
from xmc_tf.launch.messages import SECRET_FILE
from xmc_tf.launch.output import Output
from xmc_tf.launch.plan import LaunchPlan
from xmc_tf.launch.preflight.sessions import Sessions
from xmc_tf.launch.remote.interfaces import interface_of
from xmc_tf.launch.remote.shells import Shell
from xmc_tf.launch.watch import Watch

# Not passed to other hosts: what describes this host or this login, and what launchers set.
_OWN_VARIABLES = (
    "SSH_",
    "OMPI_",
    "PMIX_",
    "PRTE_",
    "XDG_",
    "BASH_FUNC_",
    "DISPLAY",
    "HOSTNAME",
    "OLDPWD",
    "_",
    "SHLVL",
    "TERM",
)


class Outcome(NamedTuple):
    """The end of a run: its exit status, whether a signal has ended it, and whether a rank was lost with its host."""

    status: int
    interrupted: bool = False
    lost: bool = False


class Run:
    """One run of a plan.

    Args:
        plan: what to run where.
        output: where lines go.
        shell: the way to other hosts.
        networks: the networks of the hosts' interfaces.
        verbose: print the command and the placement of the ranks, too.
    """

    def __init__(
        self, plan: LaunchPlan, output: Output, shell: Shell, networks: tuple[str, ...] = (), verbose: bool = False
    ) -> None:
        self.plan, self._output, self._shell, self._networks, self._verbose = plan, output, shell, networks, verbose

    def run(self, sessions: Sessions | None = None, interrupt: threading.Event | None = None) -> Outcome:
        """Run all ranks to their end.

        Args:
            sessions: the sessions with the probes of the other hosts, which write the secret there; closed on return.
            interrupt: stops the ranks when it is set.
        """
        plan, several = self.plan, not self.plan.hosts.only_here
        address = self._shell.address_here([host.name for host in plan.hosts]) if several else "127.0.0.1"
        closing = threading.Thread(target=sessions.close) if sessions is not None else None
        watch = Watch(
            plan.hosts.size,
            address,
            self._output.show,
            lost_after_s=plan.lost_after_s if several else None,
            started=closing.start if closing is not None else lambda: None,
        )
        try:
            if sessions is not None:
                _place_secret(sessions, watch)
            environment = {**os.environ, **plan.environment(), **watch.environment, **self._shell.environment()}
            exported = [name for name in sorted(environment) if not name.startswith(_OWN_VARIABLES)] if several else []
            command = plan.command(interface_of(address), self._networks, self._shell.program, exported)
            if self._verbose:
                self._output.note(" ".join(command))
            return self._follow(watch, command, environment, interrupt)
        finally:
            watch.close()
            if sessions is not None:
                sessions.close()
            if self._verbose:
                self._show_places(watch)

    def _follow(
        self, watch: Watch, command: list[str], environment: dict[str, str], interrupt: threading.Event | None
    ) -> Outcome:
        timeout = self.plan.timeout_s
        launcher = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches only this process, which stops the ranks
        )
        try:
            watch.follow(launcher, timeout, interrupt)
        except signals.Interrupted as interrupted:
            signals.allow_slow_end()  # so that the ranks have some seconds to end
            watch.stop()
            watch.follow(launcher, timeout)
            self._output.error(f"\n{signals.describe(interrupted.number)}; all ranks have ended")
            return Outcome(128 + interrupted.number, interrupted=True)
        if interrupt is not None and interrupt.is_set() and watch.stopped:
            return Outcome(1)
        failure, missing = watch.first_failure(), watch.missing()
        if failure is not None:
            self._output.error(f"\nfailed: {failure.describe(siblings=watch.size > 1)}")
            return Outcome(failure.exit_code, lost=failure.status is None)
        if missing or launcher.returncode:
            self._explain(watch, missing, launcher.returncode)
            return Outcome(1, lost=bool(missing))
        return Outcome(0)

    def _explain(self, watch: Watch, missing: list[int], status: int) -> None:
        """Report a failure for which no rank has reported an error."""
        runner = {"gloo": "horovodrun", "mpi": "mpiexec"}[self.plan.controller]
        if missing:
            names = ", ".join(map(str, missing))
            hosts = dict.fromkeys(self.plan.hosts.host_of(rank).name for rank in missing)
            where = "" if self.plan.hosts.only_here else f" on {', '.join(hosts)}"
            when = f"within {self.plan.timeout_s} s" if watch.stopped else f"before {runner} ended with status {status}"
            self._output.error(f"\nfailed: no connection from rank {names}{where} {when}")
        else:
            self._output.error(f"\nfailed: {runner} ended with status {status}")
        for line in watch.launcher_tail:
            self._output.error(f"    {line}")

    def _show_places(self, watch: Watch) -> None:
        for state in sorted(watch.ranks.values(), key=lambda state: state.rank):
            where = f"rank {state.rank}: pid {state.pid} on {state.host}, cores {state.cores}"
            print(f"{where}, exit status {state.exit_code}", file=sys.stderr)


def _place_secret(sessions: Sessions, watch: Watch) -> None:
    """Write the run's secret on the other hosts, where the agents read it."""
    content, path = watch.secret_file.read_bytes().hex(), watch.environment[SECRET_FILE]
    sessions.ask_all(
        0.5, lambda session: {} if is_here(session.host.name) else session.ask("secret", path=path, content=content)
    )
