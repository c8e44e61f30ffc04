"""Stop on an unsupported Python before pip downloads anything; everything else is in setup.cfg.

Some versions of pip download or even compile the dependencies before they compare ``python_requires`` with the running
Python. This file runs first.
"""

import sys

from setuptools import setup

if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    major, minor = sys.version_info[:2]
    sys.exit(
        f"error: Python {major}.{minor} ({sys.executable}) is not supported\n"
        "  expected: CPython 3.11, 3.12 or 3.13\n"
        "  fix:      python3.13 -m venv .venv && .venv/bin/pip install .\n"
        "            (to get Python 3.13: Debian, Ubuntu: apt install python3.13-venv; anywhere: pyenv install 3.13)"
    )
setup()
