import contextlib
import platform
import re
import time
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

DEVICES = Path("/dev")


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python and of these packages, or "none" for a package that is not installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "none"
    return found


def appears(file: Path, content: str, patience_s: float) -> bool:
    """Wait until a file from another host is visible here with this content. Return False after ``patience_s`` s."""
    end = time.monotonic() + patience_s
    while True:
        with contextlib.suppress(OSError):
            if file.read_text() == content:
                return True
        if time.monotonic() > end:
            return False
        time.sleep(0.1)


def has_gpu(environment: Mapping[str, str]) -> bool:
    """Return whether a process sees a GPU of NVIDIA, without loading CUDA, which would reserve memory of each GPU."""
    visible = environment.get("CUDA_VISIBLE_DEVICES", "0").strip()
    return re.match(r"\d|GPU-|MIG-", visible) is not None and any(DEVICES.glob("nvidia[0-9]*"))
