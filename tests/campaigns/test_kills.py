"""A short version of the campaign: single processes that are killed a few times, and two ranks once."""

import pytest

from tests.campaigns.killed_runs import _tracebacks
from tests.campaigns.kills import campaign, commands

SHORT = ["prepare", "linear"]


@pytest.mark.distributed
def test_a_few_kills_do_no_harm(tmp_path):
    some = [command for command in commands(tmp_path, SHORT) if command.name != "linear-gloo"]
    for command, share in zip(some, (2, 2, 1), strict=True):
        command.share = share
    found = campaign(tmp_path, some, kills=5, seed=0)
    assert found.counts["kills"] == 5
    assert not found.failures, "\n".join(found.failures)


def test_tracebacks_are_taken_apart():
    output = (
        "[1,0]<stderr>:Traceback (most recent call last):\n"
        '[1,0]<stderr>:  File "xmc_tf/train.py"\n'
        "[1,0]<stderr>:KeyError: 1\n"
        "between\n"
        'Traceback (most recent call last):\n  File "horovod/runner/launch.py"\nRuntimeError: 2\nafter\n'
    )
    first, second = _tracebacks(output)
    assert first.endswith('  File "xmc_tf/train.py"\nKeyError: 1')
    assert second.endswith("RuntimeError: 2")
