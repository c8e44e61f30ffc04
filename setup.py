"""Stop on an old Python before pip downloads anything, and build outside the clone; everything else is in setup.cfg.

Some versions of pip download or even compile the dependencies before they compare ``python_requires`` with the running
Python. This file runs first.
"""

import sys
import tempfile

from setuptools import setup

major, minor = sys.version_info[:2]
if (major, minor) > (3, 13):
    print(f"warning: xmc_tf is tested with Python 3.11 to 3.13, not with {major}.{minor}", file=sys.stderr)
if (major, minor) < (3, 11):
    sys.exit(
        f"error: Python {major}.{minor} ({sys.executable}) is not supported\n"
        "  expected: CPython 3.11 or later; 3.11 to 3.13 are tested\n"
        "  fix:      python3.13 -m venv .venv && .venv/bin/pip install .\n"
        "            (to get Python 3.13: Debian, Ubuntu: apt install python3.13-venv; anywhere: pyenv install 3.13)"
    )
# A build folder in the clone would bring modules into the wheel that are gone, and two builds would disturb each other.
with tempfile.TemporaryDirectory(prefix="xmc-tf-build-") as folder:
    setup(options={"build": {"build_base": folder}, "egg_info": {"egg_base": folder}})
