"""The formats of lists of hosts: ``-H``, parallel-BERT's JSON, hostfiles of PECOS, DeepSpeed and Horovod."""

import json
import re
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import read_json
from xmc_tf.launch.hosts.hosts import Host, Hosts, make_host

_FORMATS = "host slots=4 (PECOS, DeepSpeed, Open MPI) or host:4 (Horovod)"
_MOST_BYTES = 16 << 20


def parse_flag(text: str) -> Hosts:
    """Return the hosts of ``-H``, such as ``one:4,10.0.0.2:2``."""
    hosts = []
    for number, part in enumerate(text.split(","), 1):
        where = f"-H, host {number}"
        name, colon, slots = part.strip().rpartition(":")
        if not colon:
            raise InputError(where, expected="HOST:SLOTS, such as one:4,two:2", received=repr(part))
        hosts.append(make_host(name, _number(slots, where), where))
    return Hosts(hosts, "-H")


def read_hostfile(path: str | Path) -> Hosts:
    """Return the hosts of a hostfile: a host per line, with ``slots=4`` or ``:4``; ``#`` begins a comment."""
    hosts: list[Host] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        where = f"{path}, line {number}"
        words = line.partition("#")[0].split()
        if not words:
            continue
        host = _host_of(words, where)
        if host.name in lines:
            raise InputError(
                f"{where}: {host.name} is listed twice, first in line {lines[host.name]}", fix="remove one of the lines"
            )
        lines[host.name] = number
        hosts.append(host)
    return Hosts(hosts, str(path))


def read_json_hosts(path: str | Path) -> Hosts:
    """Return the hosts of a JSON file ``{"host": number of GPUs}``."""
    hosts = []
    for name, slots in read_json(path, expected='{"host": number of GPUs, ...}', unique_keys=True).items():
        if type(slots) is not int:
            raise InputError(
                f"{path}: number of GPUs of {name}", expected="a whole number", received=json.dumps(slots)[:40]
            )
        hosts.append(make_host(name, slots, str(path)))
    return Hosts(hosts, str(path))


def _host_of(words: list[str], where: str) -> Host:
    name, *rest = words
    if not rest and ":" in name:
        name, _, slots = name.rpartition(":")
        return make_host(name, _number(slots, where), where)
    given = [word for word in rest if word.startswith("slots=")]
    unknown = [word for word in rest if not re.fullmatch(r"(slots|max_slots|max-slots)=.*", word)]
    if len(given) != 1 or unknown:
        raise InputError(f"{where}: number of ranks of {name}", expected=_FORMATS, received=" ".join(words))
    return make_host(name, _number(given[0].removeprefix("slots="), where), where)


def _number(text: str, where: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise InputError(f"{where}: number of ranks", expected="a whole number", received=repr(text))
    return int(text)


def _text(path: str | Path) -> str:
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} is not a file", expected="a file with one host per line, or JSON")
    data = path.read_bytes()
    if len(data) > _MOST_BYTES:
        raise InputError(f"{path} is too large for a list of hosts", received=f"{len(data):,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: not UTF-8", fix="save the file as plain text") from None
