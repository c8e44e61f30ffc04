"""The host names by which a server may be called. Web pages must not reach it through the browsers of visitors."""

import ipaddress
import urllib.parse
from collections.abc import Iterable

from xmc_tf.server.application import RefusedError, Request

LOCAL = ("localhost", "127.0.0.1", "::1")


class AllowedHosts:
    """Names that the headers Host and Origin may have.

    A page can point a name of its own domain to the address of a server (then Host has that name), or send it requests
    from forms and scripts (then Origin names the page). Neither is possible for addresses and for names without a dot.

    Args:
        own: names of the server. Only pages of the same host and port may send requests.
        names: other allowed names, also of pages. ``.example.org`` allows all names below it, and ``*`` all names.
        only: whether other hosts are refused even if they are addresses, names without a dot, or missing.
    """

    def __init__(self, own: Iterable[str] = (), names: Iterable[str] = (), *, only: bool = False) -> None:
        self._own, self._names = (frozenset(name.lower().rstrip(".") for name in listed) for listed in (own, names))
        self._only = only

    def check(self, request: Request) -> None:
        """Raise RefusedError for a request to another host, or from a page of another site."""
        more = "" if self._only else "; the server's flag --allow-host NAME allows others"
        unknown = "this page is only available on this machine" if self._only else "unknown name of the server"
        hosts = request.all_headers("host")
        if len(hosts) > 1 or not (self._allows(hosts[0]) if hosts else not self._only):
            raise RefusedError(403, unknown + more)
        origin = request.header("origin")
        if origin is None:
            return
        from_host = origin.partition("://")[2]
        if [from_host] != hosts and not self._lists(_name_of(from_host)):
            raise RefusedError(403, f"this server accepts requests only from itself{more}")

    def _allows(self, host: str) -> bool:
        name = _name_of(host)
        is_safe = not self._only and bool(name) and (_is_address(name) or "." not in name)
        return name in self._own or is_safe or self._lists(name)

    def _lists(self, name: str) -> bool:
        parents = [name[at:] for at, letter in enumerate(name) if letter == "."]
        return bool(name) and not self._names.isdisjoint((name, *parents, "*"))


def _name_of(host: str) -> str:
    """Return the name in ``name:port``, or "" if there is none."""
    try:
        return (urllib.parse.urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
