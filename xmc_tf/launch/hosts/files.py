"""The formats of lists of hosts: ``-H``, parallel-BERT's JSON, hostfiles of PECOS, DeepSpeed and Horovod."""

import json
import re
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.launch.hosts.hosts import Host, Hosts, make_host

_FORMATS = "host slots=4 (PECOS, DeepSpeed, Open MPI) or host:4 (Horovod)"
_MOST_BYTES = 16 << 20


def parse_flag(text: str) -> Hosts:
    """Return the hosts of ``-H``.

    Example:
        >>> parse_flag("one:4,10.0.0.2:2")
        Hosts(one:4,10.0.0.2:2)
    """
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
    text = _text(path)
    try:
        content = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise InputError(
            f"{path}, line {line}: not JSON",
            expected='{"host": number of GPUs, ...}',
            received=getattr(error, "msg", type(error).__name__),
        ) from None
    if not isinstance(content, _Pairs):
        raise InputError(f"{path}, line 1", expected='{"host": number of GPUs, ...}', received=type(content).__name__)
    hosts, seen = [], set()
    for name, slots in content:
        where = f"{path}, line {_line_of(text, name, again=name in seen)}"
        if name in seen:
            raise InputError(f"{where}: {name} is listed twice", fix="remove one of the two")
        if type(slots) is not int:
            received = "an object" if isinstance(slots, _Pairs) else json.dumps(slots)
            raise InputError(f"{where}: number of GPUs of {name}", expected="a whole number", received=received)
        seen.add(name)
        hosts.append(make_host(name, slots, where))
    return Hosts(hosts, str(path))


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as pairs, in which a key that is given twice is seen."""


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


def _line_of(text: str, name: str, again: bool) -> int:
    """Return the line of a key in a JSON file; the first line if the key is written with escapes."""
    found = [match.start() for match in re.finditer(rf"{re.escape(json.dumps(name, ensure_ascii=False))}\s*:", text)]
    at = found[min(int(again), len(found) - 1)] if found else 0
    return text.count("\n", 0, at) + 1


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
