import contextlib
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from xmc_tf.common.process.terminal import printable
from xmc_tf.launch.gpus import Gpu, least_busy
from xmc_tf.launch.host_probe import PACKAGES, UNREADABLE, quick_checksum
from xmc_tf.launch.hosts import Host, Hosts
from xmc_tf.launch.nodes import Nodes
from xmc_tf.ranks.this_host import versions

LEAST_DISK_BYTES = 1 << 30
COLUMNS = ("reached", "versions", "data", "shared", "disk", "GPUs", "ports")


class HostCheck(NamedTuple):
    """The result of one check on one host: the text to show, the problem (or ""), and its fix."""

    text: str
    problem: str = ""
    fix: str = ""


@dataclass
class HostChecks:
    # The cells of each host, by column; later columns are missing if a host was not reached.
    rows: dict[Host, dict[str, HostCheck]] = field(default_factory=dict)
    gpus: dict[str, list[str]] = field(default_factory=dict)  # to be used, by host

    @property
    def problems(self) -> list[tuple[str, str, HostCheck]]:
        cells = [(host.name, column, cell) for host, row in self.rows.items() for column, cell in row.items()]
        return [found for found in cells if found[2].problem]

    def text(self) -> str:
        """Return the checks as a table, with failed cells marked ``!``, followed by the problems and their fixes."""
        rows = [["host", "ranks", *COLUMNS]]
        for host, cells in self.rows.items():
            shown = [cells.get(column, HostCheck("")) for column in COLUMNS]
            marked = [f"{cell.text} !" if cell.problem else cell.text for cell in shown]
            rows.append([host.name, str(host.slots), *marked])
        lines = align(rows)
        for name, column, cell in self.problems:
            lines += ["", f"{name}: {'not reached: ' if column == 'reached' else ''}{printable(cell.problem)}"]
            lines.append(f"  fix: {cell.fix}")
        return "\n".join(lines)


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def check_hosts(nodes: Nodes, hosts: Hosts, *, paths: Sequence[str], shared: str) -> HostChecks:
    """Start the nodes of all hosts, and check their versions, files, disk space, GPUs and connections."""
    token, mark = secrets.token_hex(16), f".xmc_tf-launch-{secrets.token_hex(8)}"
    written, own_problem = Path(shared, mark), ""
    request = {"folder": os.getcwd(), "paths": list(paths), "shared": shared, "mark": mark, "token": token}
    nodes.start(hosts, 0.4 * nodes.timeout_s)
    my_versions, my_checksums = versions(PACKAGES), {path: quick_checksum(path) for path in paths}
    try:
        written.write_text(token)
    except OSError as error:
        own_problem = f"this host cannot write to {shared}: {error.strerror}"
    try:
        found = nodes.ask_all(hosts, 0.4, "look", **request)
    finally:
        with contextlib.suppress(OSError):
            written.unlink()
    targets = [[name, one["address"], one["port"]] for name, one in found.items()]
    patience_s = 0.1 * nodes.timeout_s
    connected = nodes.ask_all(hosts, 0.2, "connect", targets=targets, patience_s=patience_s)
    report = HostChecks()
    use_gpus = any(one["gpus"] for one in found.values())
    for host in hosts:
        name = host.name
        if name in nodes.errors or name not in connected:
            report.rows[host] = {"reached": _unreached(nodes.errors.get(name, "no answer"))}
            continue
        theirs = found[name]
        gpus = _gpus(host, [Gpu(*one) for one in theirs["gpus"]], use_gpus)
        report.rows[host] = {
            "reached": HostCheck("yes"),
            "versions": _versions(my_versions, theirs["versions"]),
            "data": _data(my_checksums, theirs["checksums"]),
            "shared": _shared(theirs["shared"], shared, own_problem),
            "disk": _disk(theirs["disk"]),
            "GPUs": gpus,
            "ports": _ports(connected[name]["unreachable"]),
        }
        if theirs["gpus"] and not gpus.problem:
            report.gpus[name] = least_busy([Gpu(*one) for one in theirs["gpus"]], host.slots)
    return report


def _unreached(error: str) -> HostCheck:
    fix = "start the host, or remove it from the list; `ssh HOST true` must work without a password"
    if "xmc_tf" in error or "python" in error.lower() or "No such file" in error or "can't cd" in error:
        fix = "install xmc_tf on this host at the same path as here, and use a folder that exists on all hosts"
    elif "ermission denied" in error:
        fix = "copy your public key to the host: ssh-copy-id HOST"
    elif "host key" in error.lower():
        fix = "if the host was reinstalled, remove its old key: ssh-keygen -R HOST"
    return HostCheck("no", error, fix)


def _versions(mine: Mapping[str, str], theirs: Mapping[str, str]) -> HostCheck:
    other = [name for name in mine if theirs.get(name) != mine[name]]
    if not other:
        return HostCheck("same")
    named = ", ".join(f"{name} {theirs.get(name)} instead of {mine[name]}" for name in other)
    return HostCheck(other[0], f"different versions: {named}", "install the same versions as on this host")


def _data(mine: Mapping[str, str | None], theirs: Mapping[str, str | None]) -> HostCheck:
    missing = [path for path in mine if theirs.get(path) is None and mine[path] is not None]
    unreadable = [path for path in mine if (theirs.get(path) or "").startswith(UNREADABLE)]
    other = [path for path in mine if theirs.get(path) != mine[path] and path not in (*missing, *unreadable)]
    if not missing and not unreadable and not other:
        return HostCheck(f"same ({len(mine)})" if mine else "–")
    problems = [f"{path} is missing" for path in missing] + [f"{path} {theirs[path]}" for path in unreadable]
    problems += [f"{path} differs from this host's" for path in other]
    fix = "make it readable, copy it again, or use a folder that all hosts share"
    return HostCheck("missing" if missing else "unreadable" if unreadable else "differs", "; ".join(problems), fix)


def _shared(seen: bool, folder: str, own_problem: str) -> HostCheck:
    if own_problem:
        return HostCheck("?", own_problem, "choose another folder with --shared-folder")
    if seen:
        return HostCheck("yes")
    fix = "mount the same network folder at this path on all hosts, or name another one with --shared-folder"
    return HostCheck("no", f"{folder} is not shared: a file that the launcher wrote there is not visible", fix)


def _disk(free: Mapping[str, int]) -> HostCheck:
    if not free:
        return HostCheck("?")
    folder, least = min(free.items(), key=lambda item: item[1])
    text = f"{least / 1e9:,.0f} GB" if least >= 1e10 else f"{least / 1e9:,.1f} GB"
    if least < LEAST_DISK_BYTES:
        return HostCheck(text, f"{text} free in {folder}, at least 1.1 GB are needed", "remove files there")
    return HostCheck(text)


def _gpus(host: Host, gpus: Sequence[Gpu], expected: bool) -> HostCheck:
    free = sum(gpu.free for gpu in gpus)
    text = f"{free}/{len(gpus)} free" if gpus else "none"
    if expected and free < host.slots:
        seen = f"{free} of {len(gpus)} GPUs are free" if gpus else "no GPU is visible"
        fix = f"lower the number of ranks of {host.name}, stop what uses its GPUs (nvidia-smi), or install its driver"
        return HostCheck(text, f"too few GPUs: {seen}, {host.slots} are needed", fix)
    return HostCheck(text)


def _ports(unreachable: Sequence[str]) -> HostCheck:
    if not unreachable:
        return HostCheck("open")
    fix = "let the hosts connect to each other on all TCP ports above 1023 (firewall, security group)"
    return HostCheck("closed", f"cannot connect to {', '.join(unreachable)}", fix)
