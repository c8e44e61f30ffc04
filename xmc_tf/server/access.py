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
        names: other allowed names, also of pages.
        only: whether other hosts are refused even if they are addresses, names without a dot, or missing.
    """

    def __init__(self, own: Iterable[str] = (), names: Iterable[str] = (), *, only: bool = False) -> None:
        self._own, self._names = ({name.lower().rstrip(".") for name in listed} for listed in (own, names))
        self._only = only

    def check(self, request: Request) -> None:
        """Raise RefusedError for a request to another host, or from a page of another site."""
        more = "" if self._only else "; the server's flag --allow-host NAME allows others"
        hosts, origin = request.all_headers("host"), request.header("origin")
        host = _name_of(hosts[0]) if len(hosts) == 1 else ""
        is_safe = not hosts or (host and ("." not in host or _is_address(host)))
        if not (host in self._own | self._names or (is_safe and not self._only)):
            unknown = "this page is only available on this machine" if self._only else "unknown name of the server"
            raise RefusedError(403, unknown + more)
        page = (origin or "").partition("://")[2]
        if origin is not None and [page] != hosts and _name_of(page) not in self._names:
            raise RefusedError(403, f"this server accepts requests only from itself{more}")


def _name_of(host: str) -> str:
    """Return the name in ``name:port``, or "" if there is none."""
    try:
        return (urllib.parse.urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False
