"""A server in its own process, and raw requests to it."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit


class Running(NamedTuple):
    """A running server: its address without a path, and its process."""

    url: str
    process: subprocess.Popen

    def ask(self, path, content=None, method=None):
        """Return status, headers and body of an answer."""
        body = content if content is None or isinstance(content, bytes) else json.dumps(content).encode()
        request = urllib.request.Request(self.url + path, body, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return reply.status, dict(reply.headers), reply.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def raw(self, content, end=False):
        """Send bytes, and return all that comes back until the server closes the connection."""
        with socket.create_connection((urlsplit(self.url).hostname, urlsplit(self.url).port), timeout=120) as one:
            if content:
                one.sendall(content)
            if end:
                one.shutdown(socket.SHUT_WR)
            answer = b""
            try:
                while piece := one.recv(1 << 16):
                    answer += piece
            except ConnectionResetError:
                pass  # how a server ends a connection at once
            return answer

    def metric(self, name):
        """Return the value of a metric; 0 if it is not there yet."""
        page = self.ask("/monitoring/prometheus/metrics")[2].decode()
        found = re.search(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
        return float(found[1]) if found else 0.0


@contextmanager
def running(folder, *flags, log, grace_s=None, env=None):
    """Yield a server of a model; end it by SIGTERM, which gives commands ``grace_s`` to end (default: that of all)."""
    start = ["-m", "xmc_tf.server"]
    if grace_s is not None:
        patch = f"from xmc_tf.common.process import cli, signals; signals.GRACE_S = {grace_s}"
        start = ["-c", f"{patch}; from xmc_tf.server.__main__ import main; cli.run(main)"]
    command = [sys.executable, *start, "-m", str(folder), "-p", "0", *flags]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=env)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("http://"), log.read_text()
            yield Running(line.split("/v1/")[0], process)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(120)
            finally:
                process.kill()
                process.wait()
                process.stdout.close()
