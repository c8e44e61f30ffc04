"""A real Slurm of two nodes, in a folder, on loopback: munged, slurmctld and slurmd from Debian's packages."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch")
MISSING = [name for name in DAEMONS if shutil.which(name) is None]
INSTALL = f"no {', '.join(MISSING)} (apt-get install slurmctld slurmd slurm-client munge)"
_CONFIGURATION = """
ClusterName=xmc
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=127.0.0.[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]},{ports[2]}] CPUs=16 Boards=1 \
SocketsPerBoard=1 CoresPerSocket=16 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
"""


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the environment in which ``sbatch`` reaches a Slurm that lasts as long as the context."""
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    configuration = folder / "slurm.conf"
    host = socket.gethostname().partition(".")[0]
    configuration.write_text(_CONFIGURATION.format(host=host, folder=folder, ports=_free_ports(3)))
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    munge = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munge += [f"--{name}-file={folder}/munged.{name}" for name in ("pid", "log", "seed")]
    with ExitStack() as stack:
        nodes = [["slurmd", "-D", "-N", name] for name in ("127.0.0.1", "127.0.0.2")]
        for command in (munge, ["slurmctld", "-D"], *nodes):
            log = stack.enter_context((folder / f"{command[0]}-{command[-1]}.out".replace("/", "-")).open("wb"))
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
            stack.callback(_stop, process)
        _wait_until_idle(environment, folder)
        yield environment


def _wait_until_idle(environment: dict[str, str], folder: Path) -> None:
    end = time.monotonic() + 240
    while time.monotonic() < end:
        found = subprocess.run(
            ["sinfo", "--noheader", "--format=%t"], env=environment, capture_output=True, text=True, check=False
        )
        if found.stdout.split() == ["idle"]:  # both
            return
        time.sleep(0.2)
    logs = "\n".join(path.read_text(errors="replace")[-1000:] for path in folder.glob("*.out"))
    raise AssertionError(f"Slurm does not start:\n{logs}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
