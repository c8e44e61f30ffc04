"""A headless Chromium, spoken to over a pipe in its own protocol: no driver, no package, no port."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from contextlib import contextmanager

BINARY = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_KEYS = {"Tab": (9, None), "Enter": (13, "\r"), " ": (32, " "), "ArrowDown": (40, None), "/": (191, "/")}


class Page:
    """One page of the browser."""

    def __init__(self, write, read):
        self._write, self._read, self._buffer, self._count = write, read, b"", 0
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Runtime.enable")

    def call(self, method, **params):
        """Return the result of a command."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 60
        while True:
            while b"\0" not in self._buffer:
                if not select.select([self._read], [], [], max(0, end - time.monotonic()))[0]:
                    raise TimeoutError(method)
                piece = os.read(self._read, 1 << 20)
                if not piece:
                    raise EOFError("the browser has ended")
                self._buffer += piece
            line, _, self._buffer = self._buffer.partition(b"\0")
            answer = json.loads(line)
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, url):
        """Open a page."""
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def js(self, expression):
        """Return the value of an expression in the page."""
        out = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in out, out
        return out["result"].get("value")

    def until(self, expression, seconds=60):
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.js(expression):
            assert time.monotonic() < end, f"{expression} never became true: {self.js('document.body.innerText')}"
            time.sleep(0.05)

    def key(self, name, *, control=False):
        """Press and release a key."""
        code, text = _KEYS.get(name) or (ord(name.upper()), name)  # the others are letters and digits
        common = {"key": name, "code": "Space" if name == " " else name, "windowsVirtualKeyCode": code}
        common["modifiers"] = 2 if control else 0
        if text and not control:
            self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        else:
            self.call("Input.dispatchKeyEvent", type="rawKeyDown", **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def write(self, text):
        """Type a text at the focus."""
        self.call("Input.insertText", text=text)

    def accessible(self):
        """Return role and name of everything that a screen reader reads."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return {
            (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
        }

    def screenshot(self, path, width=900, height=1100, *, dark=False):
        """Take a screenshot of the page."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def page(folder):
    """Yield a page in a new browser with its files in a folder."""
    here_read, there_write = os.pipe()
    there_read, here_write = os.pipe()
    # The browser reads from 3 and writes to 4.
    flags = f"--headless --no-sandbox --disable-gpu --remote-debugging-pipe --user-data-dir={folder}"
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$0" {flags} about:blank 3<&{there_read} 4>&{there_write}', BINARY],
        pass_fds=(there_read, there_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(there_read)
    os.close(there_write)
    try:
        yield Page(here_write, here_read)
    finally:
        process.terminate()
        process.wait(120)
        os.close(here_read)
        os.close(here_write)
