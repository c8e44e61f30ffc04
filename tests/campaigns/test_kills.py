"""A short version of the campaign: single processes that are killed a few times, and two ranks once."""

import pytest

from tests.campaigns.kills import campaign, commands

pytestmark = pytest.mark.full

SHORT = ["prepare", "linear"]


@pytest.mark.distributed
def test_a_few_kills_do_no_harm(tmp_path):
    some = commands(tmp_path, SHORT)
    for command, share in zip(some, (2, 2, 1), strict=True):
        command.share = share
    found = campaign(tmp_path, some, kills=5, seed=0)
    assert found.counts["kills"] == 5
    assert not found.failures, "\n".join(found.failures)
