"""Stop on an old Python before pip downloads anything; everything else is in setup.cfg.

Some versions of pip download or even compile the dependencies before they compare ``python_requires`` with the running
Python. This file runs first.
"""

import sys

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
setup()
