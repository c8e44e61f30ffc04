"""A part of the campaign: all command lines that were broken once, and forty others."""

import pytest

from tests.campaigns import once_broken
from tests.campaigns.bad_input import chosen, warm
from tests.campaigns.trial import Case, Outcome, run

BROKEN_ONCE = len(list(once_broken.cases()))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    warm(folder)
    return folder


@pytest.mark.parametrize(("first", "count"), [(0, BROKEN_ONCE), (BROKEN_ONCE, 44)], ids=["broken once", "others"])
def test_bad_input_ends_with_a_message(first, count, inputs):
    outcomes = {str(case): run(case, inputs) for case in chosen(count, first) if case.forked}
    failed = [
        f"{outcome.verdict}: {case}\n{outcome.said}" for case, outcome in outcomes.items() if outcome.verdict != "ok"
    ]
    assert not failed, "\n\n".join(failed)
    assert sum(outcome.refused for outcome in outcomes.values()) > len(outcomes) / 3


def test_good_input_succeeds(inputs):
    """Else a fault of the campaign itself would pass for a refusal."""
    good = Case("linear.predict", ("-m", "{in}/model", "-x", "{in}/X.npz", "-o", "{out}/p.npz"))
    assert run(good, inputs) == Outcome("ok")
