"""Programs that not every machine has: a test without one is skipped, or fails where ``XMC_TF_REQUIRE`` names it."""

import os
from typing import NoReturn

import pytest

REQUIRED = set(filter(None, os.environ.get("XMC_TF_REQUIRE", "").split(",")))
KNOWN = {"annif", "chromium", "encoder", "horovod", "sshd"}

if unknown := REQUIRED - KNOWN:
    raise pytest.UsageError(f"XMC_TF_REQUIRE: {', '.join(sorted(unknown))} is none of {', '.join(sorted(KNOWN))}")


def missing(program: str, reason: str) -> NoReturn:
    """Skip the test that runs, or have it fail if the program must be there.

    Args:
        program: one of ``KNOWN``.
        reason: what is missing, and what was not tested.
    """
    if program in REQUIRED:
        pytest.fail(f"XMC_TF_REQUIRE names {program}. {reason}")
    pytest.skip(reason)
