"""Three hosts on this machine: network namespaces that a bridge joins, each with an sshd of its own.

Each host also has its own mounts and its own name, and a test can switch its link off.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.distributed.launch import ENVIRONMENT, REPOSITORY

SLOTS = {"one": 2, "two": 1, "three": 1}
# Hosts call their interfaces differently.
_INTERFACES = {"one": "eth0", "two": "lan0", "three": "eth1"}
_IN_REPOSITORY = ("env", f"--chdir={REPOSITORY}")  # nsenter begins in /
_NEEDED = {
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
}


def why_not() -> str:
    """Return why hosts cannot be made here, or ""."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = sorted({package for program, package in _NEEDED.items() if shutil.which(program, path=path) is None})
    if missing:
        return f"missing programs: apt-get install {' '.join(missing)}"
    name = f"xmc-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        return f"network namespaces are not permitted: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


class Cluster:
    """Three hosts; commands start on host ``one``.

    Args:
        folder: for keys, settings and logs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._mark = folder, f"xmc{os.getpid()}"
        self._sshd: dict[str, subprocess.Popen[bytes]] = {}
        self.variables: dict[str, str] = {}  # more of them for all commands
        self.tmp = folder / "tmp"  # each host has its own
        self.tmp.mkdir()

    def environment(self) -> dict[str, str]:
        """Return the environment of commands on host ``one``."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_", "HOROVOD_"))
        }
        # Open MPI finds its network without help, and tells hosts from each other.
        ours = {name: value for name, value in ENVIRONMENT.items() if not name.endswith("_if_include")}
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return kept | ours | {"PATH": path, "TMPDIR": str(self.tmp), "PYTHONDONTWRITEBYTECODE": "1", **self.variables}

    def command(self, host: str, *command: str) -> list[str]:
        """Return the command that runs a command on a host."""
        spaces = ["--target", str(self._sshd[host].pid), "--net", "--mount", "--uts"]
        return ["nsenter", *spaces, "--", *_IN_REPOSITORY, *command]

    def on(self, host: str, *command: str) -> str:
        """Run a command on a host."""
        done = subprocess.run(self.command(host, *command), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextlib.contextmanager
    def cut_off(self, host: str) -> Iterator[None]:
        """Switch the link of a host off, and on again at the end."""
        self.link(host, "down")
        try:
            yield
        finally:
            self.link(host, "up")

    def link(self, host: str, state: str) -> None:
        """Switch the link of a host ``up`` or ``down``."""
        _run("ip", "-n", self._space("switch"), "link", "set", f"to-{host}", state)

    def start(self) -> None:
        """Make the hosts and start their sshds."""
        self._write_client()
        switch = self._space("switch")
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "bridge", "up")
        hosts = "127.0.0.1 localhost\n" + "".join(f"10.77.0.{n} {name}\n" for n, name in enumerate(SLOTS, 1))
        (self.folder / "hosts").write_text(hosts)
        for number, name in enumerate(SLOTS, 1):
            space, interface = self._space(name), _INTERFACES[name]
            _run("ip", "netns", "add", space)
            pair = ("type", "veth", "peer", "name", interface, "netns", space)
            _run("ip", "-n", switch, "link", "add", f"to-{name}", *pair)
            _run("ip", "-n", switch, "link", "set", f"to-{name}", "master", "bridge", "up")
            _run("ip", "-n", space, "addr", "add", f"10.77.0.{number}/24", "dev", interface)
            _run("ip", "-n", space, "link", "set", interface, "up")
            _run("ip", "-n", space, "link", "set", "lo", "up")
            self._start_sshd(name, f"10.77.0.{number}")
        for name in SLOTS:
            _wait_until(lambda name=name: self.on("one", "ssh-keyscan", "-T", "2", name), f"sshd on {name}")

    def stop(self) -> None:
        """End all processes of the hosts, and remove the hosts."""
        for process in self._sshd.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for name in (*SLOTS, "switch"):
            for pid in self._pids(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", self._space(name)], capture_output=True)

    def processes(self) -> dict[int, str]:
        """Return the command lines of all hosts' processes, except for sshd."""
        return {pid: line for name in SLOTS for pid, line in self.processes_of(name).items()}

    def processes_of(self, host: str) -> dict[int, str]:
        """Return the command lines of a host's processes, except for sshd."""
        found = {}
        for pid in self._pids(host):
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if "sshd" not in line and _alive(pid):
                    found[pid] = line
        return found

    def _space(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def _pids(self, name: str) -> list[int]:
        """Return the processes of a host; none if it does not exist."""
        found = subprocess.run(["ip", "netns", "pids", self._space(name)], capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]

    def _write_client(self) -> None:
        """Write the keys, and an ``ssh`` that uses them instead of the user's."""
        for name in ("key", "host-key"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name))
        config = [f"IdentityFile {self.folder / 'key'}", "IdentitiesOnly yes"]
        config += [f"UserKnownHostsFile {self.folder / 'known'}", "LogLevel ERROR", "StrictHostKeyChecking accept-new"]
        (self.folder / "config").write_text("\n".join(config))
        (self.folder / "bin").mkdir()
        ssh = self.folder / "bin" / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder / "config"} "$@"\n')
        ssh.chmod(0o755)

    def _start_sshd(self, name: str, address: str) -> None:
        settings = {
            "ListenAddress": address,
            "HostKey": self.folder / "host-key",
            "AuthorizedKeysFile": self.folder / "key.pub",
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PermitRootLogin": "prohibit-password",
            "PrintMotd": "no",
            "MaxStartups": "100",
        }
        config = self.folder / f"sshd-{name}"
        config.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        sshd = shutil.which("sshd", path="/usr/sbin:/sbin:/usr/bin")
        script = f"""set -e
mount --make-rprivate /
mount -t tmpfs tmpfs {self.tmp}
mkdir -p /run/sshd
mount --bind {self.folder}/hosts /etc/hosts
hostname {name}
exec {sshd} -D -e -f {config}"""
        with (self.folder / f"sshd-{name}.log").open("wb") as log:
            self._sshd[name] = subprocess.Popen(
                ["ip", "netns", "exec", self._space(name), "unshare", "--mount", "--uts", "sh", "-c", script],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


def _wait_until(condition, what: str, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(AssertionError):
            if condition():
                return
        assert time.monotonic() < end, f"{what} did not come up in {seconds:.0f} s"
        time.sleep(0.05)
